"""Messages that are no executions: passed on in their turn; overdue questions are answered by a standby.

Pure. Law: a question is never answered by two, nor waits for a long cell.
"""

from __future__ import annotations

from replkernel.protocol.envelope import EXPECT_QUESTIONS, Envelope, envelope_frame
from replkernel.records import ReplicaId
from replkernel.router.core import answers
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.contents import CommInfoContent, read
from replkernel.router.core.events import ClientRequest, Effect, ToReplica
from replkernel.router.core.parts import Parts
from replkernel.router.core.queue import LOOKS, ShellQueue, Waiting
from replkernel.router.core.running import Execution
from replkernel.router.core.traffic import BUSY, IDLE
from replkernel.router.core.wire import pack

OWN = ("kernel_info_request", "comm_info_request")
"""What the router answers itself, with the statuses of an answer."""

PATIENCE_S = 0.3
"""How long a question waits for its turn behind running cells before someone else answers it.

JupyterLab drops a completion that takes a second, and people notice half of one.

A short cell keeps the order of replies that a stock kernel gives; a long one never blocks completion or help.
"""

LONG_S = 1.0
"""A cell that has run for so long is long: a standby gets ready for questions that may come meanwhile.

Getting ready imports what the notebook has imported and has jedi parse types: seconds of a core, the first
time.
"""


class Questions:
    """Who answers the questions of the main shell's queue, and when."""

    def __init__(self, parts: Parts, queue: ShellQueue) -> None:
        self._parts = parts
        self._queue = queue

    def forward(
        self, request: ClientRequest, target: ReplicaId, look: Envelope | None = None
    ) -> list[Effect]:
        """Give a replica what is no execution; what looks at variables says as of when it is to see them."""
        self._parts.traffic.give(request, target)
        if request.header.msg_type in COMM_TYPES:
            self._parts.comms.saw(request.header.msg_type, request.content, target)
        way = self._parts.lanes.on_shell(target, request.header.msg_id)
        if look is None and request.header.msg_type in LOOKS | COMM_TYPES:
            look = self._parts.succession.look()
        envelope = [] if look is None else [envelope_frame(look)]
        again = request.header.msg_id if request.header.msg_type in COMM_TYPES else ""
        return [ToReplica(target, way, [*request.identities, *envelope, *request.frames], again)]

    def answer_overdue(self, running: Execution | None, now: float) -> list[Effect]:
        """Answer the questions that have waited long enough behind running cells."""
        effects: list[Effect] = []
        for item in self._queue.questions:
            if now < self.overtakes_at(item, running):
                continue
            answer = self._answer_early(item.request, running)
            item.stuck = answer is None
            if answer is not None:
                self._queue.drop(item)
                effects += answer
                if running is not None and item.request.header.msg_type in OWN:
                    effects += self.runs_on(running.request)
        return effects

    def runs_on(self, cell: ClientRequest) -> list[Effect]:
        """Say once more that a cell runs: front ends have taken a question's idle for the kernel's."""
        seen = self._parts.traffic.seen(cell.header.msg_id)
        return [answers.busy(cell)] if seen & BUSY and not seen & IDLE else []

    def announce(self, running: Execution | None, now: float) -> list[Effect]:
        """Have the standby that would answer get ready, once a cell has turned out to be long."""
        if running is None or running.replied_at is not None or now < running.started_at + LONG_S:
            return []
        running.turned_long = True
        standby = self.standby(running)
        if standby is None or standby == running.expecting:
            return []
        running.expecting = standby
        return [ToReplica(standby, "executions", [EXPECT_QUESTIONS])]

    def announces_at(self, running: Execution | None) -> float | None:
        """Return when a cell that runs turns out to be long."""
        if running is None or running.replied_at is not None or running.turned_long:
            return None
        return running.started_at + LONG_S

    def overtakes_at(self, item: Waiting, running: Execution | None) -> float:
        """Return when a question waits no longer for its turn."""
        if running is None:
            return item.arrived
        return min(item.arrived, running.started_at) + PATIENCE_S

    def _answer_early(self, request: ClientRequest, running: Execution | None) -> list[Effect] | None:
        """Answer a question without the executor, or return None when only that could."""
        kind = request.header.msg_type
        if kind == "kernel_info_request":
            return answers.whole(request, self._parts.kernel_info())
        if kind == "comm_info_request":
            if not self._parts.fleet.ready():
                return None
            comms = self._parts.comms.info(read(CommInfoContent, request.content).target_name)
            return answers.whole(request, pack({"status": "ok", "comms": comms}))
        standby = self.standby(running)
        return None if standby is None else self.forward(request, standby)

    def standby(self, running: Execution | None) -> ReplicaId | None:
        """Return a ready replica that runs no cell."""
        busy = None if running is None else running.replica
        return next((name for name in self._parts.fleet.ready() if name != busy), None)
