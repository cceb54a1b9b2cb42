"""What a kernel process published and its router has not confirmed: the next router is sent it again.

Pure. Law: bounded; what was published keeps its order, and of what is too much the oldest goes first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

from replkernel.protocol.confirmation import Confirmation

MESSAGES_MAX = 20_000
BYTES_MAX = 16 * 1024 * 1024
REPLIES_MAX = 64
_DELIMITER = b"<IDS|MSG>"


class HeldOutput:
    """Messages and replies, oldest first, from the first time that a router listened."""

    def __init__(self) -> None:
        self._messages: deque[tuple[bytes, list[bytes], int]] = deque()
        self._replies: OrderedDict[bytes, list[bytes]] = OrderedDict()
        self._size = 0
        self._begun = False

    def begin(self) -> list[list[bytes]]:
        """Return what a router that begins to listen is sent first: messages, then replies."""
        self._begun = True
        return [*(frames for _, frames, _ in self._messages), *self._replies.values()]

    def published(self, frames: Sequence[Any]) -> None:
        """Hold a message that was published, if it belongs to an execution."""
        if not self._begun or not _of_execution(frames):
            return
        kept = _as_bytes(frames)
        size = sum(map(len, kept))
        self._messages.append((_header(kept), kept, size))
        self._size += size
        while len(self._messages) > MESSAGES_MAX or (self._size > BYTES_MAX and len(self._messages) > 1):
            self._size -= self._messages.popleft()[2]

    def replied(self, frames: Sequence[Any]) -> None:
        """Hold a reply to an execution."""
        kept = _as_bytes(frames)
        self._replies[_header(kept)] = kept
        if len(self._replies) > REPLIES_MAX:
            self._replies.popitem(last=False)

    def confirmed(self, confirmation: Confirmation) -> None:
        """Let go of what has reached the router."""
        for reply in confirmation.replies:
            self._replies.pop(reply, None)
        if not any(held == confirmation.last for held, _, _ in self._messages):
            return
        while self._messages:
            held, _, size = self._messages.popleft()
            self._size -= size
            if held == confirmation.last:
                return

    @property
    def owes_replies(self) -> bool:
        """Whether a reply has not been confirmed by a router."""
        return bool(self._replies)

    def __len__(self) -> int:
        return len(self._messages) + len(self._replies)

    def check_invariants(self) -> None:
        """Assert the bounds and the sum."""
        assert len(self._messages) <= MESSAGES_MAX
        assert len(self._replies) <= REPLIES_MAX
        assert self._size == sum(size for _, _, size in self._messages)


def _as_bytes(frames: Sequence[Any]) -> list[bytes]:
    return [frame if isinstance(frame, bytes) else bytes(frame) for frame in frames]


def _of_execution(frames: Sequence[Any]) -> bool:
    """Tell whether a message's parent is an execution."""
    try:
        return b'"execute_request"' in frames[frames.index(_DELIMITER) + 3]
    except (ValueError, IndexError):
        return False


def _header(frames: list[bytes]) -> bytes:
    """Return the header among a message's frames, which no other message has."""
    try:
        return frames[frames.index(_DELIMITER) + 2]
    except (ValueError, IndexError):
        return b""
