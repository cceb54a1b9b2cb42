"""When what a kernel has superseded leaves its store: as there is need, long before a collection. Pure.

Law: only what this host made and nothing of the kernel names here is offered, and not before it has rested;
whoever takes it away still asks all marks (`withdrawal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from replkernel.records import Digest

REST_S = 60.0
"""So long nothing has named a chunk before it goes: standbys and a checkpoint under way may be behind."""

BYTES_MIN = 256 * 2**20
"""Less than this is left, unless room is short."""

ROOM_SHARE = 0.2
"""Room is short when what is superseded is worth this share of what is free."""


class Superseded:
    """The chunks of one kernel that this host made and that nothing here names any more."""

    def __init__(self) -> None:
        self._since: dict[Digest, float] = {}
        self._made: Mapping[Digest, int] = {}

    def look(self, made: Mapping[Digest, int], needed: AbstractSet[Digest], now: float) -> None:
        """Take note of what was made, with its bytes, and of what is needed now."""
        self._made = made
        self._since = {digest: self._since.get(digest, now) for digest in made if digest not in needed}

    @property
    def any(self) -> bool:
        """Tell whether anything is superseded."""
        return bool(self._since)

    def unripe(self, now: float) -> bool:
        """Tell whether something has not rested for long enough."""
        return any(now - since < REST_S for since in self._since.values())

    def due(self, free_bytes: int | None, now: float) -> list[Digest]:
        """Return what is to go now, if that is worth it; `free_bytes` is the store's room, if it is known."""
        ripe = [digest for digest, since in self._since.items() if now - since >= REST_S]
        size = sum(self._made[digest] for digest in ripe)
        live = sum(self._made.values()) - sum(self._made[digest] for digest in self._since)
        short = free_bytes is not None and size >= ROOM_SHARE * free_bytes
        return ripe if ripe and (short or size >= max(BYTES_MIN, live)) else []
