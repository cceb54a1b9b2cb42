"""What a scheduler's journal holds: its head, events behind their checks, snapshots behind their digests.

Checks and digests are made to fit, so that what is behind them is read: a program of another release may have
written it, or a disk may have lied.
"""

from __future__ import annotations

import logging
import random
import zlib
from collections import namedtuple
from collections.abc import Sequence
from typing import Any
from unittest import mock

import msgspec
from replkernel_scheduler.errors import ImageUnfit
from replkernel_scheduler.harvest.image import HarvestImage, JobsImage
from replkernel_scheduler.harvest.types import HarvestEvent
from replkernel_scheduler.image import FORMAT, CoreImage
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_server.errors import ServerError
from replkernel_server.scheduling import recovery, snapshots
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.journal_reading import JournalReading
from replkernel_server.scheduling.journal_tables import (
    EVENT,
    HEAD,
    VERSION,
    Head,
    SnapshotHead,
    outcome,
    proof,
)
from replkernel_server.scheduling.recovery import make_beside, recover
from replkernel_server.scheduling.settings import ServiceSettings
from replkernel_server.scheduling.snapshot_maker import split, write

from tests.fuzz.examples import packed, written
from tests.fuzz.pieces import cut, filled, joined

HEADS, EVENTS, IMAGES, SAID = range(4)
SETTINGS = ServiceSettings("sqlite:////nowhere/journal.sqlite", policies={"set": "notebook"})
HEAD_NOW = Head(7, 1, {"set": "notebook"}, CoreSettings())
Row = namedtuple("Row", "number at wall event proof")
HeadRow = namedtuple("HeadRow", "version document")


class Rows(JournalReading):
    """A journal whose rows are given."""

    snapshot: SnapshotHead | None = None
    held_from = 1

    def __init__(self, head: str, events: Sequence[str]) -> None:
        self.place = JournalPlace(SETTINGS.database)
        self._head, self._events = head, events
        self._made: list[Row] | None = None

    def _rows(self, query: Any) -> Sequence[Any]:
        table = query.get_final_froms()[0]
        if table is HEAD:
            return [HeadRow(VERSION, self._head)]
        if table is EVENT and len(query.selected_columns) == 1:
            return [(1 if self._events else None,)]
        if table is EVENT:
            return self._event_rows()
        return []

    def _event_rows(self) -> list[Row]:
        """Return the events with the checks that they have if they are what was written."""
        if self._made is not None:
            return self._made
        core, check, rows = make_beside(HEAD_NOW), 0, []
        for number, text in enumerate(self._events, 1):
            try:
                event = msgspec.json.decode(text, type=HarvestEvent)
                followed: Any = core.handle(event, float(number))
            except Exception as error:
                followed = error
            check = proof(check, number, float(number), text.encode("utf-8", "replace"), outcome(followed))
            rows.append(Row(number, float(number), 0.0, text, check))
        self._made = rows
        return rows

    def drop_snapshot(self, number: int) -> None:
        """Drop none."""


POLICIES = recovery.policies_of(HEAD_NOW.policies)
"""Looked up once, as what is installed does not change."""


def _policies(names: dict[str, str]) -> Policies:
    return POLICIES if names == HEAD_NOW.policies else _policies_of(names)


_policies_of = recovery.policies_of


def seeds() -> list[bytes]:
    """Return every event, a story of them, a head, an image, and what the maker of snapshots says."""
    events = written(HarvestEvent)
    dice = random.Random(1)
    plain = msgspec.msgpack.encode(snapshots.Document(make_beside(HEAD_NOW).core.image(), dice.getstate()))
    told = [joined(HEADS, msgspec.json.encode(HEAD_NOW)), joined(EVENTS, *events), joined(IMAGES, plain)]
    told += [joined(EVENTS, event) for event in events]
    told += [
        joined(IMAGES, msgspec.msgpack.encode((image, dice.getstate())))
        for image in map(_plain, packed(CoreImage))
    ]
    return [*told, joined(SAID, _said(plain))]


def _plain(image: bytes) -> Any:
    return msgspec.msgpack.decode(image)


def _said(plain: bytes) -> bytes:
    import io

    out = io.BytesIO()
    write(out, snapshots.head_of(plain, 1, 1.0, 1.0, 1, 1.0), plain)
    return out.getvalue()


def fuzz(data: bytes) -> None:
    """Have a service begin with a journal of the pieces."""
    logging.disable(logging.CRITICAL)
    number, pieces = cut(data)
    (piece,) = filled(pieces, 1)
    with mock.patch.object(recovery, "policies_of", _policies):
        _begin(number, piece, pieces)


def _begin(number: int, piece: bytes, pieces: list[bytes]) -> None:
    try:
        match number % 4:
            case 0:
                recover(Rows(piece.decode("utf-8", "replace"), []), SETTINGS)  # type: ignore[arg-type]
            case 1:
                head = msgspec.json.encode(HEAD_NOW).decode()
                texts = [event.decode("utf-8", "replace") for event in pieces[:16]]
                recover(Rows(head, texts), SETTINGS)  # type: ignore[arg-type]
            case 2:
                _restore(piece)
            case _:
                _split(piece)
    except ServerError:
        return


def _restore(plain: bytes) -> None:
    data = zlib.compress(plain, 1)
    head = snapshots.head_of(data, 1, 1.0, 1.0, 1, 1.0)
    assert head.format == FORMAT
    document = snapshots.decode(head, snapshots.parts_of(data))
    core = make_beside(HEAD_NOW, snapshots.dice_of(document))
    try:
        core.restore(HarvestImage(document.core, document.jobs or JobsImage(1.0)))
    except ImageUnfit:
        return


def _split(said: bytes) -> None:
    try:
        head, data = split(said)
    except ValueError:
        return
    snapshots.decode(head, [data])
