"""Captures after cells, and the audits that complete them in idle time: what a replica proposes.

Law: what could not be captured or proposed is told and tried again; an interrupt never breaks a capture, and
a capture never makes anybody wait longer than its terms say.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from replkernel.errors import ReplkernelError
from replkernel.kernel.audits import ROOM_LOOK_S, AuditBook, readable
from replkernel.kernel.bindings import Bindings
from replkernel.kernel.cell_times import CellTimes
from replkernel.kernel.duty import HOLD_SAVED_S, HOLD_SHARE, Allowance
from replkernel.kernel.execution import Execution, ProcessState, State
from replkernel.kernel.interrupts import PutOffInterrupts
from replkernel.kernel.lost_cells import spelt
from replkernel.kernel.news import DURABLE_TIMEOUT_S, TROUBLED_TIMEOUT_S, News
from replkernel.kernel.pace import Pace
from replkernel.kernel.prompts import PromptsPart
from replkernel.kernel.reporter import Reporter
from replkernel.kernel.time_travel import brings_values_only
from replkernel.protocol.envelope import Envelope
from replkernel.records import Delta, Note, Seq
from replkernel.state import hints
from replkernel.state.analysis.cell import analyse
from replkernel.state.capture.budget import EVERYTHING, Terms
from replkernel.state.capture.survey_order import HEAVY_S

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


BUDGET_S = 0.05
BUDGET_PART = 0.05
"""A capture goes on for so long after its cell, or for this part of the cell's time, whoever waits."""
FIRST_S = 2.0
"""A first version of what is new is captured for so long, whoever waits: the next cell may run for hours."""
QUICK_S = 0.003
"""What takes no longer is never left to an audit for being costly."""

CELLS_MAX = 1024
LOOKS_AGAIN_MAX = 3
"""Of no more executions than this it is remembered which cells they were."""

log = logging.getLogger(__name__)


class Captures:
    """The captures of one process; `waits` tells whether somebody waits for the main thread."""

    def __init__(
        self,
        state: State,
        shell: InteractiveShell,
        prompts: PromptsPart,
        process: ProcessState,
        interrupts: PutOffInterrupts,
        reporter: Reporter,
        bindings: Bindings,
        news: News,
        waits: Callable[[], bool],
        next_cell: Callable[[], str],
    ) -> None:
        self.audits = AuditBook()
        self.note_of: Callable[[Execution], Note | None] = lambda execution: None
        """Returns what an execution says of itself for the history."""
        self.pace = Pace()
        """When what is large is captured."""
        self.owed: Execution | None = None
        """The last execution, while the agent's congestion keeps it from being captured."""
        self.in_trouble = False
        """Whether the user has been told that the last cells' changes are here alone."""
        self.kept_since = 0
        """The first cell, as its user counts, of which something could not be captured since; else 0."""
        self.kept_why = ""
        self._owed_since = 0
        """The first cell of which captures have left something for later; else 0."""
        self._holds = Allowance(HOLD_SHARE, HOLD_SAVED_S, HOLD_SAVED_S)
        """For how long captures may hold up whoever waits."""
        self._crowded = False
        """Whether the next cell was there already when the last capture ended."""
        self._hurried = False
        """Whether that is known to be a quick one, so that what takes long is better checked after it."""
        self._first = False
        """Whether the last capture had the time that a first version gets, which is the pace's to ration."""
        self._cells: dict[Seq, int] = {}
        """The cells of executions here that are not durable yet, as their user counts."""
        self._durable: tuple[int, float] | None = None
        """The last cell that is durable, and since when; None: none of this process's is."""
        self.settles = False
        """Whether somebody waits for all to be durable, also what the user wants captured seldom."""
        self.tied: AbstractSet[str] = frozenset()
        """What ties the notebook to this process beside its variables, as of the last capture."""
        self._ended_meanwhile = False
        """Whether a thread or the like has ended while the last capture was at it."""
        self._looks_left = 0
        """How many audits may follow for that."""
        self._in_vain = False
        """Whether the last reply that waited for its commit did so in vain."""
        self._state = state
        self._shell = shell
        self._prompts = prompts
        self._process = process
        self._interrupts = interrupts
        self._reporter = reporter
        self._bindings = bindings
        self._news = news
        self._waits = waits
        self._next_cell = next_cell
        self._cell_times = CellTimes()

    # -- after a cell -------------------------------------------------------------------------------

    def capture(self, execution: Execution, envelope: Envelope, *, whole: bool, rests: bool) -> None:
        """Capture what `execution` changed and propose it; SIGINT is put off meanwhile."""
        if self._reporter.congested:
            self.owed = execution
            self._keep_back(execution, "the host agent has not taken the last cells' changes")
            return
        self.owed = None
        began = time.perf_counter()
        if execution.texts:
            self._cell_times.took(execution.texts[0], time.monotonic() - execution.began)
        with self._interrupts.put_off(after_cell=not whole):
            try:
                terms = partial(self._terms, execution, envelope, whole=whole, rests=rests)
                delta = self._delta(envelope, terms, self.note_of(execution))
            except BaseException as error:
                log.error("Execution %d was not captured", envelope.seq, exc_info=error)
                self._keep_back(execution, _said_of(error))
                return
            self._note_costs(delta, time.perf_counter() - began)
            self.in_trouble = False
            execution.held = bool(self._state.unstored.news)
            mentions = self._mentioned(execution) if delta.owing else frozenset()
            self.audits.captured(execution, delta, mentions)
            self._looks_left = LOOKS_AGAIN_MAX
            self._look_again()
            took, now = time.perf_counter() - began, time.monotonic()
            self.pace.captured(took, now, whole=not delta.owing)  # Its commit may be heard of at once.
            self._reporter.propose(delta, took)
            self._reporter.captured()
            self.pace.cell_ended(time.monotonic())

    def _terms(self, execution: Execution, envelope: Envelope, *, whole: bool, rests: bool) -> Terms:
        """Return how far the capture right after a cell may go, and note how urgent the rest is."""
        first, times, now = self._mentioned(execution), self.audits.times, time.monotonic()
        times.moves = envelope.moves or self.settles
        kept = frozenset() if whole or self.settles else self.pace.early(hints.kept, now)
        self._first = False
        if whole or self.settles or self.pace.presses(now):
            return Terms(first, self._stops_for(_nobody_waits), kept=kept)
        budget_s = max(BUDGET_S, BUDGET_PART * (now - execution.began))
        self._first = self.pace.allows(now) and self._state.has_new
        grace_s = max(budget_s, FIRST_S) if self._first else budget_s
        if envelope.moves or not rests:
            return Terms(first, self._stops_for(self._waits), grace_s, kept=kept)
        waits = self._waits()
        crowded = self._crowded or waits
        patience_s = max(QUICK_S, self._holds.left_s(now))
        hurried = self._is_quick_next() if waits else self._hurried
        costly_s = (QUICK_S if hurried else patience_s) if crowded else None

        def gives_way() -> bool:
            return self._waits() and (self._is_quick_next() or time.monotonic() >= now + patience_s)

        if not times.spare(now, crowded=crowded):
            costly_s = QUICK_S
        return Terms(
            first,
            self._stops_for(gives_way),
            grace_s,
            budget_s if hurried else max(budget_s, patience_s),
            costly_s=costly_s,
            sparing=not self.pace.allows(now),
            kept=kept,
        )

    def _note_costs(self, delta: Delta, took_s: float) -> None:
        """Note what the capture after a cell took beyond what every cell's takes."""
        now, costly_s = time.monotonic(), max(0.0, took_s - QUICK_S)
        times = self.audits.times
        times.captured(max(0.0, took_s - HEAVY_S), now)
        self._crowded = self._waits()
        self._hurried = self._crowded and self._is_quick_next()
        if not self._crowded:
            return
        if not self._first:
            self._holds.spend(costly_s, now)
        if delta.owing and took_s > BUDGET_S:
            times.gave_way()

    def _is_quick_next(self) -> bool:
        """Tell whether the cell that waits is known to be quick: then what takes long may wait for it."""
        return self._cell_times.is_quick(self._next_cell())

    def _mentioned(self, execution: Execution) -> frozenset[str]:
        """Return the names that a cell mentions, when it matters; none when they cannot be told."""
        if not (execution.texts and self._state.has_heavy):
            return frozenset()
        try:
            found = analyse("\n".join(execution.texts), self._shell.user_ns)
        except Exception:
            log.exception("A cell could not be analysed")
            return frozenset()
        return frozenset() if found.anything else found.reads | found.binds | found.deletes

    def _stops_for(self, waits: Callable[[], bool]) -> Callable[[], bool]:
        before = self._interrupts.count
        return lambda: self._interrupts.count != before or waits()

    def _delta(self, envelope: Envelope, terms: Callable[[], Terms], note: Note | None = None) -> Delta:
        """Capture on the terms that are right once it is known which names are the shell's own."""
        before = self._process.running(envelope.seq)
        with self._prompts.exposed():
            count = self._shell.execution_count - 1
            delta = self._state.capture(envelope.seq, envelope.fence, count, terms())
        if note is not None:
            delta = replace(delta, note=note)
        found = self._process.pins(envelope.seq)
        still = {pin.name for pin in found}
        ended = [pin for pin in before if pin.name not in still]
        self._ended_meanwhile, self.tied = bool(ended), still.union(pin.name for pin in ended)
        pins = (*delta.pins, *found, *ended)
        if pins:
            delta = replace(delta, pins=self._bindings.since(pins, count))
        self._bindings.note(delta)
        self._cells[envelope.seq] = count
        while len(self._cells) > CELLS_MAX:
            del self._cells[next(iter(self._cells))]
        self._owed_since = (self._owed_since or count) if delta.owing else 0
        told = (name for record in delta.components for name in record.names)
        self.pace.kept(hints.kept, told, self._state.kept_back, time.monotonic())
        if not delta.owing:
            self.kept_since, self.settles = 0, False
        said, self._state.unstored.told = self._state.unstored.told, []
        for sentence in said:
            self._reporter.complain(sentence)
        return delta

    def _look_again(self) -> None:
        """Have an audit follow where a thread or the like ended during a capture, which may lack its end."""
        if self._ended_meanwhile and self._looks_left:
            self._looks_left -= 1
            self.reopen()

    def look_at_pins(self) -> None:
        """Have an audit follow once all has ended that tied the notebook to its process beside variables."""
        if self.tied.isdisjoint(pin.name for pin in self._process.pins(self._state.mark.seq)):
            self.reopen()

    def durable_to(self, seq: Seq) -> None:
        """Note on the link's thread that an execution is durable, and with it all before."""
        now = time.monotonic()
        self.pace.stored(now)
        count = self._cells.get(seq)
        if count is not None:
            self._durable = (count, now)
        self._cells = {later: cell for later, cell in list(self._cells.items()) if later > seq}

    def cells(self) -> int:
        """Return the number of the last cell that this process knows of, as its user counts."""
        with self._prompts.exposed():
            return int(self._shell.execution_count) - 1

    def behind(self) -> str:
        """Say how far back a crash would take the notebook, empty when it is nothing or not known."""
        if self._durable is None or max(self._cells.values(), default=0) <= self._durable[0]:
            return ""
        cell, since = self._durable
        return f"last durable: cell {cell}, {spelt(time.monotonic() - since)} ago"

    def later(self) -> str:
        """Say what has changed and is captured later because the user wants it seldom; else nothing."""
        due_s = self.pace.kept_for_s(time.monotonic())
        if not due_s:
            return ""
        names = ", ".join(readable(root) for root in sorted(self._state.kept_back))
        return f"kept for later: {names}, due in {spelt(due_s)}; `%replkernel sync` makes all durable now"

    def _keep_back(self, execution: Execution, why: str) -> None:
        """Tell the user once, with the next cell, that a cell's changes stay in this process for now."""
        execution.kept_back = self.kept_why = why.rstrip(".")
        if not self.kept_since:
            self.kept_since = self._owed_since or self.cells()
        if self.in_trouble:
            return
        self.in_trouble = True
        self._reporter.complain(
            f"What the last cell changed is on this replica alone for now ({execution.kept_back}); "
            "it is tried again after each cell."
        )

    def await_commit(self, execution: Execution) -> None:
        """Wait until the execution's delta is durable; what does not arrive is told on stderr."""
        link, envelope = self._reporter.link, execution.envelope
        if envelope is None or link is None:
            return
        try:
            with self._interrupts.delivered():
                patience_s = TROUBLED_TIMEOUT_S if self._in_vain and link.trouble else DURABLE_TIMEOUT_S
                self._news.await_commit(
                    envelope.seq, lambda: self._may_commit(execution), self._interrupts.take, patience_s
                )
        except KeyboardInterrupt:
            pass
        committed = self._news.committed >= envelope.seq
        execution.durable = committed and not execution.held
        self._in_vain = not committed and not self._may_be_logged_only(envelope.seq)
        if self._in_vain:
            why = execution.kept_back or link.trouble or f"no commit within {DURABLE_TIMEOUT_S:g} s"
            if self.audits.execution is execution and not self.audits.awaits_room:
                why = "the check for what it changed was interrupted"
            self._reporter.tell(
                f"This cell's changes are not durable yet ({why.rstrip('.')}); they are tried again."
            )

    def _may_commit(self, execution: Execution) -> bool:
        assert execution.envelope is not None
        owes = self.audits.execution is execution and not self.audits.awaits_room
        return not execution.kept_back and not owes and not self._may_be_logged_only(execution.envelope.seq)

    def _may_be_logged_only(self, seq: Seq) -> bool:
        """Tell whether an execution is in the log, and durable only once the store has room for others."""
        return self.audits.awaits_room and self._news.in_log(seq)

    def of_travel(self, envelope: Envelope, way: Delta) -> Delta:
        """Return one delta with what leads to a point, which is rebuilt here, and what that came to."""
        with self._interrupts.put_off():
            settled = self.audits.execution is None and brings_values_only(way)
            found = self._delta(envelope, lambda: EVERYTHING._replace(audit=way.audit, settled=settled))
        fresh = {record.cid for record in found.components}
        kept = tuple(record for record in way.components if record.cid not in fresh)
        dropped = tuple(
            cid for cid in {**dict.fromkeys(way.dropped), **dict.fromkeys(found.dropped)} if cid not in fresh
        )
        order = found.order if found.order is not None else way.order
        whole = replace(
            found, components=(*kept, *found.components), dropped=dropped, order=order, note=way.note
        )
        self._bindings.note(whole)
        return whole

    # -- between cells ------------------------------------------------------------------------------

    def audit_delay_s(self) -> float | None:
        """Return in how many seconds `audit` may go on with what captures left, None when that is nothing."""
        if self.audits.execution is None or self.owed is not None:
            return None
        if self.audits.awaits_room and not self._state.unstored.fits():
            return ROOM_LOOK_S
        now = time.monotonic()
        times = self.audits.times
        if self.settles:
            return times.delay_s(now)
        return max(times.delay_s(now), self.pace.kept_for_s(now) if times.moves else self.pace.pause_s(now))

    def reopen(self) -> None:
        """Have what the notebook's code has changed since the last cell be captured with it in idle time."""
        self.audits.reopen(self._state.mark, time.monotonic())

    def settle(self) -> None:
        """Have what is owed be captured as soon as nobody waits, also what the user wants captured seldom."""
        if self.audits.execution is not None:
            self.settles = self.audits.times.moves = True

    def settle_kept(self) -> bool:
        """Capture at once what is held back because the user wants it seldom; tell whether there was any."""
        held = self.pace.kept_for_s(time.monotonic()) > 0
        if held:
            self.audit(whole=True)
        return held

    def finish(self) -> None:
        """Capture and check what captures left, whole; only an interrupt ends that early."""
        owed = self.owed
        if owed is not None and owed.envelope is not None:
            self.capture(owed, owed.envelope, whole=True, rests=True)
        self.audit(whole=True)

    def audit(self, *, whole: bool = False) -> None:
        """Check what captures left, to the end unless somebody waits, and propose what is found.

        A `whole` one ends early for an interrupt only.
        """
        book, execution = self.audits, self.audits.execution
        if execution is None or execution.envelope is None:
            return
        if self._reporter.congested:
            book.failed()
            return
        interrupts, began = self._interrupts.count, time.monotonic()
        waits = _nobody_waits if whole else self._waits
        first = book.first if book.times.urgent and not whole else frozenset()
        budget_s = 0.0 if first else None
        kept = frozenset() if whole or self.settles else self.pace.early(hints.kept, began)
        terms = Terms(first, self._stops_for(waits), budget_s=budget_s, audit=book.count + 1, kept=kept)
        with self._interrupts.put_off(after_cell=True):
            try:
                delta = self._delta(execution.envelope, lambda: terms)
            except BaseException as error:
                log.error("Execution %d was not audited", execution.envelope.seq, exc_info=error)
                book.failed()
                self._keep_back(execution, _said_of(error))
                return
            now = time.monotonic()
            self.pace.captured(now - began, now, whole=not delta.owing)
            news = book.audited(delta)
            self._look_again()
            if news and self._reporter.link is not None:
                book.count += 1
                self._reporter.propose(delta)
        book.took(began, interrupted=self._interrupts.count != interrupts, waits=waits())


def _nobody_waits() -> bool:
    return False


def _said_of(error: BaseException) -> str:
    return str(error) if isinstance(error, ReplkernelError) else f"{type(error).__name__}: {error}"
