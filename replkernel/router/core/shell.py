"""The main shell: executions one at a time, everything else in the order in which it came.

Pure. Law: an execution is sent to exactly one replica and answered exactly once, by that replica or, when it
cannot be run or its process dies, by the router; what needs no executor never waits for one that is busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from replkernel.errors import ExecutorLost
from replkernel.protocol.envelope import envelope_frame
from replkernel.records import ReplicaId
from replkernel.router.core import answers
from replkernel.router.core.answers import Fault
from replkernel.router.core.cell_end import CellEnds
from replkernel.router.core.comm_messages import CommMessages
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.contents import (
    ExecuteOptions,
    ExecuteOutcome,
    InterruptOptions,
    ReplyMetadata,
    read,
)
from replkernel.router.core.doubts import said_of
from replkernel.router.core.events import (
    Accepted,
    Answered,
    ClientRequest,
    Effect,
    Given,
    Log,
    PassToClient,
    PassToIopub,
    Publish,
    ReplicaMessage,
    Resumed,
    ToReplica,
    Undelivered,
    Waited,
)
from replkernel.router.core.fallen_cell import FallenCell
from replkernel.router.core.interrupts import Interrupts
from replkernel.router.core.leased_cells import LeasedCells
from replkernel.router.core.mid_cell import MidCell
from replkernel.router.core.parts import Parts
from replkernel.router.core.questions import Questions
from replkernel.router.core.queue import EXECUTE, ShellQueue, Waiting
from replkernel.router.core.resumed_cells import ResumedCells
from replkernel.router.core.running import Execution
from replkernel.router.core.sent_back import SentBack
from replkernel.router.core.silence import Silence
from replkernel.router.core.traffic import IDLE, ends_handling
from replkernel.router.core.wire import made_before

IDLE_WAIT_S = 1.0
"""How long the next cell waits for the idle status of a cell that has replied."""
UNSEEN_END = "its process ended while the kernel had no router"


class Shell:
    """The queue of the main shell and the execution under way."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._queue = ShellQueue()
        self._leased = LeasedCells(parts)
        self.mid_cell = MidCell(parts, self._leased)
        self._ends = CellEnds(parts, self._leased, self._queue)
        self._questions = Questions(parts, self._queue)
        self._comms = CommMessages(parts, self._queue, self._leased, self._questions, self._ends.counts)
        self._sent_back = SentBack(parts, self._queue)
        self._resumed = ResumedCells(parts, self._leased, self._ends)
        self._silence = Silence(parts.fleet, parts.traffic)
        self.interrupts = Interrupts(parts.fleet)
        self._handing_over: dict[ReplicaId, str] = {}
        """Of each replica the process that has said that it ends for another one: it begins nothing."""
        self.running: Execution | None = None
        self.fallen = FallenCell()

    @property
    def busy(self) -> bool:
        """Tell whether a cell runs or waits."""
        return len(self._queue) > 0 or (self.running is not None and self.running.replied_at is None)

    @property
    def begun(self) -> ClientRequest | None:
        """Return the execution that clients know to keep the kernel busy: it runs, or waits for GPUs."""
        if self.running is not None:
            return self.running.request if self.running.replied_at is None else None
        head = self._queue.head
        shown = head is not None and self._parts.traffic.was_begun(head.request.header.msg_id)
        return head.request if head is not None and shown else None

    def runs_on(self, replica: ReplicaId) -> bool:
        """Tell whether a cell runs on a replica."""
        running = self.running
        return running is not None and running.replica == replica and running.replied_at is None

    @property
    def waits(self) -> bool:
        """Tell whether any message waits."""
        return len(self._queue) > 0 or self._comms.held

    @property
    def comms_wait(self) -> bool:
        """Tell whether a comm message waits, or a cell that it is to come behind."""
        return self._comms.any_waits(self.running)

    def hold(self, request: ClientRequest) -> list[Effect]:
        """Keep a comm message until it can pass."""
        return self._comms.hold(request)

    def counted(self, execution_count: int) -> None:
        """Take note of the count that a kernel which was brought back goes on from."""
        self._ends.counted(execution_count)

    def handle(self, request: ClientRequest, now: float) -> list[Effect]:
        """Take a message of the main shell."""
        kind = request.header.msg_type
        if kind == EXECUTE:
            return self._take_execution(request, now)
        if request.repeated:
            return [Log(f"a repeated {kind} was dropped")]
        if kind in COMM_TYPES:
            return self._comms.take(request, self.running, now)
        if self.busy:
            target = None
        elif kind == "kernel_info_request":
            return answers.whole(request, self._parts.kernel_info())
        else:
            target = self._parts.succession.designated()
        if target is None:
            return self._queue.take_in(request, now)
        return self._questions.forward(request, target)

    def _take_execution(self, request: ClientRequest, now: float) -> list[Effect]:
        header = request.header
        known = self._parts.record.find(header)
        if known is not None:
            return answers.whole(request, known.content, known.metadata)
        running = None if self.running is None else self.running.request.header
        same = running is not None and (running.session, running.msg_id) == (header.session, header.msg_id)
        if same or self._queue.holds_execution(header):
            return [Log(f"execution {header.msg_id} is already under way")]
        refused = self._queue.take_in(request, now)
        return refused or [Accepted(request)]

    def give_again(self, owed: Sequence[ClientRequest], now: float) -> None:
        """Have the comm messages wait again that a lost replica's process was too dead for, in their order.

        `owed`: all that it has left unanswered, oldest first; its cell may be at the head of the queue again.
        """
        head, ahead, behind = self._queue.head, list[ClientRequest](), list[ClientRequest]()
        cell = next((at for at, request in enumerate(owed) if head and request is head.request), len(owed))
        unreached = [
            (at, request)
            for at, request in enumerate(owed)
            if request.header.msg_type in COMM_TYPES
            and self._parts.traffic.is_unreached(request.header.msg_id)
        ]
        for at, request in unreached[: max(0, self._comms.room)]:
            self._parts.traffic.declined(request.header.msg_id)
            (ahead if at < cell else behind).append(request)
        self._comms.wait_again(ahead, behind, now)

    def ask_again(self, request: ClientRequest, now: float) -> list[Effect]:
        """Have somebody else answer a question that a lost replica left, or the first who comes back."""
        standby = self._questions.standby(self.running)
        if standby is not None:
            return self._questions.forward(request, standby)
        self._parts.traffic.declined(request.header.msg_id)
        return self._queue.take_in(request, now)

    # -- moving on ----------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Effect]:
        """Send whatever can be sent, in order; answer what can never be."""
        self._let_go(now)
        effects = self._comms.take_held(self.running, now) if self._comms.held else []
        if self.running is not None and self.running.lost_at is not None:
            effects += self._look_for_process(self.running, now)
        silent_at = self._silence.tells_at(self.running)
        if self.running is not None and silent_at is not None and now >= silent_at:
            effects += self._silence.tell(self.running)
        ignored_at = self.interrupts.tells_at(self.running)
        if self.running is not None and ignored_at is not None and now >= ignored_at:
            effects += self.interrupts.tell(self.running, now)
        effects += self.mid_cell.waits(self.running)
        effects += self._questions.announce(self.running, now)
        if not self._queue:
            return effects
        effects += self._questions.answer_overdue(self.running, now)
        fault = self._parts.fleet.unavailable(now)
        if fault is not None and self.running is None:
            return effects + self._parts.fleet.agents.search(now) + self._ends.fail_queue(fault)
        head = self._queue.head
        while head is not None and self.running is None and not self.interrupts.holds(now):
            step = self._start(head, now) if head.kind == EXECUTE else self._pass_on(head, now)
            effects += step
            if self._queue.head is head:
                break
            head = self._queue.head
        if self._queue.holds_comms and self._leased.awaits_lease(head) and self.running is None:
            effects += self._comms.pass_all_on(now)
        return effects

    def resume(self, told: Resumed, now: float) -> list[Effect]:
        """Go on with an execution of the router before this one, whose reply is still to come."""
        execution, effects = self._resumed.under_way(told, now)
        self.running = self.running if execution is None else execution
        return effects

    def resume_answered(self, told: Answered, now: float) -> list[Effect]:
        """Know an execution that the router before this one saw answered, and what it may have changed."""
        return self._resumed.answered(told, now)

    def waited(self, told: Waited, now: float) -> list[Effect]:
        """Let an execution wait on of which clients of the router before this one had seen something."""
        if told.line:
            self._leased.waited(told.request)
        else:
            self._parts.traffic.began_here(told.request.header.msg_id)
        replica, process = told.ends
        if process:
            self._handing_over[ReplicaId(replica)] = process
        return self.handle(told.request, now)

    def _look_for_process(self, running: Execution, now: float) -> list[Effect]:
        """See whether the process of a resumed execution is still there, or another has its place."""
        process = self._parts.fleet.process_of(running.replica)
        if process == running.process:
            running.lost_at = None
            return []
        if not process and running.lost_at is not None and now < running.lost_at:
            return []
        return self.lost(running.replica, UNSEEN_END, math.inf)

    def _let_go(self, now: float) -> None:
        """Let go of an execution that has replied and gone idle (or has had its time to)."""
        running = self.running
        if running is None or running.replied_at is None:
            return
        idle = self._parts.traffic.seen(running.request.header.msg_id) & IDLE
        if idle or now >= running.replied_at + IDLE_WAIT_S:
            self.running = None

    def _start(self, head: Waiting, now: float) -> list[Effect]:
        """Send an execution to the replica that is chosen for it, if one can be chosen by now."""
        turn, leases = self._leased.turn(head, now), self._parts.leases
        if not turn.goes:
            return [*turn.effects, *([] if turn.fault is None else self._ends.refuse(head, turn.fault))]
        lease, request = turn.lease, head.request
        choice = self._parts.succession.choose(
            now, held=self._parts.held(), declined=head.declined, host=None if lease is None else lease.host
        )
        if choice.notice:
            self._parts.notices.add(choice.notice)
        if choice.replica is None:
            astray = self._leased.astray(request, head.asks) if choice.astray and head.asks else []
            return [*choice.effects, *astray]
        self._queue.drop(head)
        self._comms.hold_waiting()
        envelope = self._parts.succession.allot(
            now - head.arrived,
            anyway=head.declined,
            counted=self._ends.counts.at_least,
            gpus=leases.visible(lease),
            stays=None if lease is None else self._stays(head, choice.replica),
            leases=leases.scheduler.governed,
            vram_gb=leases.vram_limit(request.header.msg_id),
            part=0.0 if lease is None else lease.part,
            interrupts=self.interrupts.next_is_free(),
            answered=self._ends.counts.answered_last,
            price=(0.0, "") if lease is None else (lease.price_hour, lease.currency),
        )
        options = read(ExecuteOptions, request.content)
        process = self._parts.fleet.process_of(choice.replica)
        self._parts.succession.pages.begins_in(choice.replica, process)
        self.running = Execution(
            request, options, choice.replica, envelope, now, process=process, lease=lease
        )
        self.running.asks, self.running.renewed = head.asks, head.renewed
        self.running.seen_before = self._parts.traffic.seen(request.header.msg_id)
        shown: list[Effect] = []
        if lease is not None:
            limited = leases.begins(request.header.msg_id, choice.replica)
            shown = [*limited, *self._leased.begins(request)]
        self._parts.traffic.give(request, choice.replica)
        frames = [envelope_frame(envelope), *request.identities, *request.frames]
        way = self._parts.lanes.for_execution(choice.replica, request.header.msg_id)
        return [
            *choice.effects,
            *shown,
            Given(request.header.msg_id, choice.replica, process, envelope.seq, envelope.fence, lease),
            Log(f"execution {envelope.seq} ({request.header.msg_id}) goes to {choice.replica}"),
            ToReplica(choice.replica, way, frames, request.header.msg_id),
        ]

    def _stays(self, head: Waiting, replica: ReplicaId) -> str:
        """Say why a replica's process must not end for a cell's sake; nothing when it may."""
        if replica in head.renewed:
            return "one has taken over for this cell already (CUDA was started as this one began)"
        doubts = self._parts.placement.doubts
        bound = [pin for pin in doubts.binding(self._parts.fleet.ready()) if pin.replica == replica]
        return self._parts.ties() or said_of(bound)

    def _pass_on(self, head: Waiting, now: float) -> list[Effect]:
        """Have a message whose turn has come answered, if anybody can."""
        if head.kind == "kernel_info_request":
            self._queue.drop(head)
            return answers.whole(head.request, self._parts.kernel_info())
        if head.kind in COMM_TYPES:
            return self._comms.pass_on(head, now)
        target = self._parts.succession.designated()
        if target is None:
            return []
        self._queue.drop(head)
        return self._questions.forward(head.request, target)

    # -- what replicas say --------------------------------------------------------------------------

    def replied(self, message: ReplicaMessage, now: float) -> list[Effect]:
        """Pass a reply on; when it ends the running execution, record it and abort what it must."""
        frames = [*message.prefix, *message.frames]
        effects: list[Effect] = [PassToClient("shell", frames, message.msg_type, message.parent_id)]
        if message.msg_type != "execute_reply":
            return effects
        running = self.running
        told = read(ReplyMetadata, message.frames[4]).replkernel
        if told.renews:
            self._handing_over[message.replica] = self._parts.fleet.process_of(message.replica)
            self._parts.fleet.leaves(message.replica, now)
        if running is None or message.parent_id != running.request.header.msg_id:
            return [Log(f"{message.parent_id} was sent back before")] if told.sent_back else effects
        if told.sent_back and told.seq not in (0, running.envelope.seq):
            # Said to the router before this one, which wrote it down and died.
            self._parts.traffic.reopen(running.request)
            return [Log(f"{message.parent_id} was sent back before, as execution {told.seq}")]
        if told.declined and not running.envelope.anyway:
            self.running = None
            return self._sent_back.declined(running, told.declined)
        if told.wants_gpus and running.lease is None:
            self.running = None
            return self._sent_back.needs_gpus(running, told.wants_gpus)
        if told.renews:
            self.running = None
            return self._sent_back.renewed(running, now)
        content = self.fallen.renamed(message.parent_id, message.content)
        if content is not None:
            effects[0] = answers.reply(running.request, content, message.frames[4])
        running.replied_at = now
        if told.leaves:
            self._parts.fleet.leaves(running.replica, now)
        if running.lease is not None:
            busy_s = now - max(running.started_at, running.leased_at)
            cell = running.request.header.msg_id
            effects += self._parts.leases.over(cell, busy_s, now, gpu_bytes=told.gpu_bytes)
        else:
            effects += self.mid_cell.over(running)
        outcome = read(ExecuteOutcome, message.content)
        self._ends.counted(outcome.execution_count)
        self._parts.record.add(running.request.header, content or message.content, message.frames[4])
        if not told.ran:
            self._parts.succession.pages.not_begun()
        else:
            self._parts.succession.completed_by(running.envelope.seq, now)
            self._ends.counts.answered(running.options, outcome.execution_count)
        if outcome.status == "error":
            effects += self._ends.abort_queue(running.options)
        return effects

    def passed(self, message: ReplicaMessage) -> Effect:
        """Return what clients see of a message: as it came, unless it tells of an interrupt of ours."""
        running = self.running
        if message.msg_type == "error" and running is not None:
            content = self.fallen.renamed(message.parent_id, message.content)
            if content is not None and message.parent_id == running.request.header.msg_id:
                return Publish("error", running.request.header_frame, content)
        return PassToIopub([*message.prefix, *message.frames], message.msg_type, message.parent_id)

    def published(self, message: ReplicaMessage) -> list[Effect]:
        """Add what belongs next to a published message: pending notices, and that a cell still runs."""
        running, begun = self.running, self.begun
        if begun is not None and message.parent_id != begun.header.msg_id and ends_handling(message):
            return self._questions.runs_on(begun)
        if message.msg_type != "execute_input" or running is None:
            return []
        if message.parent_id != running.request.header.msg_id:
            return []
        shown = read(ExecuteOutcome, message.content)
        self._ends.counted(shown.execution_count)
        return [answers.stderr(running.request, text) for text in self._parts.notices.take()]

    def undelivered(self, told: Undelivered) -> list[Effect]:
        """Take note that a message was sent to a dead process; of an execution for the next router as well.

        Another one gets it once the agent, which may be away, has told of the end.
        """
        self._parts.traffic.not_reached(told.msg_id, told.replica)
        running = self.running
        if running is None or (running.replica, running.request.header.msg_id) != (told.replica, told.msg_id):
            return []
        running.undelivered = True
        seen = self._parts.traffic.seen(running.request.header.msg_id)
        return [] if seen != running.seen_before else [self._sent_back.taken_back(running)]

    def lost(self, replica: ReplicaId, why: str, dead_since: float, kept: int = 0) -> list[Effect]:
        """End the execution that a lost replica was running; the kernel goes on without it.

        One of which the log has the delta is over: only its reply never came. One of which its keeper
        has it (`kept`) may be, or give way to the next execution.
        One that was sent to a process that was dead by then has not begun: another replica gets it.
        """
        if self._parts.placement.executor == replica:
            self._ends.counts.lost()
        handing_over = self._handing_over.pop(replica, None)
        running = self.running
        if running is None or running.replica != replica:
            return []
        self.running = None
        reached = not running.undelivered and running.started_at <= dead_since
        reached = reached and handing_over != running.process
        msg_id = running.request.header.msg_id
        if not reached and self._parts.traffic.seen(msg_id) == running.seen_before:
            return self._sent_back.not_reached(running)
        seen = self._parts.traffic.retire(msg_id)
        if running.replied_at is not None:
            return [] if seen & IDLE else [answers.idle(running.request)]
        given_back = self._parts.leases.over(msg_id, None, dead_since, lost=True)
        effect = self._parts.succession.left_of(running.envelope.seq, kept)
        fault = Fault("ExecutorLost", str(ExecutorLost(why, effect)))
        ended = self._ends.end(running.request, running.options, fault, seen)
        return [*given_back, *ended, *self._ends.abort_queue(running.options)]

    def interrupt(self, now: float, request: ClientRequest | None = None) -> list[Effect]:
        """Cancel the execution that waits to be started, with those behind it; else interrupt what runs.

        The channels of a client may overtake each other: a `request` that it made before it sent the cell is
        not meant for that, nor is one that names another execution.
        """
        first = next(iter(self._queue.executions), None)
        meant = first.request if self.running is None and first is not None else self.begun
        if request is not None and meant is not None and made_before(request, meant):
            return []
        target = "" if request is None else read(InterruptOptions, request.content).msg_id
        if target and (meant is None or meant.header.msg_id != target):
            return []
        if self.running is not None or first is None:
            return self.interrupts.ask(self.running, self._parts.succession.designated(), now)
        self._queue.drop(first)
        options = read(ExecuteOptions, first.request.content)
        fault = Fault("KeyboardInterrupt", "interrupted before the cell was started")
        seen = self._parts.traffic.seen(first.request.header.msg_id)
        return self._ends.end(first.request, options, fault, seen) + self._ends.abort_queue(options)

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        running, waits = self.running, bool(self._queue)
        if running is None and not waits:
            return None
        times = [self.interrupts.deadline(running, waits=waits)]
        if running is not None:
            if running.replied_at is not None:
                times.append(running.replied_at + IDLE_WAIT_S)
            times += [running.lost_at, self._silence.tells_at(running)]
            times.append(self._questions.announces_at(running))
        if waits:
            times += self._wait_ends()
        return min([time for time in times if time is not None], default=None)

    def _wait_ends(self) -> list[float | None]:
        """Return when what waits in the queue waits no longer."""
        times: list[float | None] = []
        if self.running is None:
            head = self._queue.head
            times += [self._parts.fleet.gives_up_at(), self._leased.deadline(head)]
            if self._queue.holds_comms or not self._leased.awaits_lease(head):
                times.append(self._parts.succession.deadline())
        times += [
            self._questions.overtakes_at(item, self.running)
            for item in self._queue.questions
            if not item.stuck
        ]
        return times

    def check_invariants(self) -> None:
        """Assert the queue's laws, and that a waiting execution has not been answered yet."""
        self._queue.check_invariants()
        for item in self._queue.executions:
            assert self._parts.record.find(item.request.header) is None
