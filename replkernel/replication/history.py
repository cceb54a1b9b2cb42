"""The history: earlier states of the component table, each as what changed after it.

Pure and deterministic. Laws: the table at a point is the table of now with the changes after it taken
back, so what never changed is kept once; what is kept has limits, but for points with names.
Cells and prompts are no part of the past: their numbers go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from replkernel.protocol.timeline import MAIN, PointInfo, Timeline
from replkernel.records import (
    ChunkRef,
    ComponentId,
    ComponentRecord,
    Delta,
    Limits,
    Mark,
    Note,
    payload_blobs,
)

NAMES_MAX = 64
"""So many points have names at most, and so many branches there are; further ones are ignored."""

NAME_CHARS_MAX = 64
SOURCE_CHARS_MAX = 100
POINTS_MAX = 10_000
"""No setting keeps more points than this."""

CHANGED_TOLD_MAX = 8
"""A point tells so many of the names that changed."""

INLINE_BYTES_MAX = 8 * 2**20
"""So much of what points without names keep may lie in the table itself, which every replica has in memory
and every checkpoint holds; the rest is references to the store."""

RECORD_BYTES = 256
CHUNK_BYTES = 80
"""What a record takes beside its bytes, and a reference to a chunk in it."""

LASTING = ("@cells/", "@history")
_SHOWN = re.compile(r"_{1,3}|_\d+|_replkernel_out_\d+|library sys:last_\w+")
"""What IPython and Python keep of results and errors: a cell that changes no more makes no point."""

_IMPORTED = {"@modules"}
"""Libraries import more when they show something for the first time."""


class Change(msgspec.Struct):
    """What is taken back to come from the next state to the one before.

    `was` has components as they were, None where there was none; `order` is set where it was another;
    `now` is the table after the change.
    """

    was: dict[ComponentId, ComponentRecord | None]
    order: tuple[str, ...] | None
    now: Mapping[ComponentId, ComponentRecord]


class Past(msgspec.Struct, omit_defaults=True):
    """An earlier point: the components that have changed since, and what they take beyond what came after.

    Of these `bytes`, `inline` lie in the table itself.
    """

    point: PointInfo
    components: dict[ComponentId, ComponentRecord | None] = {}
    order: tuple[str, ...] | None = None
    bytes: int = 0
    inline: int = 0


class Back(msgspec.Struct):
    """What leads to a point from the whole state of now; `order` is None where it is that of now."""

    components: dict[ComponentId, ComponentRecord | None]
    order: tuple[str, ...] | None


class HistoryState(msgspec.Struct, omit_defaults=True):
    """What of the history goes into a snapshot. `head` is the point of now."""

    pasts: list[Past] = []
    head: PointInfo | None = None
    names: dict[str, Mark] = {}
    branches: dict[str, Mark] = {}
    branch: str = MAIN
    pending: Note | None = None


class History:
    """The points before the whole state of now, and their names."""

    def __init__(self, state: HistoryState) -> None:
        self.state = state
        self._bytes = sum(past.bytes for past in state.pasts)
        self._inline = sum(past.inline for past in state.pasts)

    # -- what comes -------------------------------------------------------------------------------------

    def heard(self, delta: Delta) -> None:
        """Take what an execution says of itself; it makes a point once the state is whole."""
        note, before = delta.note, self.state.pending
        if note is None:
            return
        if before is not None:
            named, unnamed = before.named + note.named, before.unnamed + note.unnamed
            note = msgspec.structs.replace(
                note,
                named=named[-NAMES_MAX:],
                unnamed=unnamed[-NAMES_MAX:],
                branch=note.branch or before.branch,
                looks=note.looks and before.looks,
            )
        since = delta.execution_count if before is None else before.since
        self.state.pending = msgspec.structs.replace(note, since=since)

    def forget_pending(self) -> None:
        """Forget what executions said that were given up."""
        self.state.pending = None

    def reached(self, mark: Mark, number: int, change: Change) -> None:
        """Make a point of the state, which is whole at `mark`, after cell `number`."""
        note, self.state.pending = self.state.pending, None
        was = {cid: one for cid, one in change.was.items() if not cid.startswith(LASTING)}
        head = self.state.head
        if note is None and head is None:
            return
        note = note or Note(at=head.at if head is not None else 0.0)
        moved = bool(was) or change.order is not None
        if moved and head is not None and note.to is None and _is_shown(was, change, note.looks):
            self._take_along(was, change)
        elif was or head is None or note.to is not None:
            self._step(mark, number, note, msgspec.structs.replace(change, was=was))
        self._name(note)
        self._trim(note.limits)

    def _step(self, mark: Mark, number: int, note: Note, change: Change) -> None:
        state, before = self.state, self.state.head
        parent = before.stands_for if before is not None else None
        to = note.to if note.to is not None and self.keeps(note.to) else None
        if note.begins and note.branch and parent is not None:
            self._begin(note.branch, parent)
        elif note.branch in state.branches:
            state.branch = note.branch
        if before is not None:
            size = beyond(change.was.values(), (change.now.get(cid) for cid in change.was))
            inline = sum(map(inline_bytes, change.was.values()))
            state.pasts.append(Past(before, change.was, change.order, size, inline))
            self._bytes += size
            self._inline += inline
        at = max(note.at, before.at if before is not None else 0.0)
        names = _names_in(change)
        state.head = PointInfo(
            mark,
            number,
            at,
            note.source[:SOURCE_CHARS_MAX],
            note.cell_id[:NAME_CHARS_MAX],
            tuple(names[:CHANGED_TOLD_MAX]),
            max(0, len(names) - CHANGED_TOLD_MAX),
            sum(one.state_bytes for cid in change.was if (one := change.now.get(cid)) is not None),
            parent,
            to,
            state.branch,
            note.since if note.since < number else 0,
        )
        if to is None:
            state.branches[state.branch] = mark

    def _take_along(self, was: dict[ComponentId, ComponentRecord | None], change: Change) -> None:
        """Let the point of now have what was only shown; the point before it stays as it is."""
        if not self.state.pasts:
            return
        past = self.state.pasts[-1]
        newer = [change.now.get(cid) for cid in {**was, **past.components}]
        self._lengthen(past, was, change.order, newer)

    def _begin(self, branch: str, at: Mark) -> None:
        state = self.state
        if branch not in state.branches and len(state.branches) < NAMES_MAX and len(branch) <= NAME_CHARS_MAX:
            state.branches[branch] = at
            state.branch = branch

    def _name(self, note: Note) -> None:
        state = self.state
        assert state.head is not None
        if note.begins and note.branch:
            self._begin(note.branch, state.head.stands_for)
        elif note.branch in state.branches:
            state.branch = note.branch
        for name in note.unnamed:
            state.names.pop(name, None)
            if name != state.branch:
                state.branches.pop(name, None)
        for name, mark in note.named:
            target = state.head.stands_for if mark is None else mark
            fits = len(name) <= NAME_CHARS_MAX and (name in state.names or len(state.names) < NAMES_MAX)
            fits = fits and name not in state.branches
            if fits and self.keeps(target):
                state.names[name] = target

    # -- what is kept -----------------------------------------------------------------------------------

    def _trim(self, limits: Limits) -> None:
        """Let go of the earliest points beyond the limits, but for those with names."""
        state = self.state
        assert state.head is not None
        keeps = {*state.names.values(), *state.branches.values(), state.head.stands_for}
        points = min(max(0, limits.points), POINTS_MAX)
        oldest = state.head.at - limits.age_s
        unnamed = sum(past.point.mark not in keeps for past in state.pasts)
        index = 0
        while index < len(state.pasts):
            past = state.pasts[index]
            large = self._bytes > limits.bytes or self._inline > INLINE_BYTES_MAX
            over = unnamed > points or large or past.point.at < oldest
            if past.point.mark in keeps and points:
                index += 1
            elif over or not points:
                self._drop(index)
                unnamed -= 1
            else:
                return

    def _drop(self, index: int) -> None:
        """Let go of one point; what came before it is kept as changes to what comes after it."""
        pasts = self.state.pasts
        gone = pasts.pop(index)
        self._bytes -= gone.bytes
        self._inline -= gone.inline
        if index == 0:
            return
        after: dict[ComponentId, ComponentRecord | None] = {}
        for past in pasts[index:]:
            for cid, was in past.components.items():
                after.setdefault(cid, was)
        self._lengthen(pasts[index - 1], gone.components, gone.order, after.values())

    def _lengthen(
        self,
        past: Past,
        was: Mapping[ComponentId, ComponentRecord | None],
        order: tuple[str, ...] | None,
        newer: Iterable[ComponentRecord | None],
    ) -> None:
        """Have a past lead back over a further change; `newer` are the records that came after it."""
        self._bytes -= past.bytes
        self._inline -= past.inline
        past.components = {**was, **past.components}
        past.order = order if past.order is None else past.order
        past.bytes = beyond(past.components.values(), newer)
        past.inline = sum(map(inline_bytes, past.components.values()))
        self._bytes += past.bytes
        self._inline += past.inline

    # -- what is asked ----------------------------------------------------------------------------------

    def keeps(self, mark: Mark) -> bool:
        """Tell whether a point is there."""
        head = self.state.head
        return (head is not None and head.mark == mark) or any(p.point.mark == mark for p in self.state.pasts)

    def back_to(self, mark: Mark) -> Back | None:
        """Return what leads to a point from the whole state of now; None when it is not kept."""
        if not self.keeps(mark):
            return None
        components: dict[ComponentId, ComponentRecord | None] = {}
        order: tuple[str, ...] | None = None
        pasts = self.state.pasts
        start = next((number for number, past in enumerate(pasts) if past.point.mark == mark), len(pasts))
        for past in pasts[start:]:
            for cid, was in past.components.items():
                components.setdefault(cid, was)
            order = past.order if order is None else order
        return Back(components, order)

    def records(self) -> Iterator[ComponentRecord]:
        """Return the components that are kept for the sake of the past."""
        return (was for past in self.state.pasts for was in past.components.values() if was is not None)

    def timeline(self) -> Timeline:
        """Return the points that are kept, for people."""
        state = self.state
        now = () if state.head is None else (state.head,)
        points = (*(past.point for past in state.pasts), *now)
        return Timeline(points, dict(state.names), dict(state.branches), state.branch, self._bytes)

    def check_invariants(self) -> None:
        """Raise AssertionError when a law of the history does not hold."""
        state = self.state
        assert state.head is not None or not state.pasts, "there is a past without a present"
        marks = [past.point.mark for past in state.pasts]
        assert marks == sorted(set(marks)), "points are out of order"
        assert self._bytes == sum(past.bytes for past in state.pasts), "the bytes of the past are miscounted"
        assert self._inline == sum(past.inline for past in state.pasts), "inline bytes are miscounted"
        assert len(state.names) <= NAMES_MAX, "too many points have names"
        assert len(state.branches) <= NAMES_MAX, "there are too many branches"
        assert len(state.pasts) <= POINTS_MAX + 2 * NAMES_MAX + 1, "too many points are kept"


def beyond(older: Iterable[ComponentRecord | None], newer: Iterable[ComponentRecord | None]) -> int:
    """Return how many bytes records take that later ones in their place do without."""
    live = {chunk.digest for record in newer for chunk in _chunks(record)}
    extra: dict[str, int] = {}
    inline = 0
    for record in older:
        extra.update((chunk.digest, chunk.size) for chunk in _chunks(record) if chunk.digest not in live)
        inline += inline_bytes(record)
    return inline + sum(extra.values())


def inline_bytes(record: ComponentRecord | None) -> int:
    """Return how many bytes a record takes in the table, beside what the store has of it."""
    if record is None:
        return 0
    buffers = sum(len(buffer) for buffer in record.payload.buffers if isinstance(buffer, bytes))
    return RECORD_BYTES + len(record.payload.head or b"") + buffers + CHUNK_BYTES * len(_chunks(record))


def _chunks(record: ComponentRecord | None) -> list[ChunkRef]:
    blobs = () if record is None else payload_blobs(record.payload)
    return [chunk for blob in blobs for chunk in blob.chunks]


def _is_shown(was: Mapping[ComponentId, ComponentRecord | None], change: Change, looks: bool) -> bool:
    """Tell whether what was, and is now in its place, are results and errors that were shown.

    A cell that `looks` may have shown variables: nothing but that results hold them, or did, is new of them.
    """
    before = [one for one in was.values() if one is not None]
    after = [one for cid in was if (one := change.now.get(cid)) is not None]
    if not looks:
        return not _others(before + after)
    held = [one for one in before + after if any(map(_SHOWN.fullmatch, one.names))]
    looked_at = _others(before) - _IMPORTED
    same = looked_at == _others(after) - _IMPORTED == _others(held)
    return same and all(map(str.isidentifier, looked_at))


def _others(records: Iterable[ComponentRecord]) -> set[str]:
    """Return the names in records beside those of what was shown."""
    names = {name for one in records for name in one.names or (one.cid,)}
    return {name for name in names if _SHOWN.fullmatch(name) is None}


def _names_in(change: Change) -> list[str]:
    """Return the user's names that a change touches, and the process state as its ids."""
    found: dict[str, None] = {}
    for cid, was in change.was.items():
        now = change.now.get(cid)
        names = [*(was.names if was is not None else ()), *(now.names if now is not None else ())]
        found.update(dict.fromkeys(names or [cid]))
    return sorted(found, key=lambda name: (name.startswith(("@", "_")), name))
