"""State that came in from other replicas, and its way into this process's namespace.

How components are rebuilt is the state's; what is rebuilt first, the restorer's.
Law: blobs that do not come stop the cell, never the rebuilding half-way; no cell meets a stale variable.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from replkernel.errors import QuorumLost, ReplkernelError
from replkernel.kernel.audits import sentences
from replkernel.kernel.execution import FetchRefused, ProcessState, State
from replkernel.kernel.interrupts import PutOffInterrupts
from replkernel.kernel.ipython_at_hand import ipython_at_hand
from replkernel.kernel.prompts import PromptsPart
from replkernel.kernel.reporter import Reporter
from replkernel.kernel.restorer import Restorer
from replkernel.kernel.withheld import gpus_wanted
from replkernel.records import BlobRef, ComponentId, Delta, Unaudited
from replkernel.state.python.class_registry import ROOT_PREFIX

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


QUESTION_BYTES_MAX = 64 * 2**20

FORGET_MISSING = "%replkernel forget-missing"
"""The cell with which a user gives up variables whose bytes no store has any more."""

log = logging.getLogger(__name__)


def forgets_missing(text: str) -> bool:
    """Tell whether a cell is FORGET_MISSING alone; comments do not matter."""
    verb = FORGET_MISSING.split()
    if verb[-1] not in text:
        return False
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return [line for line in lines if line] == [verb]


class Arrivals:
    """What one process received and has to rebuild; `take` is called on the link's thread."""

    def __init__(
        self,
        state: State,
        shell: InteractiveShell,
        prompts: PromptsPart,
        process: ProcessState,
        interrupts: PutOffInterrupts,
        reporter: Reporter,
        wake: Callable[[], None],
    ) -> None:
        self.lost: dict[str, str] = {}
        """The variables that could not be rebuilt in this process, and why."""
        self.newest: Delta | None = None
        """The newest delta of another replica, until this one runs a cell."""
        self.stale = False
        """Whether something came in that nobody has looked at."""
        self.missing: tuple[Unaudited, ...] = ()
        """What the log had not, or not as of the last cell, when this process went on."""
        self._missing_since = 0
        self.forget_missing = False
        self.restorer = Restorer(state, shell, self._rebuild_some, self._bring, wake)
        self._state = state
        self._shell = shell
        self._prompts = prompts
        self._process = process
        self._interrupts = interrupts
        self._reporter = reporter

    def take(self, delta: Delta) -> None:
        """Take a committed delta of another replica in, to be rebuilt."""
        self._state.receive(delta)
        self.newest = delta
        self.stale = True

    def taken_over(self) -> None:
        """Note that a cell runs here now; tell which variables are missing."""
        if self.newest is None:
            return
        self._forget_stored()
        self.missing, self._missing_since = self._state.inherited
        self._reporter.notices.extend(sentences(self.missing, self._missing_since))
        self.newest = None

    def still_missing(self) -> list[str]:
        """Say which variables are missing still: no cell has bound them since."""
        namespace = self._shell.user_ns
        return sentences((left for left in self.missing if left.name not in namespace), self._missing_since)

    def _forget_stored(self) -> None:
        """Have `%store` read its files anew: one that another replica wrote this second seems known."""
        database = vars(self._shell).get("_db") or vars(self._shell).get("db")
        if database is not None:
            database.uncache()

    def go_to(self, way: Delta) -> None:
        """Rebuild what differs at another point of the history; nothing changes unless its bytes are here."""
        with self._interrupts.put_off():
            self._fetch([blob for blob in way.blobs() if self._state.ahead.missing(blob)])
            self._state.go_back(way)
            with self._prompts.unders_followed():
                self._rebuild(everything=True)
            if any(cid.startswith(ROOT_PREFIX) for cid in way.dropped):
                gc.collect()  # Until then a class that is gone is among the children of those that stay.
            self._state.went_back(way)

    # -- before a cell or a question ----------------------------------------------------------------

    def materialise(
        self, texts: Sequence[str] | None = None, in_order: Callable[[], bool] = lambda: True
    ) -> None:
        """Rebuild the state that was received, fetching what is not on this host.

        All of it, or with `texts` what cells of these texts reach, when the rest is large and may come later,
        `in_order`. SIGINT breaks the waiting for blobs, never the rebuilding itself.
        """
        if self.newest is None and not self._state.left_behind:
            return
        with self._interrupts.put_off():
            self.restorer.take_net_down()
            received = self.newest is not None
            if texts is None or not in_order() or not self.restorer.prepare(texts, received=received):
                self._rebuild(everything=True)

    def gpus_wanted(self, texts: Sequence[str], in_order: Callable[[], bool]) -> int:
        """Return on how many GPUs a cell needs a lease, for what it reaches and waits for one; 0 for none."""
        if not self._state.withheld():
            return 0
        mentions = self.restorer.mentions(texts) if texts and in_order() else None
        return gpus_wanted(self._state, self._shell, mentions)

    def fill_in(self, text: str = "") -> None:
        """Rebuild before a question what waits for an import: nobody must hear "not found" of a variable.

        When more than QUESTION_BYTES_MAX waits, what the `text` names is rebuilt: all of it in the process
        that ran the last cell, else no more than that.
        """
        try:
            if 0 < self._state.pending_bytes <= QUESTION_BYTES_MAX:
                self.materialise()
            elif self._state.pending_bytes:
                with self._interrupts.put_off():
                    self.restorer.fetch_named(text, None if self.newest is None else QUESTION_BYTES_MAX)
        except (Exception, FetchRefused):
            log.exception("State that a question needs could not be rebuilt")

    def complete(self) -> None:
        """Rebuild all that was left behind, from any thread: what comes next may look at any variable.

        What cannot be rebuilt gets its tombstone, as before a cell: it says why, and its name is defined.
        """
        if not self._state.left_behind:
            return
        try:
            self._rebuild_some({record.cid for record in self._state.behind()})
            withheld = {record.cid for record in self._state.withheld()}
            if any(record.cid not in withheld for record in self._state.behind()):
                with self._interrupts.put_off():
                    self._rebuild(everything=True)
        except FetchRefused as refused:
            self._reporter.notices.append(str(refused.error))
        except Exception:
            log.exception("State that was left behind could not be rebuilt")

    def complete_here(self) -> None:
        """Rebuild all that came in, and all that was left behind."""
        if self.newest is not None:
            try:
                self.materialise()
            except (Exception, FetchRefused):
                log.exception("State that a page's message may look at could not be rebuilt")
        self.complete()

    # -- between cells ------------------------------------------------------------------------------

    def advance(self) -> None:
        """Go on with what the last cell left behind."""
        try:
            self.restorer.advance()
        except (Exception, FetchRefused):
            log.exception("State that was left behind could not be rebuilt in idle time")

    def refresh(self) -> None:
        """Rebuild what came in, is small and at hand."""
        if self.stale:
            try:
                self._rebuild(everything=False)
            except Exception:
                log.exception("State that was received could not be rebuilt in idle time")

    # -- rebuilding ---------------------------------------------------------------------------------

    def _rebuild_some(self, wanted: AbstractSet[ComponentId]) -> None:
        """Rebuild these components and what no cell can be without; leave the rest behind."""
        with self._interrupts.put_off():
            self._rebuild(everything=False, wanted=wanted)

    def _rebuild(self, *, everything: bool, wanted: AbstractSet[ComponentId] | None = None) -> None:
        if wanted is None or self.newest is not None:
            self.stale = False
        with ipython_at_hand(lambda: self._shell):
            with self._prompts.exposed(incoming=True):
                if wanted is None:
                    report = self._state.rebuild(everything=everything, fetch=self._fetch)
                else:
                    report = self._state.rebuild(everything=False, fetch=self._fetch, wanted=wanted)
            newest = self.newest
            if everything or (wanted is not None and newest is not None):
                self._settle_process()
        for failure in report.failed:
            self.lost[", ".join(failure.names)] = failure.reason
            log.warning("%s could not be rebuilt: %s", ", ".join(failure.names), failure.reason)
        if newest is None:
            self._prompts.admit()
        else:
            self._shell.execution_count = newest.execution_count + 1
            self._prompts.settle(newest.execution_count + 1)
        self._reporter.applied()

    def _settle_process(self) -> None:
        """Do what loading left to do; what this host cannot follow is told with the next cell."""
        absent = [f"The module {name} cannot be imported on this host." for name in self._process.settle()]
        for sentence in (*absent, *self._process.troubles()):
            self._reporter.notice_once(sentence)

    def _fetch(self, blobs: Sequence[BlobRef]) -> None:
        """Have the agent bring `blobs` to this host."""
        link = self._reporter.link
        if link is None:
            raise FetchRefused(QuorumLost("This process has no host agent to fetch state from other hosts."))
        try:
            with self._interrupts.delivered():
                link.fetch_blobs(blobs)
        except ReplkernelError as error:
            if self.forget_missing:
                raise
            error.add_note(f"Or run `{FORGET_MISSING}` alone in a cell to go on without these variables.")
            raise FetchRefused(error) from error

    def _bring(self, blobs: Sequence[BlobRef]) -> None:
        """Bring blobs to this host, from any thread but the main one."""
        wanted = [blob for blob in blobs if self._state.ahead.missing(blob)]
        link = self._reporter.link
        if wanted and link is not None:
            link.fetch_blobs(wanted)
