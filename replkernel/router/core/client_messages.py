"""What clients say: where each of their messages goes, and what the router answers by itself.

Pure. Law: each request goes one way, and what only looks at the kernel does not count as its use.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.protocol.progress import GPU_REQUEST as GPUS
from replkernel.protocol.progress import REQUEST as PROGRESS
from replkernel.protocol.progress import ProgressQuestion
from replkernel.records import ReplicaId
from replkernel.router.core import answers, hibernation
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.contents import CommInfoContent, read
from replkernel.router.core.control import PATIENT, Control
from replkernel.router.core.dormancy import Dormancy
from replkernel.router.core.ending import Ending
from replkernel.router.core.events import (
    Accepted,
    AskJournal,
    ClientRequest,
    Effect,
    Given,
    Publish,
    Subscribed,
    ToReplica,
)
from replkernel.router.core.governor import Governor
from replkernel.router.core.hibernation import Hibernation
from replkernel.router.core.parts import Parts
from replkernel.router.core.progress import Progress
from replkernel.router.core.queue import EXECUTE
from replkernel.router.core.relocation import Relocation
from replkernel.router.core.shell import Shell
from replkernel.router.core.wire import pack

JOURNAL_TYPES = frozenset({"replkernel_outputs_request", "replkernel_outputs_saved"})
"""The requests on control that the output journal answers."""

ANSWERED_HERE = frozenset({"kernel_info_request", "comm_info_request", "connect_request"})
"""What a page asks for when it connects; nobody has used the notebook by that."""

OWN_REQUESTS = "replkernel_"
"""Requests of our own front end begin so; they are no use of a kernel."""


class ClientMessages:
    """Who takes which message of a client. `ports` are those that the kernel's clients connect to."""

    def __init__(
        self,
        parts: Parts,
        shell: Shell,
        control: Control,
        ports: Mapping[str, int],
        *,
        hibernation: Hibernation,
        dormancy: Dormancy,
        relocation: Relocation,
        governor: Governor,
        progress: Progress,
        ending: Ending,
    ) -> None:
        self._parts = parts
        self._shell = shell
        self._control = control
        self._ports = ports
        self._hibernation = hibernation
        self._dormancy = dormancy
        self._relocation = relocation
        self._governor = governor
        self._progress = progress
        self._ending = ending

    def welcome(self, event: Subscribed) -> list[Effect]:
        """Greet a subscriber; one that comes in the middle of a cell is told that the kernel is busy."""
        content = pack({"subscription": event.topic.decode("utf-8", "replace")})
        effects: list[Effect] = [Publish("iopub_welcome", b"{}", content, topic=event.way or event.topic)]
        busy = self._shell.begun
        if busy is not None and event.way:
            effects.append(Publish("status", busy.header_frame, answers.BUSY, topic=event.way))
        return effects

    def handle(self, request: ClientRequest, now: float) -> list[Effect]:
        """Take a message that came on one of the kernel's channels."""
        if self._ending.begun:
            return []
        kind = request.header.msg_type
        if kind not in PATIENT and not kind.startswith(OWN_REQUESTS):
            self._hibernation.used(now)
            if kind not in ANSWERED_HERE:
                self._dormancy.used(now)
        if request.channel == "stdin":
            return self._from_stdin(request)
        if kind == "connect_request":
            return answers.whole(request, pack({"status": "ok", **self._ports}))
        if request.channel == "control":
            return self._from_control(request, now)
        if kind == "comm_info_request" and self._parts.fleet.asleep:
            comms = self._parts.comms.info(read(CommInfoContent, request.content).target_name)
            return answers.whole(request, pack({"status": "ok", "comms": comms}))
        target = self._parts.succession.designated()
        subshell = request.header.subshell_id
        if subshell is not None and target is not None and not self._is_stray(request, target):
            return self._to_subshell(request, subshell, target, now)
        if kind in COMM_TYPES and self._hibernation.holds and not request.repeated:
            return self._shell.hold(request)
        return self._shell.handle(request, now)

    def _is_stray(self, request: ClientRequest, target: ReplicaId) -> bool:
        """Tell whether the main shell takes a comm's message, though it names a subshell.

        JupyterLab has a subshell for comms, and goes on naming it when it has ended with its process. Who is
        to take the notebook over does so in the main shell, and rebuilds what a page asks for. While it is
        put to rest or about to move, all waits there, and what comes then waits behind it.
        """
        if request.header.msg_type not in COMM_TYPES or request.repeated:
            return False
        holder = self._parts.comms.holder(request.content)
        if holder is not None and holder in self._parts.fleet.ready():
            target = holder
        elif self._hibernation.holds or self._shell.comms_wait:
            return True
        lives = self._parts.subshells.lives_in(request.header.subshell_id or "", target)
        return not lives or self._parts.succession.takes_over(target)

    def _to_subshell(
        self, request: ClientRequest, subshell: str, target: ReplicaId, now: float
    ) -> list[Effect]:
        """Give a message to a subshell, which lives in the executor's process and has its own queue there."""
        if request.repeated:
            return []
        kind, again = request.header.msg_type, ""
        self._parts.subshells.was_given(subshell, kind)
        if kind in COMM_TYPES:
            again = request.header.msg_id
            holder = self._parts.comms.holder(request.content)
            target = holder if holder is not None and holder in self._parts.fleet.ready() else target
            self._parts.comms.saw(kind, request.content, target)
        if kind in COMM_TYPES or kind == EXECUTE:
            self._parts.succession.page_spoke(request.header.msg_id, target, now)
        self._parts.traffic.give(request, target)
        sent: list[Effect] = [ToReplica(target, "shell", [*request.identities, *request.frames], again)]
        if kind != EXECUTE:
            return sent
        process = self._parts.fleet.process_of(target)
        return [Accepted(request), Given(request.header.msg_id, target, process), *sent]

    def _from_control(self, request: ClientRequest, now: float) -> list[Effect]:
        kind = request.header.msg_type
        if kind in JOURNAL_TYPES:
            return [] if request.repeated else [AskJournal(request)]
        if kind in (PROGRESS, GPUS):
            return [] if request.repeated else self._from_page(request, now)
        if kind == "shutdown_request":
            return self._ending.begin(request, "a client asked for it", now)
        if kind == hibernation.REQUEST:
            return self._hibernation.want(request, "a client asked for it")
        if kind == hibernation.SAVE:
            behind = self._parts.succession.page_waits_until() is not None
            return self._hibernation.save(request, now, busy=self._shell.busy or behind)
        if kind == hibernation.RECOVER:
            return self._hibernation.recover(request, now)
        if kind == "interrupt_request":
            stopped = [] if request.stale else self._shell.interrupt(now, request)
            return [*stopped, *answers.whole(request, pack({"status": "ok"}))]
        return self._control.handle(request, now)

    def _from_page(self, request: ClientRequest, now: float) -> list[Effect]:
        """Answer what a page asks; no status goes with it, for the kernel does nothing."""
        if request.header.msg_type == GPUS:
            return self._governor.asked(request, now)
        try:
            question = msgspec.json.decode(request.content, type=ProgressQuestion)
        except UNREADABLE:
            question = ProgressQuestion()
        rest, move = self._hibernation.phase.value, self._relocation.standing()
        told = self._progress.tell(question.since, rest, move, now)
        told = msgspec.structs.replace(told, busy=self._shell.busy)
        return [answers.reply(request, msgspec.json.encode(told))]

    def _from_stdin(self, request: ClientRequest) -> list[Effect]:
        target = self._parts.asks_stdin or self._parts.succession.designated()
        if target is None or target not in self._parts.fleet.ready():
            return []
        return [ToReplica(target, "stdin", [*request.identities, *request.frames])]
