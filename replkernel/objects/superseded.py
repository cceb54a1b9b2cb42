"""When what a kernel has superseded leaves its store: as soon as nothing that can be restored names it. Pure.

What is restored is never older than the newest checkpoint in the store, so a chunk may go once there is a
checkpoint of a state that does without it; older ones that are kept have marks of their own.
Law: only what this host made and nothing of the kernel names here is offered, and not before it has rested;
whoever takes it away still asks all marks (`withdrawal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from replkernel.records import Digest

Place = tuple[int, int]
"""Where in a kernel's history a state is: its group's generation, and the entry of that group's log."""


class Rest(NamedTuple):
    """How long chunks rest, in seconds, once they are superseded, and how many bytes are worth a round."""

    after_s: float
    little_bytes: int
    little_after_s: float
    """What is less than `little_bytes` rests so long, unless room is short."""


HERE = Rest(2.0, 16 * 2**20, 60.0)
"""In a store of files, all replicas on one host: a process there may be reading what was current just now."""

APART = Rest(10.0, 16 * 2**20, 60.0)
"""In a store of files, with replicas on several hosts: they hear of a commit later, and read more slowly."""

SERVER = Rest(120.0, 64 * 2**20, 600.0)
"""In a store whose deletions are requests: they go together."""

ROOM_SHARE = 0.2
"""Room is short when what is superseded is worth this share of what is free."""


class _Seen(NamedTuple):
    at: float
    place: Place


class Superseded:
    """The chunks of one kernel that this host made and that nothing here names any more."""

    def __init__(self) -> None:
        self._since: dict[Digest, _Seen] = {}
        self._made: Mapping[Digest, int] = {}

    def look(self, made: Mapping[Digest, int], needed: AbstractSet[Digest], place: Place, now: float) -> None:
        """Take note of what was made, with its bytes, and of what is needed in the state at `place`."""
        self._made = made
        seen = _Seen(now, place)
        self._since = {digest: self._since.get(digest, seen) for digest in made if digest not in needed}

    @property
    def any(self) -> bool:
        """Tell whether anything is superseded."""
        return bool(self._since)

    @property
    def bytes(self) -> int:
        """Return how many bytes are superseded."""
        return sum(self._made[digest] for digest in self._since)

    def due(self, covered: Place, free_bytes: int | None, rest: Rest, now: float) -> list[Digest]:
        """Return what is to go now.

        `covered` is where the newest checkpoint in the store stands; `free_bytes` the store's room, if known.
        """
        ripe = [
            digest
            for digest, seen in self._since.items()
            if seen.place <= covered and now - seen.at >= rest.after_s
        ]
        size = sum(self._made[digest] for digest in ripe)
        short = free_bytes is not None and size >= ROOM_SHARE * free_bytes
        if size >= rest.little_bytes or short:
            return ripe
        old = [digest for digest in ripe if now - self._since[digest].at >= rest.little_after_s]
        return ripe if old else []

    def next_look_s(self, covered: Place, rest: Rest, now: float) -> float:
        """Return after how long more may be due: once what a checkpoint covers has rested."""
        covers = [seen.at for seen in self._since.values() if seen.place <= covered]
        resting = [rest.after_s - (now - at) for at in covers if now - at < rest.after_s]
        return min(resting, default=rest.little_after_s)
