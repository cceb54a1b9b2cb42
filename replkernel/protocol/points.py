"""The history of a kernel as programs and pages are told it; the question for it on the control channel.

Pure: structs alone, one vocabulary for the kernel process, the server extension and (generated from it) the
page.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from replkernel.protocol.timeline import Difference, Timeline, address

REQUEST = "replkernel_history_request"
REPLY = "replkernel_history_reply"
POINTS_MAX = 1_000
"""So many points are in one answer, the newest ones; there are more only where a setting keeps more."""
DIFFERENCES_MAX = 1_000
WORD_CHARS_MAX = 64

Word = Annotated[str, msgspec.Meta(max_length=WORD_CHARS_MAX)]


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state after one cell. `point` is its address, which every request for a point takes.

    `cell` is the cell's number, `source` the first line of it, 100 characters at most. `changed` are some of
    the names that it changed, `more` counts the others, and `bytes` is what they take. `to` is set where the
    notebook went back (or forward): the point whose state this one has. A point in `past` is one that the
    state of now comes from; `known` is false where nobody can tell any more.
    """

    point: str
    cell: int
    at: float
    source: str
    cell_id: str
    changed: tuple[str, ...]
    more: int
    bytes: int
    parent: str | None
    to: str | None
    branch: str
    past: bool
    known: bool


class HistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All points that are kept, the oldest first, and their names.

    `here` is the point whose state the notebook has, empty before the first one; `more` counts older points
    that are not listed. `kept_bytes` is what the past takes beyond the state of now.
    """

    here: str
    points: tuple[HistoryPoint, ...]
    more: int
    marks: dict[str, str]
    branches: dict[str, str]
    branch: str
    kept_bytes: int
    undo: bool
    redo: bool


class ComparisonDocument(msgspec.Struct, frozen=True):
    """Variables that differ between two points; `more` counts those that are not listed."""

    differences: tuple[Difference, ...]
    more: int


class HistoryQuestion(msgspec.Struct, frozen=True):
    """The content of a request: the history, or, with two words, how these two points differ.

    With a `verb` it is the history, unless that cannot lead anywhere with the word `one`.
    """

    verb: Word = ""
    one: Word = ""
    other: Word = ""


def document_of(timeline: Timeline) -> HistoryDocument:
    """Return what is told of a timeline."""
    past, oldest = timeline.ancestors()
    kept = timeline.points[-POINTS_MAX:]
    points = tuple(
        HistoryPoint(
            point=address(each.mark),
            cell=each.number,
            at=each.at,
            source=each.source,
            cell_id=each.cell_id,
            changed=each.changed,
            more=each.more,
            bytes=each.bytes,
            parent=None if each.parent is None else address(each.parent),
            to=None if each.to is None else address(each.to),
            branch=each.branch,
            past=each.stands_for in past,
            known=each.stands_for in past or oldest is None or each.mark > oldest,
        )
        for each in kept
    )
    return HistoryDocument(
        here=address(timeline.here()) if timeline.points else "",
        points=points,
        more=len(timeline.points) - len(kept),
        marks={name: address(mark) for name, mark in timeline.names.items()},
        branches={name: address(mark) for name, mark in timeline.branches.items()},
        branch=timeline.branch,
        kept_bytes=timeline.kept,
        undo=timeline.may_undo(),
        redo=timeline.may_redo(),
    )
