"""What the kernel's processes say: replies and output to their clients, questions to whoever answers them.

Pure. Law: a client hears of a message from one process only, the one that it was given to.
"""

from __future__ import annotations

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.leasing.notebook import QUESTION_TYPE
from replkernel.protocol.pages import SAVED_TYPE, PageSaved
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.control import Control
from replkernel.router.core.dormancy import Dormancy
from replkernel.router.core.events import Effect, PassToClient, ReplicaMessage
from replkernel.router.core.governor import Governor
from replkernel.router.core.installs import QUESTION_TYPE as INSTALLED
from replkernel.router.core.installs import Installs
from replkernel.router.core.parts import Parts
from replkernel.router.core.remote_status import QUESTION_TYPE as STATUS_WANTED
from replkernel.router.core.remote_status import RemoteStatus
from replkernel.router.core.shell import Shell


class ReplicaMessages:
    """Who takes which message of a replica's process."""

    def __init__(
        self,
        parts: Parts,
        shell: Shell,
        control: Control,
        dormancy: Dormancy,
        governor: Governor,
        installs: Installs,
        remote_status: RemoteStatus,
    ) -> None:
        self._parts = parts
        self._shell = shell
        self._control = control
        self._dormancy = dormancy
        self._governor = governor
        self._installs = installs
        self._remote_status = remote_status

    def handle(self, message: ReplicaMessage, now: float) -> list[Effect]:
        """Take a message that came on one of a replica's channels."""
        if message.channel == "iopub":
            return self._published(message)
        if message.msg_type == QUESTION_TYPE:
            return self._governor.asked(message, now)
        if message.msg_type == SAVED_TYPE:
            return self._page_saved(message, now)
        if message.msg_type == INSTALLED:
            return self._installs.asked(message, now)
        if message.msg_type == STATUS_WANTED:
            return self._remote_status.asked(message, now)
        if message.channel == "stdin":
            self._parts.asks_stdin = message.replica
            return [PassToClient("stdin", [*message.prefix, *message.frames])]
        if not self._parts.traffic.admits_reply(message, self._parts.placement.executor):
            return []
        if message.channel == "control":
            return self._control.replied(message)
        self._dormancy.used(now)
        return self._shell.replied(message, now)

    def _page_saved(self, message: ReplicaMessage, now: float) -> list[Effect]:
        try:
            said = msgspec.json.decode(message.content, type=PageSaved)
        except UNREADABLE:
            return []
        if message.replica == self._parts.placement.executor:
            self._parts.succession.page_saved(said, now)
        return []

    def _published(self, message: ReplicaMessage) -> list[Effect]:
        if message.msg_type == "iopub_welcome":
            self._parts.fleet.became_linked(message.replica)
            return []
        if not self._parts.traffic.admits_output(message, self._parts.placement.executor):
            return []
        if message.msg_type in COMM_TYPES:
            self._parts.comms.saw(message.msg_type, message.content, message.replica)
        return [self._shell.passed(message), *self._shell.published(message)]
