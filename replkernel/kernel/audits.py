"""What captures left to be checked in idle time, and what the user is told of it.

Law: what is owed stays owed until an audit has come to its end; when one begins is decided in `duty`.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from replkernel.kernel.duty import AuditTimes
from replkernel.kernel.execution import Execution
from replkernel.records import Delta, Mark, Pin, Unaudited
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.wording import root_in_words

AFTER_GIVING_WAY_S = 0.05
AFTER_INTERRUPT_S = 1.0
AFTER_FAULT_S = 30.0
AFTER_PAGE_S = 0.3
"""So long after a page has moved a widget it is looked what that changed; it is likely to move it on."""
ROOM_LOOK_S = 5.0
"""So often it is looked whether the store has room for what is held."""
NAMES_TOLD_MAX = 10


class AuditBook:
    """What one process's captures left to be checked, and the execution that it is added to."""

    def __init__(self) -> None:
        self.times = AuditTimes()
        self.execution: Execution | None = None
        """The last execution, while a part of what it may have changed is not checked."""
        self.last: Execution | None = None
        """The last execution that was captured here, until the next one begins."""
        self.left: tuple[Unaudited, ...] = ()
        self.count = 0
        """How many audits of the execution had something to tell."""
        self._pinned: frozenset[Pin] = frozenset()
        """What ties the notebook to this process, as it was told last."""
        self.first: frozenset[str] = frozenset()
        """What is checked before the rest: what the cell mentions, and what was never captured."""

    def begin(self, *, taken_over: bool) -> None:
        """Note that a cell begins, `taken_over` from another replica: its capture takes what is owed over."""
        if taken_over:
            self.left = ()
        self.execution, self.last, self.count = None, None, 0

    def captured(self, execution: Execution, delta: Delta, mentioned: AbstractSet[str]) -> None:
        """Note what the capture after a cell left; what the cell mentions is checked as soon as may be."""
        self.count, self._pinned = 0, _of_process(delta)
        self.left = delta.unaudited
        self.execution, self.last = execution if delta.unaudited else None, execution
        self.first = frozenset(mentioned).union(left.name for left in self.left if not left.cell)
        self.times.urgent = self._owes_first()

    def reopen(self, mark: Mark, now: float) -> None:
        """Have all be checked once more for the last execution, of which `mark` tells the last audit."""
        last = self.last
        if self.execution is not None or last is None or last.envelope is None:
            return
        if last.envelope.seq == mark.seq:
            self.execution, self.count = last, max(self.count, mark.audit)
            self.times.put_off(AFTER_PAGE_S, now)

    def _owes_first(self) -> bool:
        return any(left.name in self.first and not left.held for left in self.left)

    def audited(self, delta: Delta) -> bool:
        """Note what an audit left, and tell whether it has news."""
        pinned = _of_process(delta)
        news = bool(delta.components or delta.dropped) or (delta.unaudited, pinned) != (
            self.left,
            self._pinned,
        )
        self.left, self._pinned = delta.unaudited, pinned
        self.execution = self.execution if delta.unaudited else None
        self.times.urgent = self._owes_first()
        return news

    def took(self, began: float, *, interrupted: bool, waits: bool) -> None:
        """Note that the audit which began then is over, finished or not, and whether somebody waits."""
        now = time.monotonic()
        self.times.took(now - began, now)
        if waits and self.execution is not None:
            self.times.gave_way()
        elif not interrupted:
            self.times.finished()
        if interrupted:
            self.times.put_off(AFTER_INTERRUPT_S, now)
        elif self.execution is not None:
            self.times.put_off(AFTER_GIVING_WAY_S, now)

    @property
    def awaits_room(self) -> bool:
        """Tell whether all that is left is what the store has no room for."""
        return bool(self.left) and all(left.held for left in self.left)

    def failed(self) -> None:
        """Begin no audit for a while."""
        self.times.put_off(AFTER_FAULT_S, time.monotonic())

    def new(self, held: Container[str] = ()) -> str:
        """Return the variables not captured yet but for those `held`, readable; empty when there are none."""
        return ", ".join(readable(left.name) for left in self.left if not left.cell and left.name not in held)


def _of_process(delta: Delta) -> frozenset[Pin]:
    """Return a delta's pins, which have times in their reasons, as far as they are compared."""
    return frozenset(replace(pin, reason="") for pin in delta.pins)


def sentences(left: Iterable[Unaudited], cell: int) -> list[str]:
    """Say what of the state that a lost replica left after `cell` is older than that, or missing."""
    said: list[str] = []
    groups: dict[tuple[int, str, bool], list[str]] = {}
    for item in left:
        groups.setdefault((item.cell, item.replica, item.held), []).append(readable(item.name))
    for (since, replica, held), names in groups.items():
        shown = ", ".join(names[:NAMES_TOLD_MAX])
        if len(names) > NAMES_TOLD_MAX:
            shown += f" and {len(names) - NAMES_TOLD_MAX} more"
        are, were = ("is", "was") if len(names) == 1 else ("are", "were")
        it = "it" if len(names) == 1 else "they"
        if not since:
            why = f"{it} {were} too large to be captured"
            why = f"the object store had no room for {'it' if len(names) == 1 else 'them'}" if held else why
            said.append(f"{shown} {are} missing: {why} before replica {replica} died.")
            continue
        if held:
            said.append(
                f"{shown} {are} as {it} {were} after cell {since}: the object store had no room for what "
                f"changed since then before replica {replica} died."
            )
            continue
        cells = f"cell {cell}" if cell <= since + 1 else f"cells {since + 1} to {cell}"
        said.append(
            f"{shown} {are} as {it} {were} after cell {since}: {it} {were} too large to be checked after "
            f"{cells} before replica {replica} died."
        )
    return said


def readable(root: str) -> str:
    """Return a root as its user knows it."""
    words = root_in_words(root)
    return f"class `{words.removeprefix('class ')}`" if root.startswith(ROOT_PREFIX) else f"`{words}`"
