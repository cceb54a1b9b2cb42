"""The record of answered executions: a request that comes again gets the same reply and is never run twice.

Pure. Law: bounded in entries and bytes; the oldest answers are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from replkernel.router.core.events import Header

ANSWERS_MAX = 512
ANSWER_BYTES_MAX = 16 * 1024 * 1024


class RecordedAnswer(msgspec.Struct, frozen=True):
    """The content and metadata of an execute_reply that a client has been sent."""

    content: bytes
    metadata: bytes

    @property
    def size(self) -> int:
        """Return how many bytes are kept."""
        return len(self.content) + len(self.metadata)


class AnswerRecord:
    """The last answers, by the session and id of their requests."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], RecordedAnswer] = OrderedDict()
        self._size = 0

    def add(self, header: Header, content: bytes, metadata: bytes) -> None:
        """Remember the answer to a request."""
        key = (header.session, header.msg_id)
        self._forget(key)
        answer = RecordedAnswer(content, metadata)
        self._answers[key] = answer
        self._size += answer.size
        while len(self._answers) > ANSWERS_MAX or (self._size > ANSWER_BYTES_MAX and len(self._answers) > 1):
            self._forget(next(iter(self._answers)))

    def find(self, header: Header) -> RecordedAnswer | None:
        """Return the answer that a request was given before, if it is still known."""
        return self._answers.get((header.session, header.msg_id))

    def check_invariants(self) -> None:
        """Assert the bounds and the byte count."""
        assert len(self._answers) <= ANSWERS_MAX
        assert self._size == sum(answer.size for answer in self._answers.values())

    def _forget(self, key: tuple[str, str]) -> None:
        answer = self._answers.pop(key, None)
        if answer is not None:
            self._size -= answer.size
