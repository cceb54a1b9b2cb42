"""An IPython kernel that answers questions about variables from all of them, also those left behind.

Completion, inspection, the debugger and cells of subshells may look at any variable; what they
may need is rebuilt before they look. Law: nobody is told "not found" of a variable that only waits, and
every question is answered once, in one piece, when SIGINT comes as well.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from replkernel.errors import UNREADABLE
from replkernel.kernel.interrupts import PutOffInterrupts
from replkernel.kernel.replica import Replica
from replkernel.kernel.short_ways import ShortWaysKernel
from replkernel.protocol.envelope import Envelope, read_envelope

if TYPE_CHECKING:
    from zmq.eventloop.zmqstream import ZMQStream


log = logging.getLogger(__name__)

_QUESTIONS = tuple(
    f"{what}_request"
    for what in ("complete", "inspect", "is_complete", "history", "comm_info", "kernel_info", "connect")
)

_LOOKS = frozenset({"attach", "inspectVariables", "richInspectVariables", "copyToGlobals", "evaluate"})
"""What the debugger is asked that leads to variables."""

_LAST_NAME = re.compile(r"(?<![\w.])([^\W\d]\w*)\Z")


def look_of(identities: list[bytes]) -> Envelope | None:
    """Return which state the answer to a question is to see; what cannot be read asks for none."""
    try:
        return read_envelope(identities)
    except UNREADABLE as error:
        log.warning("A question's envelope does not fit and is ignored: %s", error)
        return None


class _Answer:
    """Where one question is answered: what is sent is sent whole, and known to be sent."""

    def __init__(self, stream: ZMQStream, interrupts: PutOffInterrupts) -> None:
        self._stream, self._interrupts = stream, interrupts
        self.sent = False

    def send_multipart(self, frames: list[Any], **options: Any) -> Any:
        """Send a message, which no SIGINT tears in two."""
        with self._interrupts.put_off():
            self.sent = True
            return self._stream.send_multipart(frames, **options)


class QuestionsKernel(ShortWaysKernel):
    """Stock's kernel beside cells of the main shell; `replica` is set before the first message is taken."""

    replica: Replica | None = None

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        for kind in _QUESTIONS:
            self.shell_handlers[kind] = self._answered_once(self.shell_handlers[kind])

    def _answered_once(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        async def handler(stream: ZMQStream, ident: list[bytes], parent: Mapping[str, Any]) -> None:
            answer = _Answer(stream, self.interrupts)
            try:
                self.deliver_interrupts()
                if self.replica is not None:
                    self.replica.catch_up(look_of(ident))
                handling = handle(answer, ident, parent)
                if inspect.isawaitable(handling):
                    await handling
            except KeyboardInterrupt:
                self.hold_interrupts()
                if not answer.sent:
                    self._say_interrupted(answer, ident, parent)
            else:
                self.hold_interrupts()

        return handler

    def _say_interrupted(self, stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        """Answer a question that SIGINT ended, which stock leaves without an answer."""
        kind = parent["header"]["msg_type"].replace("_request", "_reply")
        content = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
        session: Any = self.session
        session.send(stream, kind, content, parent, ident=ident)

    async def dispatch_shell(
        self, msg: object, /, subshell_id: str | None = None, *, concurrent: bool = False
    ) -> None:
        """Handle a message as stock does; one that runs beside the main shell finds every variable."""
        if self.replica is not None and (subshell_id is not None or concurrent):
            self.replica.complete_state()
        await super().dispatch_shell(msg, subshell_id=subshell_id, concurrent=concurrent)

    async def do_debug_request(self, msg: Mapping[str, Any]) -> object:
        """Answer the debugger as stock does; who looks at variables finds them, and does so from now on."""
        if self.replica is not None and msg.get("command") in _LOOKS:
            self.replica.restorer.in_order = False
            self.replica.complete_state()
        return await super().do_debug_request(msg)

    def do_complete(self, code: str, cursor_pos: int) -> Any:
        """Complete as stock does, from all variables that there are."""
        if self.replica is None:
            return super().do_complete(code, cursor_pos)
        self.replica.fill_in(code)
        found = super().do_complete(code, cursor_pos)
        begun = _LAST_NAME.search(code[:cursor_pos])
        if begun is not None and isinstance(found, dict) and found.get("cursor_start") == begun.start():
            waiting = self.replica.names_left_behind(begun[1])
            known = found["matches"]
            found["matches"] = [*known, *(name for name in waiting if name not in known)]
        return found

    def do_inspect(self, code: str, cursor_pos: int, *args: Any, **kwargs: Any) -> Any:
        """Inspect as stock does, with all variables that there are."""
        if self.replica is not None:
            self.replica.fill_in(code)
        return super().do_inspect(code, cursor_pos, *args, **kwargs)
