"""Messages of pages to comms: passed to who has the comm, or to who has the notebook, or takes it over.

Pure. Law: none overtakes another, nor a cell that is about to begin.
"""

from __future__ import annotations

from collections.abc import Sequence

from replkernel.protocol.envelope import Envelope
from replkernel.records import ReplicaId
from replkernel.router.core import answers
from replkernel.router.core.counts import Counts
from replkernel.router.core.events import ClientRequest, Effect, Log, PageGiven
from replkernel.router.core.leased_cells import LeasedCells
from replkernel.router.core.parts import Parts
from replkernel.router.core.questions import Questions
from replkernel.router.core.queue import EXECUTE, QUEUE_MAX, ShellQueue, Waiting
from replkernel.router.core.running import Execution


class CommMessages:
    """The comm messages of the main shell; `running` is the execution under way."""

    def __init__(
        self, parts: Parts, queue: ShellQueue, leased: LeasedCells, questions: Questions, counts: Counts
    ) -> None:
        self._parts = parts
        self._queue = queue
        self._leased = leased
        self._questions = questions
        self._counts = counts
        self._held: list[ClientRequest] = []
        """Those that came behind an execution which has not begun yet, or while nothing may pass."""

    @property
    def held(self) -> bool:
        """Tell whether any is held."""
        return bool(self._held)

    @property
    def room(self) -> int:
        """Return how many more may wait."""
        return QUEUE_MAX - max(len(self._held), len(self._queue))

    def take(self, request: ClientRequest, running: Execution | None, now: float) -> list[Effect]:
        """Pass a comm message on, once the execution before it has begun, and somebody has the notebook.

        None overtakes another: those in the queue are older than those that are held.
        """
        if self._held:
            return self.hold(request)
        target = self._target(request)
        if self._queue.holds_comms or target is None or self._takes_over(request, target):
            return self._queue.take_in(request, now)
        behind = self._begins_soon(running) and target != self._parts.comms.holder(request.content)
        if behind or self._parts.lanes.opening(target):
            return self.hold(request)
        return self._give(request, target, now)

    def any_waits(self, running: Execution | None) -> bool:
        """Tell whether a comm message waits, or a cell that it is to come behind."""
        return self._begins_soon(running) or self.held or self._queue.holds_comms

    def _begins_soon(self, running: Execution | None) -> bool:
        """Whether a cell is about to begin, perhaps elsewhere once pages have nothing more to say."""
        head = self._queue.head
        waits = head is not None and head.kind == EXECUTE and running is None
        return waits and not self._leased.awaits_lease(head)

    def _target(self, request: ClientRequest) -> ReplicaId | None:
        """Return who has the comm that a message is for, or the notebook."""
        holder = self._parts.comms.holder(request.content)
        return holder if holder in self._parts.fleet.ready() else self._parts.succession.designated()

    def _takes_over(self, request: ClientRequest, target: ReplicaId) -> bool:
        """Tell whether a comm message comes to a process that has to take the notebook over first."""
        succession, comms = self._parts.succession, self._parts.comms
        if target == comms.holder(request.content):
            return False
        asks = comms.asks(request.header.msg_type, request.content)
        return succession.orphaned or (not asks and succession.takes_over(target))

    def _give(
        self, request: ClientRequest, target: ReplicaId, now: float, envelope: Envelope | None = None
    ) -> list[Effect]:
        self._parts.succession.page_spoke(request.header.msg_id, target, now)
        return self._questions.forward(request, target, envelope)

    def hold(self, request: ClientRequest) -> list[Effect]:
        """Keep a comm message until it can pass."""
        if len(self._held) >= QUEUE_MAX:
            told = Log(f"a {request.header.msg_type} was dropped: {QUEUE_MAX} wait for a cell to begin")
            return [answers.busy(request), answers.idle(request), told]
        self._held.append(request)
        return []

    def take_held(self, running: Execution | None, now: float) -> list[Effect]:
        """Take those once more that were held."""
        held, self._held = self._held, []
        return [effect for request in held for effect in self.take(request, running, now)]

    def wait_again(self, ahead: Sequence[ClientRequest], behind: Sequence[ClientRequest], now: float) -> None:
        """Have those wait before all others that reached nobody: `ahead` of the queue, `behind` its head.

        There are no more of them than there is `room`. A comm that one opens is not open yet.
        """
        for request in (*ahead, *behind):
            if request.header.msg_type == "comm_open":
                self._parts.comms.not_opened(request.content)
        self._queue.put_back_comms(ahead, now)
        self._held = [*behind, *self._held]

    def hold_waiting(self) -> None:
        """Hold those of the queue behind a cell that begins: they need not wait for its end."""
        if self._queue.holds_comms:
            self._held = [*self._queue.take_comms(), *self._held]

    def pass_on(self, head: Waiting, now: float) -> list[Effect]:
        """Give a comm message whose turn has come to who has the notebook, or takes it over with that.

        The message is an execution of its own then: what it changes is captured as a cell's changes are.
        """
        request, succession = head.request, self._parts.succession
        target = self._target(request)
        if target is None:
            return []
        if not self._takes_over(request, target):
            self._queue.drop(head)
            return self._give(request, target, now)
        choice = succession.choose(now, held=self._parts.held())
        if choice.notice:
            self._parts.notices.add(choice.notice)
        if choice.replica is None:
            return [*choice.effects]
        self._queue.drop(head)
        envelope, kept = None, list[Effect]()
        if self._takes_over(request, choice.replica):
            envelope = succession.allot(
                now - head.arrived,
                anyway=True,
                counted=self._counts.at_least,
                gpus=self._parts.leases.visible(None),
                leases=self._parts.leases.scheduler.governed,
                answered=self._counts.answered_last,
            )
            process = self._parts.fleet.process_of(choice.replica)
            succession.pages.begins_in(choice.replica, process)
            kept.append(PageGiven(choice.replica, process, envelope.seq, envelope.fence))
        return [*choice.effects, *kept, *self._give(request, choice.replica, now, envelope)]

    def pass_all_on(self, now: float) -> list[Effect]:
        """Give the comm messages that wait before their turn, which may be hours away."""
        effects: list[Effect] = []
        while (item := self._queue.first_comm) is not None:
            effects += self.pass_on(item, now)
            if self._queue.first_comm is item:
                break
        return effects
