"""The tables of the journal, and what a row of each is.

| table | a row is |
|---|---|
| replkernel_head | the version, and as JSON what the core was made of: seed, fence, policies, settings |
| replkernel_event | an event as JSON, its number (no gap), the core's time, the wall clock, a check |
| replkernel_usage | what one lease cost, as JSON, in the transaction of the event that ended its use |
| replkernel_snapshot | that there is a snapshot of the core behind an event, with its digest |
| replkernel_snapshot_part | a piece of it; pieces without a row in the table above are of none |
| replkernel_past | what one look found, as JSON, and its Unix time: for charts alone |

Law: a check is the CRC of the row, of the effects that followed and of the check before, so that a replay
which decides otherwise is noticed at the event where it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from zlib import crc32

import msgspec
from replkernel_scheduler.harvest.types import HarvestEffect, HarvestEvent
from replkernel_scheduler.settings import CoreSettings
from sqlalchemy import BigInteger, Column, Double, Integer, LargeBinary, MetaData, Table, Text

from replkernel_server.errors import BadRequest

VERSION = 2
VERSION_WITHOUT_SNAPSHOTS = 1
"""Read as well, and turned into VERSION by who writes it next."""
EVENTS_MAX = 10_000_000
PAGE = 1_000
NEW = (
    "start once with --new-journal, which sets it aside (hosts come back by themselves, leases are asked for "
    "anew)"
)

TABLES = MetaData()
HEAD = Table(
    "replkernel_head",
    TABLES,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
)
EVENT = Table(
    "replkernel_event",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("wall", Double, nullable=False),
    Column("event", Text, nullable=False),
    Column("proof", BigInteger, nullable=False),
)
USAGE = Table(
    "replkernel_usage",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("wall", Double, nullable=False, index=True),
    Column("usage", Text, nullable=False),
)
SNAPSHOT = Table(
    "replkernel_snapshot",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("format", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("wall", Double, nullable=False),
    Column("proof", BigInteger, nullable=False),
    Column("made", Double, nullable=False),
    Column("parts", Integer, nullable=False),
    Column("digest", Text, nullable=False),
)
SNAPSHOT_PART = Table(
    "replkernel_snapshot_part",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)
PAST = Table(
    "replkernel_past",
    TABLES,
    Column("at", Double, primary_key=True, autoincrement=False),
    Column("sample", Text, nullable=False),
)


class Head(msgspec.Struct, frozen=True):
    """What the core of this journal was made of."""

    seed: int
    fence: int
    policies: dict[str, str]
    settings: CoreSettings


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event as the journal has it."""

    number: int
    at: float
    wall: float
    event: str
    proof: int


class UsageEntry(msgspec.Struct, frozen=True, gc=False):
    """One row of the accounts; `wall` is when the use was over, as Unix time."""

    number: int
    part: int
    wall: float
    usage: str


class SnapshotHead(msgspec.Struct, frozen=True):
    """A snapshot of the core behind event `number`, made at `made` (Unix time); the times are its."""

    number: int
    format: int
    at: float
    wall: float
    proof: int
    made: float
    parts: int
    digest: str


def as_text(event: HarvestEvent) -> bytes:
    """Return an event as the journal has it; raise BadRequest if it has a number that JSON has not."""
    text = msgspec.json.encode(event)
    if b"null" in text and not _is_finite(msgspec.to_builtins(event)):
        raise BadRequest(f"{type(event).__name__} holds an infinite number, or NaN: send a finite one.")
    return text


def _is_finite(plain: object) -> bool:
    if isinstance(plain, dict):
        return all(_is_finite(part) for part in plain.values())
    if isinstance(plain, (list, tuple)):
        return all(_is_finite(part) for part in plain)
    return not isinstance(plain, float) or isfinite(plain)


def outcome(effects: Sequence[HarvestEffect] | Exception) -> bytes:
    """Return the bytes that stand for what followed from an event."""
    if isinstance(effects, Exception):
        return f"raised {type(effects).__name__}".encode()
    return msgspec.json.encode(effects)


def proof(before: int, number: int, at: float, event: bytes, followed: bytes) -> int:
    """Return the check of a row that follows one whose check is `before`."""
    return crc32(followed, crc32(event, crc32(b"%d %s " % (number, repr(at).encode()), before)))
