"""What makes a kernel process a replica: state in before a cell, state out after it, standby work in between.

Owns the order of these steps, and nothing of Jupyter's protocol. All of it runs on the main thread except
the `LinkListener` methods, which only hand over.
Law: a failure here never breaks the user's cell, and never passes for success.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from replkernel.errors import QuorumLost, ReplkernelError
from replkernel.kernel.execution import Execution, FetchRefused, ProcessState, State
from replkernel.kernel.interrupts import WAIT_MAX_S, PutOffInterrupts
from replkernel.kernel.link import AgentLink
from replkernel.kernel.prompts import PromptsPart
from replkernel.protocol import ClaimExecution, Envelope, ReplicaApplied
from replkernel.records import BlobRef, Delta, Pin, Seq

QUESTION_BYTES_MAX = 64 * 2**20
NEEDS_TIMEOUT_S = 60.0
"""So long a cell waits for the state that it needs before it is answered with an error."""

DURABLE_TIMEOUT_S = 30.0
"""So long a reply waits for its commit with REPLKERNEL_DURABLE=before_reply."""

REFUSALS_MAX = 256

FORGET_MISSING = "%replkernel forget-missing"
"""The cell with which a user gives up variables whose bytes no store has any more."""

log = logging.getLogger(__name__)


class Replica:
    """One replica's part in executions.

    `wake` is called on the link's thread when deltas came in and no more are coming; `end` when the
    process is to stop.
    """

    def __init__(
        self,
        state: State,
        shell: Any,
        prompts: PromptsPart,
        process: ProcessState,
        wake: Callable[[], None],
        end: Callable[[str], None],
    ) -> None:
        self.state = state
        self.link: AgentLink | None = None
        self.interrupts = PutOffInterrupts()
        self.notices: list[str] = []
        self.lost: dict[str, str] = {}
        """The variables that could not be rebuilt in this process, and why."""
        self._pins: dict[str, tuple[Pin, ...]] = {}
        """The pins of each component that has any, and of the process under the empty id."""
        self._shell = shell
        self._prompts = prompts
        self._process = process
        self._wake = wake
        self._end = end
        self._news = threading.Condition()
        self._refused: dict[Seq, str] = {}
        self._committed = Seq(0)
        self._ran = Seq(0)
        self._foreign: Delta | None = None
        """The newest delta of another replica, until this one runs a cell."""
        self._stale = False
        self._owed: Execution | None = None
        self._reported_trouble = False
        self._told: set[str] = set()
        self._forget_missing = False

    # -- before a cell ------------------------------------------------------------------------------

    def begin(self, envelope: Envelope | None, *, forget_missing: bool = False) -> Execution:
        """Bring the namespace to where `envelope` needs it and claim the execution.

        What goes wrong, an interrupt included, is in the execution's `trouble`: it must not run then.
        With `forget_missing`, variables whose bytes cannot be had are given up instead.
        """
        execution = Execution(envelope)
        if envelope is None:
            return execution
        try:
            self._check_interrupted()
            self._await(envelope)
            self._forget_missing = forget_missing
            self.materialise()
            self._check_interrupted()
            self._claim(envelope)
        except FetchRefused as refused:
            execution.trouble = refused.error
        except (Exception, KeyboardInterrupt) as error:
            execution.trouble = error
            if not isinstance(error, (ReplkernelError, KeyboardInterrupt)):
                log.error("Execution %d cannot begin", envelope.seq, exc_info=error)
        else:
            self._ran = envelope.seq
            self._foreign = None
        return execution

    def materialise(self) -> None:
        """Rebuild all state that was received, fetching what is not on this host.

        SIGINT breaks the waiting for blobs, never the rebuilding itself.
        """
        if self._foreign is not None:
            with self.interrupts.put_off():
                self._rebuild(everything=True)

    def fill_in(self) -> None:
        """Rebuild before a question what waits for an import: nobody must hear "not found" of a variable.

        More than QUESTION_BYTES_MAX is not fetched for a question; the cell that needs it will.
        """
        if 0 < self.state.pending_bytes <= QUESTION_BYTES_MAX:
            try:
                self.materialise()
            except Exception:
                log.exception("State that a question needs could not be rebuilt")

    def _check_interrupted(self) -> None:
        if self.interrupts.take():
            raise KeyboardInterrupt

    def _await(self, envelope: Envelope) -> None:
        deadline = time.monotonic() + NEEDS_TIMEOUT_S
        with self._news:
            while max(self.state.applied, self._ran) < envelope.needs:
                self._check_refused(envelope)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise QuorumLost(
                        f"The variables of execution {envelope.needs} did not reach this replica within "
                        f"{NEEDS_TIMEOUT_S:g} s, so the cell was not run; "
                        "run it again once `%replkernel status` shows a majority of the replicas alive."
                    )
                self._news.wait(min(left, WAIT_MAX_S))

    def _claim(self, envelope: Envelope) -> None:
        self._check_refused(envelope)
        if self.link is not None:
            self.link.claim(ClaimExecution(envelope.seq, envelope.fence))

    def _check_refused(self, envelope: Envelope) -> None:
        why = self._refused.get(envelope.seq)
        if why is not None:
            raise ReplkernelError(f"The cell was not run: {why.rstrip('.')}; run it again.")

    # -- after a cell -------------------------------------------------------------------------------

    def capture(self, execution: Execution) -> None:
        """Capture what `execution` changed and propose it; SIGINT is put off meanwhile."""
        if execution.envelope is None or execution.trouble is not None or execution.captured:
            return
        execution.captured, execution.kept_back = True, ""
        if self.link is not None and self.link.congested():
            self._owed = execution
            self._keep_back(execution, "the host agent has not taken the last cells' changes")
            return
        self._owed = None
        with self.interrupts.put_off():
            try:
                delta = self._delta(execution.envelope)
            except BaseException as error:
                log.error("Execution %d was not captured", execution.envelope.seq, exc_info=error)
                known = isinstance(error, ReplkernelError)
                self._keep_back(execution, str(error) if known else f"{type(error).__name__}: {error}")
                return
            self._reported_trouble = False
            if self.link is not None:
                self.link.propose(delta)

    def _delta(self, envelope: Envelope) -> Delta:
        with self._prompts.exposed():
            delta = self.state.capture(envelope.seq, envelope.fence, self._shell.execution_count - 1)
        pins = tuple(self._process.pins(envelope.seq))
        if pins:
            delta = replace(delta, pins=(*delta.pins, *pins))
        self._note_pins(delta)
        return delta

    def _note_pins(self, delta: Delta) -> None:
        for cid in delta.dropped:
            self._pins.pop(cid, None)
        for component in delta.components:
            self._pins[component.cid] = component.pins
        self._pins[""] = delta.pins

    def await_commit(self, execution: Execution) -> None:
        """Wait until the execution's delta is durable; what does not arrive is told on stderr."""
        if execution.envelope is None or self.link is None:
            return
        deadline = time.monotonic() + DURABLE_TIMEOUT_S
        try:
            with self.interrupts.delivered(), self._news:
                while not execution.kept_back and self._committed < execution.envelope.seq:
                    left = deadline - time.monotonic()
                    if left <= 0 or execution.envelope.seq in self._refused or self.interrupts.take():
                        break
                    self._news.wait(min(left, WAIT_MAX_S))
        except KeyboardInterrupt:
            pass
        execution.durable = self._committed >= execution.envelope.seq
        if not execution.durable:
            why = execution.kept_back or self.link.trouble or f"no commit within {DURABLE_TIMEOUT_S:g} s"
            self.tell(f"This cell's changes are not durable yet ({why.rstrip('.')}); they are tried again.")

    def _keep_back(self, execution: Execution, why: str) -> None:
        """Tell the user once, with the next cell, that a cell's changes stay in this process for now."""
        execution.kept_back = why.rstrip(".")
        if self._reported_trouble:
            return
        self._reported_trouble = True
        sentence = (
            f"What the last cell changed is on this replica alone for now ({execution.kept_back}); "
            "it is tried again after each cell."
        )
        if self.link is None or self.link.congested():
            self.notices.append(sentence)
        else:
            self.link.complain(sentence)

    def tell(self, sentence: str) -> None:
        """Print one sentence on the current cell's stderr."""
        sys.stderr.write(f"replkernel: {sentence}\n")
        sys.stderr.flush()

    # -- between cells ------------------------------------------------------------------------------

    @property
    def holds_the_notebook(self) -> bool:
        """Tell whether this process ran the last cell: a standby's objects are copies of another's."""
        return self._foreign is None

    @property
    def stale(self) -> bool:
        """Tell whether `refresh` has something to do."""
        return self._stale or self._owed is not None

    def refresh(self) -> None:
        """Do what waited for an idle shell: rebuild what is small and at hand, capture what is owed."""
        owed = self._owed
        if owed is not None and self.link is not None and not self.link.congested():
            owed.captured = False
            self.capture(owed)
        if self._stale:
            try:
                self._rebuild(everything=False)
            except Exception:
                log.exception("State that was received could not be rebuilt in idle time")

    def _rebuild(self, *, everything: bool) -> None:
        self._stale = False
        with self._prompts.exposed(incoming=True):
            report = self.state.rebuild(everything=everything, fetch=self.fetch)
        for failure in report.failed:
            self.lost[", ".join(failure.names)] = failure.reason
            log.warning("%s could not be rebuilt: %s", ", ".join(failure.names), failure.reason)
        if everything:
            self._settle_process()
        newest = self._foreign
        if newest is not None:
            self._shell.execution_count = newest.execution_count + 1
            self._prompts.settle(newest.execution_count + 1)
            self._say_applied()

    def held_pins(self) -> list[Pin]:
        """Return every pin that holds now."""
        return [pin for pins in list(self._pins.values()) for pin in pins]

    def _settle_process(self) -> None:
        """Do what loading left to do; what this host cannot follow is told with the next cell."""
        absent = [f"The module {name} cannot be imported on this host." for name in self._process.settle()]
        for sentence in (*absent, *self._process.troubles()):
            if sentence not in self._told:
                self._told.add(sentence)
                self.notices.append(sentence)

    def _say_applied(self) -> None:
        if self.link is not None:
            state = self.state
            self.link.tell(
                ReplicaApplied(state.applied, state.components, state.state_bytes, state.pending_bytes)
            )

    def fetch(self, blobs: Sequence[BlobRef]) -> None:
        """Have the agent bring `blobs` to this host."""
        if self.link is None:
            raise FetchRefused(QuorumLost("This process has no host agent to fetch state from other hosts."))
        try:
            with self.interrupts.delivered():
                self.link.fetch_blobs(blobs)
        except ReplkernelError as error:
            if self._forget_missing:
                raise
            error.add_note(f"Or run `{FORGET_MISSING}` alone in a cell to go on without these variables.")
            raise FetchRefused(error) from error

    # -- the link's thread --------------------------------------------------------------------------

    def delta_arrived(self, delta: Delta) -> None:
        """Take a committed delta of another replica; the rest happens when the shell is idle."""
        if delta.seq <= max(self.state.applied, self._ran):
            return
        with self._news:
            self.state.receive(delta)
            self._note_pins(delta)
            self._foreign = delta
            self._stale = True
            self._news.notify_all()

    def quiet(self) -> None:
        """Have the main thread rebuild what came, now that no more is coming."""
        if self._stale:
            self._wake()

    def delta_committed(self, seq: Seq) -> None:
        """Note that this process's own delta is durable."""
        with self._news:
            self._committed = Seq(max(self._committed, seq))
            self._news.notify_all()
        if self._owed is not None:
            self._wake()

    def execution_refused(self, seq: Seq, why: str) -> None:
        """Note that an execution lost; a process that already ran it has diverged and must be replaced."""
        with self._news:
            self._refused[seq] = why
            if len(self._refused) > REFUSALS_MAX:
                del self._refused[min(self._refused)]
            self._news.notify_all()
        if self._committed < seq <= self._ran:
            self._end(f"execution {seq} was run here, but it lost: {why}")

    def stop(self, reason: str) -> None:
        """End the process."""
        self._end(reason)

    def applied(self) -> Seq:
        """Return the last execution whose delta this process holds."""
        return self.state.applied
