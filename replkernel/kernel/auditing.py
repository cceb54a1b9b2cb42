"""An IPython kernel whose main thread, between messages, checks what captures left to be checked.

Owns who waits for the main thread and when it looks at its loop again; what an audit does is the replica's.
Law: an audit runs only while no message is handled, and gives way to the next one.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import zmq

from replkernel.errors import UNREADABLE
from replkernel.kernel.direct import DirectMessage
from replkernel.kernel.questions import QuestionsKernel
from replkernel.kernel.replica import Replica
from replkernel.leasing.request import split_gpu_line

# As plain numbers: `&` of an enum member costs as much as a receipt.
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)


TEXT_BYTES_MAX = 100_000
"""The text of a longer message is not looked at before its turn."""


class _Cell(msgspec.Struct, frozen=True):
    """What of a waiting request's content is looked at."""

    code: str = ""


_decoder = msgspec.json.Decoder(_Cell)


PINS_LOOK_S = 5.0
"""So often it is looked whether what ties the notebook to this process has ended by itself."""


class AuditingKernel(QuestionsKernel):
    """A kernel that knows whether somebody waits for its main thread, and works when nobody does."""

    replica: Replica | None = None
    _ending = False
    _arrived = 0
    """How many messages for the main shell have been taken from their sockets and not been dealt with."""
    _dispatched = 0
    _audit_timer: object = None
    _pins_timer: object = None

    def _take_message(self, msg: object) -> Any:
        """Count a message of the main shell as soon as it is taken: its task may start much later."""
        self._arrived += 1
        return super()._take_message(msg)

    def _take_directly(self, msg: DirectMessage) -> None:
        self._arrived += 1
        super()._take_directly(msg)

    async def shell_main(self, subshell_id: str | None, msg: object) -> None:
        """Handle a message as stock does; then it is no longer one that waits."""
        try:
            await super().shell_main(subshell_id, msg)
        finally:
            if subshell_id is None:
                self._arrived -= 1

    def has_taken(self) -> bool:
        """Tell whether a message of the main shell was taken from its socket and nobody has begun with it."""
        return self._arrived > self._dispatched

    def somebody_waits(self) -> bool:
        """Tell whether a message of a client, or the end, waits for the main thread; takes none of them."""
        if self._ending or self.has_taken():
            return True
        if self.direct is not None and self.direct.waiting():
            return True
        if not self.shell_channel_thread:
            return False
        pair = self.shell_channel_thread.manager.get_shell_channel_to_subshell_pair(None)
        if int(pair.to_socket.getsockopt(_EVENTS)) & _READABLE:
            # Having asked, the loop would not be told of it again.
            self.io_loop.add_callback(pair.to_stream.flush, zmq.POLLIN)
            return True
        return False

    def next_cell(self) -> str:
        """Return the text of the cell that waits for the main thread; empty where that is not known.

        Nobody has checked yet who sent it: good for a guess alone.
        """
        waiting = None if self.direct is None or self.has_taken() else self.direct.ahead()
        content = None if waiting is None else waiting[-1].buffer
        if content is None or len(content) > TEXT_BYTES_MAX:
            return ""
        try:
            return split_gpu_line(_decoder.decode(content).code)[1]
        except UNREADABLE:
            return ""

    def plan_audit(self) -> None:
        """Have what is owed checked when it is time, once no message is handled."""
        if self.replica is None:
            return
        if self._pins_timer is None and self.replica.is_bound():
            self._pins_timer = self.io_loop.call_later(PINS_LOOK_S, self._look_at_pins)
        if self._audit_timer is not None:
            return
        delay_s = self.replica.audit_delay_s()
        if delay_s is not None:
            self._audit_timer = self.io_loop.call_later(delay_s, self._begin_audit)

    def settle_soon(self) -> None:
        """Have all that is owed captured once no message is handled, whoever wanted it later; any thread."""
        self.io_loop.add_callback(self._settle)

    def _settle(self) -> None:
        if self.replica is None:
            return
        self.replica.settle()
        timer, self._audit_timer = self._audit_timer, None
        if timer is not None:
            self.io_loop.remove_timeout(timer)
        self.plan_audit()

    def _look_at_pins(self) -> None:
        self._pins_timer = None
        if self.replica is not None and not self._dispatched:
            self.replica.look_at_pins()
        self.plan_audit()

    async def _begin_audit(self) -> None:
        """Audit in the context in which cells run, where libraries keep settings."""
        self._audit_timer = None
        await asyncio.create_task(self._audit(), context=self._cells_context)

    async def _audit(self) -> None:
        async with self._main_asyncio_lock:
            if self.replica is not None and self.replica.audit_delay_s() == 0.0 and not self._ending:
                self.replica.audit()
        self.plan_audit()
