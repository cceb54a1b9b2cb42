"""A line to one kernel's router: asks on the control channel how far executions are, one question at a time.

Law: nothing is published by it and no replica is woken, so it is no activity of the kernel; it is closed as
soon as no page listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from jupyter_client.session import Session

from replkernel.errors import UNREADABLE
from replkernel.protocol.progress import REQUEST, ProgressAnswer, ProgressQuestion

ANSWER_S_MAX = 3.0
"""A question that has no answer for so long is asked again, and the kernel called silent."""

_answers = msgspec.json.Decoder(ProgressAnswer)


class KernelLine:
    """One control connection to a router."""

    def __init__(
        self,
        manager: Any,
        hear: Callable[[ProgressAnswer], None],
    ) -> None:
        """Connect; `hear` is called with each answer."""
        self._hear = hear
        self.port = manager.control_port
        self._session = Session(key=manager.session.key, signature_scheme=manager.session.signature_scheme)
        self._stream = manager.connect_control()
        self._stream.on_recv(self._receive)
        self._asked = ""
        self.asked_at = 0.0
        self.activity: object = None

    @property
    def waits(self) -> bool:
        """Tell whether a question is open that may still be answered."""
        return bool(self._asked) and time.monotonic() < self.asked_at + ANSWER_S_MAX

    @property
    def silent(self) -> bool:
        """Tell whether a question was not answered in time."""
        return bool(self._asked) and not self.waits

    def ask(self, since: int) -> None:
        """Ask for what has changed since a version."""
        message = self._session.msg(REQUEST, msgspec.to_builtins(ProgressQuestion(since)))
        self._asked, self.asked_at = message["header"]["msg_id"], time.monotonic()
        self._session.send(self._stream, message)

    def close(self) -> None:
        """Let go of the connection."""
        self._stream.close(linger=0)

    def _receive(self, frames: list[bytes]) -> None:
        try:
            _, parts = self._session.feed_identities(frames)
            message = self._session.deserialize(parts, content=False)
            if message["parent_header"].get("msg_id") != self._asked:
                return
            answer = _answers.decode(bytes(message["content"]))
        except (*UNREADABLE, KeyError):
            return  # Not an answer of a router of ours.
        self._asked = ""
        self._hear(answer)
