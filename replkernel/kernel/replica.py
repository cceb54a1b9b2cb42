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
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec.structs import replace

from replkernel.errors import QuorumLost, ReplkernelError
from replkernel.kernel.audits import (
    AFTER_FAULT_S,
    AFTER_GIVING_WAY_S,
    AFTER_INTERRUPT_S,
    AuditTimes,
    readable,
    sentences,
)
from replkernel.kernel.execution import Execution, FetchRefused, ProcessState, State
from replkernel.kernel.interrupts import WAIT_MAX_S, PutOffInterrupts
from replkernel.kernel.link import AgentLink
from replkernel.kernel.prompts import PromptsPart
from replkernel.kernel.restorer import Restorer
from replkernel.namespace.analysis import analyse
from replkernel.namespace.giving_way import Terms
from replkernel.protocol import ClaimExecution, Envelope, ReplicaApplied
from replkernel.records import BlobRef, ComponentId, Delta, Mark, Pin, Seq, Unaudited

QUESTION_BYTES_MAX = 64 * 2**20
NEEDS_TIMEOUT_S = 60.0
"""So long a cell waits for the state that it needs before it is answered with an error."""

DURABLE_TIMEOUT_S = 30.0
"""So long a reply waits for its commit with REPLKERNEL_DURABLE=before_reply."""

BUDGET_S = 0.05
BUDGET_PART = 0.05
"""A capture goes on for so long after its cell, or for this part of the cell's time, whoever waits."""

REFUSALS_MAX = 256

UNFAITHFUL_TOLD_MAX = 100
"""No more variables are told to be unfaithful; that many bind the notebook as well."""

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
        self._logged = Seq(0)
        self._received = Seq(0)
        self._ran = Seq(0)
        self._foreign: Delta | None = None
        """The newest delta of another replica, until this one runs a cell."""
        self._stale = False
        self._owed: Execution | None = None
        self.waits: Callable[[], bool] = lambda: False
        """Tells whether somebody waits for the main thread."""
        self.stale_variables: tuple[str, ...] = ()
        """What this process had to take over as it was before the last cells, in sentences."""
        self._unchecked: Execution | None = None
        """The last execution, while a part of what it may have changed is not checked."""
        self._unaudited: tuple[Unaudited, ...] = ()
        self._audits = 0
        self._audit_times = AuditTimes()
        self._reported_trouble = False
        self._told: set[str] = set()
        self._unfaithful_told: tuple[Pin, ...] = ()
        self._missed: set[Pin] = set()
        """Unfaithful variables without which cells have been run here, for nobody had them."""
        self._forget_missing = False
        self.restorer = Restorer(state, shell, self._rebuild_some, self._bring, wake)

    # -- before a cell ------------------------------------------------------------------------------

    def begin(
        self, envelope: Envelope | None, *, forget_missing: bool = False, texts: Sequence[str] | None = None
    ) -> Execution:
        """Bring the namespace to where `envelope` needs it and claim the execution.

        `texts` are the cell and the expressions that it comes with: what they cannot reach is left behind
        when it is large. Without them everything is brought here.
        What goes wrong, an interrupt included, is in the execution's `trouble`: it must not run then.
        With `forget_missing`, variables whose bytes cannot be had are given up instead.
        """
        execution = Execution(envelope)
        execution.texts = texts or ()
        if envelope is None:
            return execution
        try:
            self._check_interrupted()
            self._await(envelope)
            self._forget_missing = forget_missing
            self.materialise(None if forget_missing else texts)
            self._check_interrupted()
            execution.declined = self._declined(envelope)
            if execution.declined:
                execution.trouble = ReplkernelError("Another replica runs the cell.")
                return execution
            self._claim(envelope)
        except FetchRefused as refused:
            execution.trouble = refused.error
        except (Exception, KeyboardInterrupt) as error:
            execution.trouble = error
            if not isinstance(error, (ReplkernelError, KeyboardInterrupt)):
                log.error("Execution %d cannot begin", envelope.seq, exc_info=error)
        else:
            self._ran = envelope.seq
            self._tell_stale()
            if self._foreign is not None:
                self._unaudited = ()
            self._foreign = None
            self._unchecked, self._audits = None, 0
            execution.began = time.monotonic()
        return execution

    def _tell_stale(self) -> None:
        """Tell which variables of a replica that is gone are older than its last cells."""
        left, cell = self.state.inherited
        if self._foreign is not None and left:
            self.stale_variables = tuple(sentences(left, cell))
            self.notices.extend(self.stale_variables)

    def materialise(self, texts: Sequence[str] | None = None) -> None:
        """Rebuild the state that was received, fetching what is not on this host.

        All of it, or with `texts` what cells of these texts reach, when the rest is large. SIGINT breaks the
        waiting for blobs, never the rebuilding itself.
        """
        if self._foreign is None and not self.state.left_behind:
            return
        with self.interrupts.put_off():
            self.restorer.take_net_down()
            told = self._owed is None and not self._reported_trouble
            certain = texts is not None and told and not self._holds_pins()
            if not (certain and self.restorer.prepare(texts or (), received=self._foreign is not None)):
                self._rebuild(everything=True)

    def _holds_pins(self) -> bool:
        """Tell whether something of the notebook lives here alone: its code may run at any time."""
        return any(pin.replica == self.state.replica for pin in self.held_pins())

    def fill_in(self, text: str = "") -> None:
        """Rebuild before a question what waits for an import: nobody must hear "not found" of a variable.

        When more than QUESTION_BYTES_MAX waits, what the `text` names is rebuilt: all of it in the process
        that ran the last cell, else no more than that.
        """
        try:
            if 0 < self.state.pending_bytes <= QUESTION_BYTES_MAX:
                self.materialise()
            elif self.state.pending_bytes:
                with self.interrupts.put_off():
                    self.restorer.fetch_named(text, None if self.holds_the_notebook else QUESTION_BYTES_MAX)
        except (Exception, FetchRefused):
            log.exception("State that a question needs could not be rebuilt")

    def complete_state(self) -> None:
        """Rebuild all that was left behind, from any thread: what comes next may look at any variable."""
        if not self.state.left_behind:
            return
        try:
            self._rebuild_some({record.cid for record in self.state.behind()})
        except FetchRefused as refused:
            self.notices.append(str(refused.error))
        except Exception:
            log.exception("State that was left behind could not be rebuilt")

    def names_left_behind(self, prefix: str) -> list[str]:
        """Return the variables that wait and begin with `prefix`."""
        return sorted(name for name in self.state.waiting_names() if name.startswith(prefix))

    def _rebuild_some(self, wanted: AbstractSet[ComponentId]) -> None:
        """Rebuild these components and what no cell can be without; leave the rest behind."""
        with self.interrupts.put_off():
            self._rebuild(everything=False, wanted=wanted)

    def _bring(self, blobs: Sequence[BlobRef]) -> None:
        """Bring blobs to this host, from any thread but the main one."""
        wanted = [blob for blob in blobs if self.state.ahead.missing(blob)]
        if wanted and self.link is not None:
            self.link.fetch_blobs(wanted)

    def _check_interrupted(self) -> None:
        if self.interrupts.take():
            raise KeyboardInterrupt

    def _await(self, envelope: Envelope) -> None:
        deadline = time.monotonic() + NEEDS_TIMEOUT_S
        with self._news:
            needs = Mark(envelope.needs, envelope.needs_audit)
            while self._ran < envelope.needs and self.state.mark < needs:
                self._check_refused(envelope)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise QuorumLost(
                        f"The variables of execution {envelope.needs} did not reach this replica within "
                        f"{NEEDS_TIMEOUT_S:g} s, so the cell was not run; "
                        "run it again once `%replkernel status` shows a majority of the replicas alive."
                    )
                self._news.wait(min(left, WAIT_MAX_S))

    def _declined(self, envelope: Envelope) -> tuple[Pin, ...]:
        """Return the variables that are not true here and that another replica has, if it can be had."""
        lacking = [pin for pin in self.unfaithful() if pin.replica != self.state.replica]
        if envelope.anyway:
            self._missed.update(lacking)
        return tuple(pin for pin in lacking if pin not in self._missed)

    def unfaithful(self) -> tuple[Pin, ...]:
        """Return the variables that were rebuilt here otherwise than captured."""
        return tuple(pin for component in self.state.unfaithful for pin in component.pins)

    def _claim(self, envelope: Envelope) -> None:
        self._check_refused(envelope)
        if self.link is not None:
            self.link.claim(ClaimExecution(envelope.seq, envelope.fence))

    def _check_refused(self, envelope: Envelope) -> None:
        why = self._refused.get(envelope.seq)
        if why is not None:
            raise ReplkernelError(f"The cell was not run: {why.rstrip('.')}; run it again.")

    # -- after a cell -------------------------------------------------------------------------------

    def capture(self, execution: Execution, *, whole: bool = False, rests: bool = True) -> None:
        """Capture what `execution` changed and propose it; SIGINT is put off meanwhile.

        Once it has had its budget, it gives way to whoever waits, and what takes long and the cell does not
        mention is left to an audit: unless it is to be `whole`, which only an interrupt ends, or this
        process never `rests` (a GUI's loop has the main thread between cells).
        """
        if execution.envelope is None or execution.trouble is not None or execution.captured:
            return
        execution.captured, execution.kept_back = True, ""
        self.restorer.take_net_down()
        if self.link is not None and self.link.congested():
            self._owed = execution
            self._keep_back(execution, "the host agent has not taken the last cells' changes")
            return
        self._owed = None
        with self.interrupts.put_off():
            try:
                delta = self._delta(execution.envelope, self._terms(execution, whole=whole, rests=rests))
            except BaseException as error:
                log.error("Execution %d was not captured", execution.envelope.seq, exc_info=error)
                known = isinstance(error, ReplkernelError)
                self._keep_back(execution, str(error) if known else f"{type(error).__name__}: {error}")
                return
            self._reported_trouble = False
            self._audits = 0
            self._note_unaudited(execution, delta)
            if self.link is not None:
                self.link.propose(delta)
            if self.unfaithful() != self._unfaithful_told:
                self._say_applied()

    def _terms(self, execution: Execution, *, whole: bool, rests: bool) -> Terms:
        """Return how far the capture right after a cell may go, and note how urgent the rest is."""
        assert execution.envelope is not None
        first = self._mentioned(execution)
        self._audit_times.urgent = execution.envelope.moves
        if whole:
            return Terms(first, self._stops_for(lambda: False))
        budget_s = max(BUDGET_S, BUDGET_PART * (time.monotonic() - execution.began))
        left_s = budget_s if rests and not execution.envelope.moves else None
        return Terms(first, self._stops_for(self.waits), budget_s, left_s)

    def _mentioned(self, execution: Execution) -> frozenset[str]:
        """Return the names that a cell mentions, when it matters; none when they cannot be told."""
        if not (execution.texts and self.state.has_heavy):
            return frozenset()
        try:
            found = analyse("\n".join(execution.texts), self._shell.user_ns)
        except Exception:
            log.exception("A cell could not be analysed")
            return frozenset()
        return frozenset() if found.anything else found.reads | found.binds | found.deletes

    def _stops_for(self, waits: Callable[[], bool]) -> Callable[[], bool]:
        before = self.interrupts.count
        return lambda: self.interrupts.count != before or waits()

    def _note_unaudited(self, execution: Execution, delta: Delta) -> None:
        """Remember what a capture left to be checked; what the cell mentions is checked as soon as may be."""
        self._unaudited = delta.unaudited
        self._unchecked = execution if delta.unaudited else None
        if delta.unaudited:
            first = self._mentioned(execution)
            mentioned = any(left.name in first or not left.cell for left in delta.unaudited)
            self._audit_times.urgent = self._audit_times.urgent or mentioned

    def _delta(self, envelope: Envelope, terms: Terms) -> Delta:
        with self._prompts.exposed():
            count = self._shell.execution_count - 1
            delta = self.state.capture(envelope.seq, envelope.fence, count, terms)
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
                while self._may_commit(execution) and self._committed < execution.envelope.seq:
                    left = deadline - time.monotonic()
                    if left <= 0 or execution.envelope.seq in self._refused or self.interrupts.take():
                        break
                    self._news.wait(min(left, WAIT_MAX_S))
        except KeyboardInterrupt:
            pass
        execution.durable = self._committed >= execution.envelope.seq
        if not execution.durable:
            why = execution.kept_back or self.link.trouble or f"no commit within {DURABLE_TIMEOUT_S:g} s"
            if self._unchecked is execution:
                why = "the check for what it changed was interrupted"
            self.tell(f"This cell's changes are not durable yet ({why.rstrip('.')}); they are tried again.")

    def _may_commit(self, execution: Execution) -> bool:
        return not execution.kept_back and self._unchecked is not execution

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

    def durability(self, row: Any) -> str:
        """Say of one row of the state's table whether what it stands for is safe."""
        if row.unaudited:
            return f"not checked since cell {row.cell}"
        return "yes" if row.seq <= max(self._logged, self._received) else "pending"

    def new_and_unchecked(self) -> list[str]:
        """Say what the table does not show: variables not captured yet, and what was taken over too old."""
        new = [readable(left.name) for left in self._unaudited if not left.cell]
        said = [f"not captured yet: {', '.join(new)}"] if new else []
        return [*said, *self.stale_variables]

    def tell(self, sentence: str) -> None:
        """Print one sentence on the current cell's stderr."""
        sys.stderr.write(f"replkernel: {sentence}\n")
        sys.stderr.flush()

    # -- between cells ------------------------------------------------------------------------------

    def audit_delay_s(self) -> float | None:
        """Return in how many seconds `audit` may go on with what captures left, None when that is nothing."""
        if self._unchecked is None or self._owed is not None:
            return None
        return self._audit_times.delay_s(time.monotonic())

    def audit(self) -> None:
        """Check what captures left, to the end unless somebody waits, and propose what is found."""
        execution = self._unchecked
        if execution is None or execution.envelope is None:
            return
        if self.link is not None and self.link.congested():
            self._audit_times.put_off(AFTER_FAULT_S, time.monotonic())
            return
        interrupts, began = self.interrupts.count, time.monotonic()
        terms = Terms(stop=self._stops_for(self.waits), audit=self._audits + 1)
        with self.interrupts.put_off():
            try:
                delta = self._delta(execution.envelope, terms)
            except BaseException as error:
                log.error("Execution %d was not audited", execution.envelope.seq, exc_info=error)
                self._audit_times.put_off(AFTER_FAULT_S, time.monotonic())
                known = isinstance(error, ReplkernelError)
                self._keep_back(execution, str(error) if known else f"{type(error).__name__}: {error}")
                return
            news = delta.components or delta.dropped or delta.unaudited != self._unaudited
            self._unaudited = delta.unaudited
            self._unchecked = execution if delta.unaudited else None
            if news and self.link is not None:
                self._audits += 1
                self.link.propose(delta)
        self._audit_times.took(time.monotonic() - began, time.monotonic())
        if self.interrupts.count != interrupts:
            self._audit_times.put_off(AFTER_INTERRUPT_S, time.monotonic())
        elif self._unchecked is not None:
            self._audit_times.put_off(AFTER_GIVING_WAY_S, time.monotonic())

    @property
    def holds_the_notebook(self) -> bool:
        """Tell whether this process ran the last cell: a standby's objects are copies of another's."""
        return self._foreign is None

    @property
    def stale(self) -> bool:
        """Tell whether `refresh` has something to do."""
        return self._stale or self._owed is not None

    def advance(self) -> None:
        """Go on, when nothing else is to be done, with what the last cell left behind."""
        if self.holds_the_notebook and not self.stale:
            try:
                self.restorer.advance()
            except (Exception, FetchRefused):
                log.exception("State that was left behind could not be rebuilt in idle time")

    def explain(self, content: Any) -> None:
        """Say what is true when a cell's error says that a variable which waits does not exist."""
        name = self.restorer.missed(content)
        if name:
            self.complete_state()
            self.tell(f"{name} was still being restored when the cell looked for it; run the cell again.")

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

    def _rebuild(self, *, everything: bool, wanted: AbstractSet[ComponentId] | None = None) -> None:
        if wanted is None or self._foreign is not None:
            self._stale = False
        with self._prompts.exposed(incoming=True):
            if wanted is None:
                report = self.state.rebuild(everything=everything, fetch=self.fetch)
            else:
                report = self.state.rebuild(everything=False, fetch=self.fetch, wanted=wanted)
        for failure in report.failed:
            self.lost[", ".join(failure.names)] = failure.reason
            log.warning("%s could not be rebuilt: %s", ", ".join(failure.names), failure.reason)
        newest = self._foreign
        if everything or (wanted is not None and newest is not None):
            self._settle_process()
        if newest is None:
            self._prompts.admit()
        else:
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
            self._unfaithful_told = self.unfaithful()
            self.link.tell(
                ReplicaApplied(
                    state.applied,
                    state.components,
                    state.state_bytes,
                    state.pending_bytes,
                    state.unproven,
                    self._unfaithful_told[:UNFAITHFUL_TOLD_MAX],
                )
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
        """Take a committed delta of another replica; the rest happens when the shell is idle.

        One that comes after this process went on without it means that the two have diverged.
        """
        if delta.mark <= self.state.mark:
            return
        if delta.seq <= self._ran:
            self._end(f"execution {self._ran} was run here without what execution {delta.seq} changed")
            return
        with self._news:
            self.state.receive(delta)
            self._note_pins(delta)
            self._foreign = delta
            self._received = delta.seq
            self._stale = True
            self._news.notify_all()

    def quiet(self) -> None:
        """Have the main thread rebuild what came, now that no more is coming."""
        if self._stale:
            self._wake()

    def delta_committed(self, seq: Seq, *, owing: bool = False) -> None:
        """Note that this process's own delta is durable, or logged but `owing` an audit."""
        with self._news:
            self._logged = Seq(max(self._logged, seq))
            if not owing:
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

    def applied(self) -> Mark:
        """Return the last execution, and which of its audits, whose delta this process holds."""
        return self.state.mark
