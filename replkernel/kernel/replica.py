"""What makes a kernel process a replica: state in before a cell, state out after it, standby work in between.

Owns the order of these steps, and nothing of Jupyter's protocol. All of it runs on the main thread except
the `LinkListener` methods, which only hand over.
Law: a failure here never breaks the user's cell, and never passes for success.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from replkernel.errors import ReplkernelError
from replkernel.kernel.arrivals import Arrivals
from replkernel.kernel.bindings import Bindings
from replkernel.kernel.captures import Captures
from replkernel.kernel.departure import Departure
from replkernel.kernel.execution import Execution, FetchRefused, ProcessState, State
from replkernel.kernel.interrupts import PutOffInterrupts
from replkernel.kernel.kill_order import EXECUTOR, STANDBY
from replkernel.kernel.link import AgentLink
from replkernel.kernel.lost_cells import Losses, lost_cells
from replkernel.kernel.news import DURABLE_TIMEOUT_S, News
from replkernel.kernel.prompts import PromptsPart
from replkernel.kernel.reporter import Reporter
from replkernel.kernel.time_travel import Travel
from replkernel.protocol.agent_to_process import BegunAfresh, StandStill
from replkernel.protocol.envelope import Envelope
from replkernel.records import Delta, Mark, ReplicaId, Seq
from replkernel.state import hints

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


QUESTION_WAIT_S = 2.0
"""So long a question waits for the state that its answer is to see; then it is answered from what is here."""

SAID_S = 1.0
"""A check that took longer is told of before the commit is awaited."""

log = logging.getLogger(__name__)


class Ending(Protocol):
    """Ends the process; `patient`: its cell was interrupted, and may say so first."""

    def __call__(self, reason: str, *, patient: bool = False) -> None: ...


class Replica:
    """One replica's part in executions.

    `wake` is called on the link's thread when deltas came in and no more are coming; `end` when the
    process is to stop.
    """

    def __init__(
        self,
        state: State,
        shell: InteractiveShell,
        prompts: PromptsPart,
        process: ProcessState,
        wake: Callable[[], None],
        end: Ending,
    ) -> None:
        self.state = state
        self.interrupts = interrupts = PutOffInterrupts()
        self.waits: Callable[[], bool] = lambda: False
        """Tells whether somebody waits for the main thread."""
        self.next_cell: Callable[[], str] = lambda: ""
        """Returns the text of the cell that waits, where it is known."""
        self.free_gpus: Callable[[str], None] = lambda lease: None
        self.pause_cell: Callable[[StandStill], None] = lambda order: None
        """Has the state moved off the GPUs of a lease; called on the link's thread."""
        self.settle_soon: Callable[[], None] = lambda: None
        """Has `settle` called on the main thread; called on the link's thread."""
        self.take_place: Callable[[int], None] = lambda added: None
        """Takes this process's place in the order in which the system kills for memory."""
        self._news = News()
        self._bindings = Bindings(state)
        self._reporter = Reporter(state, self._bindings)
        self._arrivals = Arrivals(state, shell, prompts, process, interrupts, self._reporter, wake)
        self._captures = Captures(
            state,
            shell,
            prompts,
            process,
            interrupts,
            self._reporter,
            self._bindings,
            self._news,
            self._somebody_waits,
            self._next_cell,
        )
        self._departure = Departure(
            state, self._captures, self._bindings, self._news, self._reporter, interrupts
        )
        self.restorer = self._arrivals.restorer
        self.paced = self._captures.pace.share_is
        self.tell = self._reporter.tell
        self.held_pins = self._bindings.pins
        self.unfaithful = self._bindings.unfaithful
        self.fill_in = self._arrivals.fill_in
        self.complete_state = self._arrivals.complete
        self.await_commit = self._captures.await_commit
        self.audit_delay_s = self._captures.audit_delay_s
        self.audit = self._captures.audit
        self.look_at_pins = self._captures.look_at_pins
        self.settle, self.settle_kept = self._captures.settle, self._captures.settle_kept
        self.travel = Travel()
        """Where this cell takes the notebook, and what it says of itself for the history."""
        self._captures.note_of = self.travel.note
        self._losses = Losses()
        self.syncs = False
        """Whether the cell that runs has asked that all be durable before its reply."""
        self._wake = wake
        self._end = end
        self._ran = Seq(0)

    # -- what others ask ----------------------------------------------------------------------------

    @property
    def link(self) -> AgentLink | None:
        """Return the line to the agent, once there is one."""
        return self._reporter.link

    @link.setter
    def link(self, link: AgentLink) -> None:
        self._reporter.link = link

    @property
    def notices(self) -> list[str]:
        """Return what the user is to be told with the next cell."""
        return self._reporter.notices

    @property
    def lost(self) -> dict[str, str]:
        """Return the variables that could not be rebuilt in this process, and why."""
        return self._arrivals.lost

    @property
    def holds_the_notebook(self) -> bool:
        """Tell whether this process ran the last cell: a standby's objects are copies of another's."""
        return self._arrivals.newest is None

    @property
    def ran(self) -> Seq:
        """Return the last execution that has begun here."""
        return self._ran

    @property
    def stale(self) -> bool:
        """Tell whether `refresh` has something to do."""
        return self._arrivals.stale or self._captures.owed is not None

    @property
    def captured(self) -> bool:
        """Tell whether nothing is left to be captured of what cells changed here."""
        captures = self._captures
        return captures.owed is None and not captures.kept_since and not list(captures.audits.left)

    def catch_up(self, look: Envelope | None) -> None:
        """Wait before a question, for a moment, for what the log held when it was asked."""
        if look is None or self._is_here(look):
            return
        self._news.await_here(lambda: self._is_here(look), QUESTION_WAIT_S)
        if self.stale:
            self.refresh()

    def before_page(self, look: Envelope | None) -> None:
        """Have all variables be here before a page's message reaches the notebook's code."""
        self.catch_up(look)
        self._arrivals.complete_here()

    def is_bound(self) -> bool:
        """Tell whether something beside its variables ties the notebook to this process."""
        return self.holds_the_notebook and bool(self._captures.tied)

    def after_page(self) -> None:
        """Have what the notebook's code did then be captured: with the last cell, or else with the next."""
        if self.holds_the_notebook:
            self._captures.reopen()

    def page_saved(self) -> Mark | None:
        """Return with which audit all is proposed that pages have changed; None while it is not."""
        audits = self._captures.audits
        settled = audits.last is not None and audits.execution is None
        return self._reporter.proposed if self.holds_the_notebook and self.captured and settled else None

    def names_left_behind(self, prefix: str) -> list[str]:
        """Return the variables that wait and begin with `prefix`."""
        return sorted(name for name in self.state.waiting_names() if name.startswith(prefix))

    def durability(self, row: Any) -> str:
        """Say of one row of the state's table whether what it stands for is safe."""
        if row.held:
            return f"no room for it since cell {row.cell}"
        if row.unaudited:
            every = max((hints.kept[name] for name in row.names if name in hints.kept), default=0.0)
            kept = f"as of cell {row.cell}, kept every {hints.every_in_words(every)}"
            return kept if every else f"not checked since cell {row.cell}"
        return "yes" if self._news.is_durable(row.seq) else "pending"

    def new_and_unchecked(self) -> list[str]:
        """Say what the table does not show: how far back a crash would go, and for which variables."""
        new, unstored = self._captures.audits.new(self.state.unstored.held), self.unstored()
        behind = ["" if unstored else self._captures.behind(), self._captures.later()]
        new_here = [f"not captured yet: {new}"] if new else []
        return [*filter(None, behind), *new_here, *unstored]

    def lost_lately(self) -> list[str]:
        """Say which cells were lost a while ago, and which variables are missing since."""
        return [*self._losses.said(time.monotonic()), *self._arrivals.still_missing()]

    # -- before a cell ------------------------------------------------------------------------------

    def begin(
        self,
        envelope: Envelope | None,
        *,
        forget_missing: bool = False,
        texts: Sequence[str] | None = None,
        wishes: bool = False,
    ) -> Execution:
        """Bring the namespace to where `envelope` needs it and claim the execution.

        `texts` are the cell and the expressions that it comes with: what they cannot reach is left behind
        when it is large. Without them everything is brought here.
        What goes wrong, an interrupt included, is in the execution's `trouble`: it must not run then.
        With `forget_missing`, variables whose bytes cannot be had are given up instead. One that `wishes` and
        reaches what lies on GPUs, without a lease, is not begun: it wants one.
        """
        execution = Execution(envelope)
        execution.texts = texts or ()
        self.syncs = False
        self.travel.begin()
        if envelope is None:
            return execution
        try:
            self._check_interrupted()
            begun = self._go_on_afresh(envelope)
            if begun is None:
                self._news.await_state(envelope, lambda: self._is_here(envelope))
            self._arrivals.forget_missing = forget_missing
            self._arrivals.materialise(None if forget_missing else texts, self._all_is_told)
            self._check_interrupted()
            if wishes:
                execution.wants_gpus = self._arrivals.gpus_wanted(execution.texts, self._all_is_told)
            if execution.wants_gpus:
                execution.trouble = ReplkernelError("The cell has no lease on GPUs.")
                return execution
            execution.declined = self._bindings.declined(envelope)
            if execution.declined:
                self._reporter.captured()
                execution.trouble = ReplkernelError("Another replica runs the cell.")
                return execution
            self._news.check_refused(envelope)
            if begun is None:
                self._reporter.claim(envelope)
        except FetchRefused as refused:
            execution.trouble = refused.error
        except (Exception, KeyboardInterrupt) as error:
            execution.trouble = error
            if not isinstance(error, (ReplkernelError, KeyboardInterrupt)):
                log.error("Execution %d cannot begin", envelope.seq, exc_info=error)
        else:
            self._ran = envelope.seq
            self.take_place(EXECUTOR)
            self._captures.audits.begin(taken_over=not self.holds_the_notebook)
            self._captures.pace.cell_begins(time.monotonic())
            self._losses.cell_begins(execution.texts)
            self._tell_lost(envelope, begun)
            self._arrivals.taken_over()
            execution.counted = 0 if begun is None else begun.reached
            execution.began = time.monotonic()
        return execution

    def _tell_lost(self, envelope: Envelope, begun: BegunAfresh | None) -> None:
        """Tell which cells a lost process takes along, be it that this one goes on after cells of its own."""
        if begun is None and envelope.afresh is not None and envelope.afresh.unlogged:
            mine = self._captures.cells()
            if envelope.afresh.answered > mine:
                begun = BegunAfresh(envelope.seq, mine, ReplicaId(""))
        lost = None if begun is None else lost_cells(begun, envelope.afresh)
        if lost is not None:
            self._losses.happened(lost, time.monotonic())
            self.notices.append(lost.notice())

    def _go_on_afresh(self, envelope: Envelope) -> BegunAfresh | None:
        """Have the log say from where this process goes on for a lost one, before user code starts.

        What that one's last cells changed is dropped unless the log has all of it. None where this process
        goes on after its own cells, or after another's that is not lost.
        """
        if envelope.afresh is None or (self._ran and self._ran >= envelope.needs):
            return None
        self._reporter.claim(envelope, afresh=True)
        return self._news.await_afresh(envelope)

    def what_keeps(self) -> str:
        """Have all that cells changed be durable; say what keeps this process from going, or nothing."""
        return self._departure.what_keeps(self._ran, holds=self.holds_the_notebook)

    def _somebody_waits(self) -> bool:
        return self.waits()

    def _next_cell(self) -> str:
        return self.next_cell()

    def _check_interrupted(self) -> None:
        if self.interrupts.take():
            raise KeyboardInterrupt

    def _is_here(self, envelope: Envelope) -> bool:
        needs = Mark(envelope.needs, envelope.needs_audit)
        return self._ran >= envelope.needs or self.state.mark >= needs

    def _all_is_told(self) -> bool:
        """Tell whether the table of components says all that a cell may reach."""
        captures = self._captures
        return captures.owed is None and not captures.in_trouble and not self._bindings.hold_here()

    def kept_back(self) -> str:
        """Say since which cell nothing is durable because it could not be captured, and why; else nothing."""
        captures = self._captures
        if not captures.kept_since:
            return ""
        return f"cells since [{captures.kept_since}] are not durable: {captures.kept_why}"

    def unstored(self) -> list[str]:
        """Say which variables are here alone because the store has no room for them."""
        held, behind = self.state.unstored.variables(), self._captures.behind()
        durable = f"; {behind}" if behind else ""
        return [f"`{name}` is not durable: {why}{durable}" for name, why in held.items()]

    # -- after a cell -------------------------------------------------------------------------------

    def capture(self, execution: Execution, *, whole: bool = False, rests: bool = True) -> None:
        """Capture what `execution` changed and propose it; SIGINT is put off meanwhile.

        Once it has had its budget, it gives way to whoever waits, and what takes long and the cell does not
        mention is left to an audit: unless it is to be `whole`, which only an interrupt ends, or this
        process never `rests` (a GUI's loop has the main thread between cells).
        """
        envelope = execution.envelope
        self.restorer.take_net_down()
        if envelope is None or execution.trouble is not None or execution.captured:
            return
        execution.captured, execution.kept_back = True, ""
        self._captures.capture(execution, envelope, whole=whole, rests=rests)

    def sync(self, execution: Execution) -> None:
        """Have all that cells changed be checked and committed before the reply; say what came of it."""
        if execution.envelope is None or execution.trouble is not None:
            return
        state, show, began = self.state, self._reporter.show, time.monotonic()
        if state.has_heavy:
            show("Checking all variables, however long that takes …")
        self.capture(execution, whole=True)
        took_s = time.monotonic() - began
        if took_s > SAID_S:
            show(f"Checked in {took_s:.1f} s; waiting for the commit …")
        self.await_commit(execution)
        for sentence in self.new_and_unchecked():
            show(sentence)
        if execution.durable:
            show(f"Durable up to this cell: {state.components} components, {state.state_bytes:,} bytes.")

    def go_to(self, execution: Execution) -> None:
        """Take the notebook to the point of the history that the cell has asked for; say what came of it."""
        if execution.envelope is None or execution.trouble is not None:
            return
        self.capture(execution, whole=True)
        self.await_commit(execution)
        try:
            self._reporter.show(self._gone_to(execution, execution.envelope))
        except (ReplkernelError, FetchRefused) as fault:
            why = fault.error if isinstance(fault, FetchRefused) else fault
            self.travel.stayed(why)
            self.tell(f"Nothing was undone: {why}")

    def _gone_to(self, execution: Execution, envelope: Envelope) -> str:
        link, travel, mark = self.link, self.travel, self.state.mark
        if link is None or not execution.durable:
            raise ReplkernelError("what cells have changed is not durable yet; run the cell again.")
        timeline = link.history().timeline
        to = travel.target(timeline)
        answer = link.history(to)
        if answer.way is None:
            raise ReplkernelError(answer.why)
        travel.check(answer.way, self.held_pins())
        way = travel.delta(answer.way, to, Mark(mark.seq, mark.audit + 1), envelope.fence, self.state.replica)
        way = replace(way, execution_count=self._captures.cells())
        self._arrivals.go_to(way)
        self._reporter.propose(self._captures.of_travel(envelope, way))
        if not self.await_log(way.mark, DURABLE_TIMEOUT_S):
            self.tell("This step in the history is not durable yet; it is tried again.")
        travel.went(to)
        return travel.said(timeline.point(to), way, self.held_pins())

    def await_log(self, mark: Mark, patience_s: float) -> bool:
        """Wait until what was proposed up to `mark` is in the log, or patience ends; tell whether it is."""
        link = self.link
        if link is None:
            return False
        self._news.await_here(lambda: not link.awaits(mark), patience_s)
        return not link.awaits(mark)

    # -- between cells ------------------------------------------------------------------------------

    def advance(self) -> None:
        """Go on, when nothing else is to be done, with what the last cell left behind."""
        if self.holds_the_notebook and not self.stale:
            self._arrivals.advance()

    def explain(self, content: Mapping[str, Any]) -> None:
        """Say what is true when a cell's error says that a variable which waits does not exist."""
        name = self.restorer.missed(content)
        if not name:
            return
        if any(name in record.names for record in self.state.withheld()):
            self.tell(
                f"{name} lies on a GPU and this cell has no lease: run it with `%%gpu 1` in its first line."
            )
        else:
            self.complete_state()
            self.tell(f"{name} was still being restored when the cell looked for it; run the cell again.")

    def refresh(self) -> None:
        """Do what waited for an idle shell: rebuild what is small and at hand, capture what is owed."""
        owed = self._captures.owed
        if owed is not None and not self._reporter.congested:
            owed.captured = False
            self.capture(owed)
        self._arrivals.refresh()

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
        self.take_place(STANDBY)
        self._bindings.note(delta)
        self._news.arrived(delta, self._arrivals.take)

    def quiet(self) -> None:
        """Have the main thread rebuild what came, now that no more is coming."""
        if self._arrivals.stale:
            self._wake()

    def delta_committed(self, seq: Seq, *, owing: bool = False) -> None:
        """Note that this process's own delta is durable, or logged but `owing` an audit."""
        self._news.delta_committed(seq, owing=owing)
        if not owing:
            self._captures.durable_to(seq)
        elif self._captures.audits.awaits_room:
            self._captures.pace.stored(time.monotonic())
        if self._captures.owed is not None:
            self._wake()

    def begun_afresh(self, begun: BegunAfresh) -> None:
        """Note from where an execution goes on for a lost process."""
        self._news.begun_afresh(begun)

    def execution_refused(self, seq: Seq, why: str) -> None:
        """Note that an execution lost; a process that already ran it has diverged and must be replaced."""
        self._news.execution_refused(seq, why)
        if self._news.committed < seq <= self._ran:
            self._end(f"execution {seq} was run here, but it lost: {why}")

    def gpus_wanted(self, lease: str) -> None:
        """Learn that somebody waits for the GPUs on which this process's state may lie."""
        self.free_gpus(lease)

    def pause_wanted(self, order: StandStill) -> None:
        """Learn that the cell that runs is to stand still for a shorter one."""
        self.pause_cell(order)

    def settle_wanted(self) -> None:
        """Learn that somebody waits until all that cells changed here is durable."""
        self.settle_soon()

    def stop(self, reason: str, *, patient: bool = False) -> None:
        """End the process."""
        self._end(reason, patient=patient)

    def applied(self) -> Mark:
        """Return the last execution, and which of its audits, whose delta this process holds."""
        return self.state.mark
