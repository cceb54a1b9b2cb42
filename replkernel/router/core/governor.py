"""What the scheduler and `%gpu` have a kernel do: leases taken away end their cells, questions are answered.

Pure. Law: a question, of a kernel process or a front end, is answered once, when it is known whether there is
a scheduler.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.leasing.notebook import ANSWER_TYPE, GpuAnswer, GpuQuestion
from replkernel.leasing.request import GpuRequest, told_as
from replkernel.leasing.wire import LeaseIdle, LeaseOver, MoveDenied, MoveOver, MoveReplica
from replkernel.protocol.agent_to_router import GpusUsed, LeaseFreed
from replkernel.records import HostName
from replkernel.router.core import answers, events, gpu_answers
from replkernel.router.core.events import ClientRequest, Effect, ReplicaMessage
from replkernel.router.core.leases import Fallen, Leases
from replkernel.router.core.parts import Parts
from replkernel.router.core.relocation import Relocation
from replkernel.router.core.shell import Shell
from replkernel.router.core.usage import Usage
from replkernel.router.core.wire import pack

QUESTIONS_MAX = 100
"""So many questions wait at most until it is known whether there is a scheduler."""


Asker: TypeAlias = ReplicaMessage | ClientRequest
"""Who asks: `%gpu` in a kernel process, or a front end on the control channel."""


class Governor:
    """One kernel's dealings with the scheduler, beside its cells'."""

    def __init__(self, parts: Parts, shell: Shell, relocation: Relocation, usage: Usage) -> None:
        self._parts = parts
        self._shell = shell
        self._relocation = relocation
        self._asked: list[tuple[Asker, GpuQuestion]] = []
        self._usage = usage
        self._told_idle = ""
        """The cell that was told last that it leaves its GPUs idle."""

    @property
    def _leases(self) -> Leases:
        return self._parts.leases

    # -- the scheduler --------------------------------------------------------------------------------

    def hear(self, event: events.AboutScheduler, now: float) -> list[Effect]:
        """Take what the line to the scheduler brings."""
        leases = self._leases
        match event:
            case events.SchedulerSaid(MoveReplica() as order):
                return self._relocation.wanted(order, now)
            case events.SchedulerSaid(MoveDenied(why=why)):
                return self._relocation.denied(why)
            case events.SchedulerSaid(MoveOver(host)):
                return self._relocation.unwanted(host, now)
            case events.SchedulerSaid(LeaseIdle() as idle):
                return self._idles(idle, now)
            case events.SchedulerSaid():
                if isinstance(event.message, LeaseOver) and leases.may_be_used(event.message.lease):
                    self._parts.notices.add(gpu_answers.overdue(event.message.why))
                effects, fallen = leases.hear(event.message, now)
                return effects if fallen is None else [*effects, *self._interrupt(fallen, now)]
            case events.SchedulerUp():
                leases.scheduler.hosts_are(self._parts.fleet.homes(), self._executor())
                return [*leases.came_up(now), *self._answer_all(now)]
            case events.SchedulerDown():
                log = events.Log(f"no scheduler for now: {event.why}")
                unheard = self._relocation.unheard(event.why)
                return [log, *leases.went_down(event.why), *unheard, *self._answer_all(now)]
            case events.SchedulerMissing():
                sought = leases.is_missing(gpu_answers.no_scheduler(event.why))
                return [*sought, *self._answer_all(now)]

    def told(self, said: LeaseFreed | GpusUsed, host: HostName) -> list[Effect]:
        """Take what an agent tells of processes' state on GPUs."""
        return self._freed(said) if isinstance(said, LeaseFreed) else self._used(said, host)

    def _freed(self, said: LeaseFreed) -> list[Effect]:
        """Take what became of the state on a lease's GPUs; one that has to stay there is told to the user."""
        if said.computes_on:
            return self._leases.computes_on(said.lease, said.why)
        if said.why and not self._leases.is_kept(said.lease) and not self._leases.computes(said.lease):
            self._parts.notices.add(gpu_answers.kept(said.why, self._leases.somebody_waits(said.lease)))
        return self._leases.freed(said)

    def _used(self, said: GpusUsed, host: HostName) -> list[Effect]:
        """Tell the user, in the cell that runs or with the next one, what is used and should not be."""
        running = self._shell.running
        effects = self._leases.used(said.replica, dict(said.gpus))
        for text in self._usage.heard(said, host):
            effects.append(events.Log(text, "warning"))
            if running is not None and running.replied_at is None and running.replica == said.replica:
                effects.append(answers.stderr(running.request, text))
            else:
                self._parts.notices.add(text)
        return effects

    def _interrupt(self, fallen: Fallen, now: float) -> list[Effect]:
        """End a cell that computes on GPUs which are not its own any more, and say why."""
        running = self._shell.running
        if running is None or running.request.header.msg_id != fallen.cell or running.replied_at is not None:
            return []
        text = gpu_answers.fallen(fallen.lease.gpus, fallen.lease.host, fallen.why)
        self._shell.fallen.falls(fallen.cell, text)
        said: list[Effect] = [
            answers.stderr(running.request, f"replkernel: {text}"),
            events.Log(text, "warning"),
        ]
        return [*said, *self._shell.interrupts.ask(running, None, now)]

    def _idles(self, idle: LeaseIdle, now: float) -> list[Effect]:
        """Tell a cell that it leaves its GPUs idle; interrupt it if its time is over, and it was told."""
        running, held = self._shell.running, self._leases.held_leases.by_id.get(idle.lease)
        if running is None or held is None or running.request.header.msg_id != held.cell:
            return []
        ends = idle.ends_in_s is not None and idle.ends_in_s <= 0.0 and self._told_idle == held.cell
        ends_in_s = idle.ends_in_s if ends or idle.ends_in_s else None
        self._told_idle = held.cell
        text = gpu_answers.idle(len(held.lease.gpus), idle.share, idle.for_s, ends_in_s)
        said: list[Effect] = [
            answers.stderr(running.request, f"replkernel: {text}"),
            events.Log(text, "warning"),
        ]
        return [*said, *(self._shell.interrupts.ask(running, None, now) if ends else ())]

    def advance(self, now: float) -> list[Effect]:
        """Keep the scheduler's picture of the kernel true, and its leases alive."""
        leases, fleet = self._leases, self._parts.fleet
        if fleet.asleep != leases.scheduler.rests:
            return leases.kernel_rests() if fleet.asleep else leases.scheduler.kernel_wakes()
        if not leases.scheduler.up:
            return []
        return [*leases.scheduler.hosts_are(fleet.homes(), self._executor()), *leases.advance(now)]

    def _executor(self) -> str:
        """Return the host whose replica ran the last cell."""
        executor = self._parts.placement.executor
        replica = self._parts.fleet.replicas.get(executor) if executor is not None else None
        return "" if replica is None or not self._parts.succession.last else replica.host

    # -- `%gpu` -----------------------------------------------------------------------------------------

    def asked(self, message: Asker, now: float) -> list[Effect]:
        """Take a question; it waits until it is known whether there is a scheduler."""
        try:
            question = msgspec.json.decode(message.content, type=GpuQuestion)
        except UNREADABLE as error:
            return [_answer(message, GpuAnswer(error=f"The router cannot read the question: {error}."))]
        if len(self._asked) >= QUESTIONS_MAX:
            return [_answer(message, GpuAnswer(error="Too many questions wait for the scheduler."))]
        self._asked.append((message, question))
        leases = self._leases
        effects = [] if leases.scheduler.up else leases.scheduler.open()
        known = leases.scheduler.up or bool(leases.scheduler.why_down)
        return [*effects, *(self._answer_all(now) if known else [])]

    def _answer_all(self, now: float) -> list[Effect]:
        asked, self._asked = self._asked, []
        return [effect for message, question in asked for effect in self._reply(message, question, now)]

    def _reply(self, message: Asker, question: GpuQuestion, now: float) -> list[Effect]:
        leases, running = self._leases, self._shell.running
        cell = "" if running is None else running.request.header.msg_id
        effects: list[Effect] = []
        match question.verb:
            case "lease" | "waive":
                return self._mid_cell(message, question, now)
            case "status":
                text = gpu_answers.status(leases, cell, now)
            case "release":
                text = gpu_answers.released(leases.held_leases.lingering(), leases.held_leases.of_cell(cell))
                effects = leases.release()
            case "migrate":
                if not leases.scheduler.up:
                    return [_answer(message, GpuAnswer(error=leases.scheduler.why_down))]
                text, effects = self._relocation.wish(HostName(question.host))
            case "off":
                text = gpu_answers.preferred(None, "")
                effects = [*leases.scheduler.prefer(None), *leases.release(), events.Remember(None)]
            case "default":
                if not leases.scheduler.governed and question.gpus:
                    return [_answer(message, GpuAnswer(error=leases.scheduler.why_down))]
                wanted = GpuRequest(
                    question.gpus,
                    question.vram_gb,
                    question.model,
                    question.cpu,
                    question.memory_gib,
                    question.part,
                    question.shared,
                    preemptible=question.preemptible,
                    expected_s=question.expected_s,
                )
                if isinstance(message, ClientRequest):  # A form has no field for it.
                    wanted = told_as(wanted, leases.scheduler.default)
                preferred = wanted if question.gpus else None
                text = gpu_answers.preferred(preferred, leases.scheduler.why_down)
                effects = [*leases.scheduler.prefer(preferred), events.Remember(preferred)]
        return [*effects, _answer(message, GpuAnswer(text))]

    def _mid_cell(self, message: Asker, question: GpuQuestion, now: float) -> list[Effect]:
        """Answer a cell that runs and has reached a GPU."""
        if isinstance(message, ClientRequest):
            return [_answer(message, GpuAnswer(error="Only a cell that runs can ask for that."))]
        answer, effects = self._shell.mid_cell.asked(self._shell.running, message, question, now)
        return [*effects, _answer(message, answer)]

    def check_invariants(self) -> None:
        """Assert the bound."""
        assert len(self._asked) <= QUESTIONS_MAX


def _answer(message: Asker, answer: GpuAnswer) -> Effect:
    if isinstance(message, ClientRequest):
        if not answer.error:
            return answers.reply(message, pack({"status": "ok", "text": answer.text}))
        fault = answers.Fault("GpuError", answer.error)
        return answers.reply(message, pack({"status": "error", **fault.content()}))
    content = msgspec.json.encode(answer)
    return events.AnswerReplica(message.replica, ANSWER_TYPE, message.frames[2], content)
