"""The variables for which the object store has no room: they stay in this process, by name, until there is.

Law: what is held is told as a whole or not at all, and never keeps what else changed from being told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from replkernel.records import Pin, ReplicaId, Seq
from replkernel.state.python.paths import type_name


class Room(Protocol):
    """What knows how much the store still takes."""

    def refuses(self, size: int) -> str:
        """Return in a clause why `size` bytes more do not fit, or an empty string."""

    def promise(self, size: int) -> None:
        """Take note that `size` bytes are on their way to the store."""


class Held(NamedTuple):
    """One variable (or class) that the store lacks: what it was when it was looked at, and what it needs."""

    fingerprint: bytes
    size: int
    why: str


class Unstored:
    """What one process holds because the store has no room for it; without a `room`, nothing."""

    def __init__(self, room: Room | None) -> None:
        self.held: dict[str, Held] = {}
        self.news: frozenset[str] = frozenset()
        """What the last capture found changed and held, for the first time or again."""
        self.told: list[str] = []
        """What has come to be held or stored since somebody looked, in sentences for the user."""
        self._room = room
        self._now: dict[str, Held] = {}

    def begin(self) -> None:
        """Begin a capture."""
        self._now = {}

    def refuses(self, size: int) -> str:
        """Return why a component of `size` new bytes cannot be stored; what can be is counted as sent."""
        if self._room is None or not size:
            return ""
        why = self._room.refuses(size)
        if not why:
            self._room.promise(size)
        return why

    def hold(self, roots: Iterable[str], held: Held) -> None:
        """Keep a component back, and what could not be told without it."""
        self._now.update((root, held) for root in roots)

    def holds(self, root: str) -> bool:
        """Tell whether the capture under way keeps `root` back."""
        return root in self._now

    def settle(self, unseen: Collection[str], namespace: Mapping[str, Any], since: Mapping[str, int]) -> None:
        """End a capture: what it did not come to stays held.

        `since` tells after which cell each was checked last, 0 where the log has no value of it.
        """
        before, now = self.held, self._now
        self.held = {**{root: item for root, item in before.items() if root in unseen}, **now}
        self.news = frozenset(
            root for root, item in now.items() if root not in before or before[root][0] != item.fingerprint
        )
        for root in sorted(filter(_is_variable, now.keys() - before.keys())):
            self.told.append(_kept_here(root, now[root], since.get(root, 0)))
        for root in sorted(before.keys() - self.held.keys()):
            if root in namespace:
                self.told.append(f"There is room for `{root}` in the object store again: it is being stored.")

    def variables(self) -> dict[str, str]:
        """Return the variables that are held, each with the reason."""
        return {root: item.why for root, item in sorted(self.held.items()) if _is_variable(root)}

    def fits(self) -> bool:
        """Tell whether there is room by now for something that is held."""
        room = self._room
        return room is not None and any(not room.refuses(item.size) for item in self.held.values())

    def pins(
        self, namespace: Mapping[str, Any], replica: ReplicaId, seq: Seq, cell: int = 0
    ) -> tuple[Pin, ...]:
        """Return what binds the notebook to this replica, which alone has these variables."""
        return tuple(
            Pin(root, type_name(namespace[root]), replica, seq, reason=f"{item.why}.", cell=cell)
            for root, item in self.held.items()
            if root in namespace
        )


def _is_variable(root: str) -> bool:
    """Tell whether a root is a name of the user's, and no class or place in a library."""
    return ":" not in root


def _kept_here(root: str, held: Held, since: int) -> str:
    meanwhile = (
        f"until then a crash takes the notebook back to cell {since}"
        if since
        else "everything else is durable without it"
    )
    return (
        f"`{root}` ({held.size / 2**20:.1f} MiB) is on this replica alone for now: {held.why}; free some "
        f"space or name another store (setting REPLKERNEL_STORE). It is stored as soon as there is room; "
        f"{meanwhile}."
    )
