"""The journal: every event that the core was given, in order, and the rows of the accounts.

| table | a row is |
|---|---|
| replkernel_head | the version, and as JSON what the core was made of: seed, fence, policies, settings |
| replkernel_event | an event as JSON, its number (from 1, no gap), the core's time, the wall clock, a check |
| replkernel_usage | what one lease cost, as JSON, in the transaction of the event that ended its use |

Law: rows are only added. A check is the CRC of the row, of the effects that followed and of the check before,
so that a replay which decides otherwise is noticed at the event where it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import CellUsage
from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text, insert, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from replkernel_server.errors import JournalFailed, JournalRefused
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.settings import DATABASE

VERSION = 1
EVENTS_MAX = 10_000_000
PAGE = 1_000
NEW = (
    "start once with --new-journal, which sets it aside (hosts come back by themselves, leases are asked for "
    "anew)"
)

_tables = MetaData()
HEAD = Table(
    "replkernel_head",
    _tables,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
)
EVENT = Table(
    "replkernel_event",
    _tables,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("wall", Double, nullable=False),
    Column("event", Text, nullable=False),
    Column("proof", BigInteger, nullable=False),
)
USAGE = Table(
    "replkernel_usage",
    _tables,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("wall", Double, nullable=False, index=True),
    Column("usage", Text, nullable=False),
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


def outcome(effects: Sequence[Effect] | Exception) -> bytes:
    """Return the bytes that stand for what followed from an event."""
    if isinstance(effects, Exception):
        return f"raised {type(effects).__name__}".encode()
    return msgspec.json.encode(effects)


def proof(before: int, number: int, at: float, event: bytes, followed: bytes) -> int:
    """Return the check of a row that follows one whose check is `before`."""
    return crc32(followed, crc32(event, crc32(b"%d %s " % (number, repr(at).encode()), before)))


class Journal:
    """An open journal, which this process alone writes."""

    def __init__(self, place: JournalPlace) -> None:
        """Lock and open it, making the tables on first use; raise JournalRefused if that cannot be."""
        place.lock()
        self.place = place
        try:
            self._engine = place.engine()
            self._writing = self._engine.connect()
            place.claim(self._writing)
            self._make_tables()
        except SQLAlchemyError as error:
            place.unlock()
            raise JournalRefused(unusable(place, error)) from error
        except JournalRefused:
            place.unlock()
            raise

    def _make_tables(self) -> None:
        """Make the tables of a new journal; refuse another program's file, and a journal that lacks one."""
        found = set(inspect(self._writing).get_table_names())
        begun = HEAD.name in found and self._writing.execute(select(HEAD.c.version)).first() is not None
        self._writing.rollback()
        missing = set(_tables.tables) - found
        if begun and missing:
            raise self.damaged(f"it has no table {min(missing)}")
        if found and HEAD.name not in found and self.place.path is not None:
            raise JournalRefused(
                f"{self.place.path} is a database, but no scheduler's journal: name another file with "
                f"{DATABASE}."
            )
        _tables.create_all(self._writing)
        self._writing.commit()

    def head(self) -> Head | None:
        """Return the head, None if the journal is new; refuse another version, or one that cannot be read."""
        try:
            rows = self._writing.execute(select(HEAD)).all()
            self._writing.rollback()
        except SQLAlchemyError as error:
            raise JournalRefused(unusable(self.place, error)) from error
        if not rows:
            return None
        if [row.version for row in rows] != [VERSION]:
            named = ", ".join(str(row.version) for row in rows)
            raise JournalRefused(
                f"The journal {self.place.name} is of version {named}, and this program reads version "
                f"{VERSION}: use the program that wrote it, or {NEW}."
            )
        try:
            return msgspec.json.decode(rows[0].document, type=Head)
        except msgspec.MsgspecError as error:
            raise self.damaged(f"its head does not fit ({error})") from error

    def begin(self, head: Head) -> None:
        """Write the head of a new journal."""
        document = msgspec.json.encode(head).decode()
        self._write([(HEAD, [{"version": VERSION, "document": document}])])

    def entries(self) -> Iterator[Entry]:
        """Yield all events, oldest first."""
        last = 0
        while True:
            query = select(EVENT).where(EVENT.c.number > last).order_by(EVENT.c.number).limit(PAGE)
            try:
                rows = self._writing.execute(query).all()
                self._writing.rollback()
            except SQLAlchemyError as error:
                raise self.damaged(f"after event {last} it cannot be read: {reason(error)}") from error
            yield from (Entry(*row) for row in rows)
            if len(rows) < PAGE:
                return
            last = rows[-1].number

    def append(self, entries: Sequence[Entry], usage: Sequence[UsageEntry]) -> None:
        """Add rows and commit; raise JournalFailed if they are not on the disk for certain."""
        work = [(EVENT, [msgspec.structs.asdict(entry) for entry in entries])]
        if usage:
            work.append((USAGE, [msgspec.structs.asdict(entry) for entry in usage]))
        self._write(work)

    def usage(self, since: float, after: tuple[int, int]) -> list[tuple[UsageEntry, CellUsage]]:
        """Return up to PAGE rows of the accounts since `since` (Unix time), behind the row `after`."""
        number, part = after
        behind = (USAGE.c.number > number) | ((USAGE.c.number == number) & (USAGE.c.part > part))
        query = select(USAGE).where(USAGE.c.wall >= since, behind)
        try:
            with self._engine.connect() as connection:
                rows = connection.execute(query.order_by(USAGE.c.number, USAGE.c.part).limit(PAGE)).all()
        except SQLAlchemyError as error:
            raise JournalFailed(
                f"The accounts in {self.place.name} cannot be read ({reason(error)}): repair the database."
            ) from error
        entries = [UsageEntry(*row) for row in rows]
        return [(entry, msgspec.json.decode(entry.usage, type=CellUsage)) for entry in entries]

    def damaged(self, what: str) -> JournalRefused:
        """Return the error that says what is wrong with the journal, and what to do."""
        return JournalRefused(
            f"The journal {self.place.name} is damaged: {what}. Bring back a copy of it, or {NEW}."
        )

    def close(self) -> None:
        """Close it and let others use it."""
        self._writing.close()
        self._engine.dispose()
        self.place.unlock()

    def _write(self, work: list[tuple[Table, list[dict[str, object]]]]) -> None:
        try:
            for table, rows in work:
                self._writing.execute(insert(table), rows)
            self._writing.commit()
        except SQLAlchemyError as error:
            raise JournalFailed(
                f"The journal {self.place.name} cannot be written ({reason(error)}): make room or repair the "
                "database, then start the scheduler again; nothing that was answered is lost."
            ) from error


def reason(error: SQLAlchemyError) -> str:
    """Return the database's own words, without the statement and what it held."""
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else type(error).__name__).split())


def unusable(place: JournalPlace, error: SQLAlchemyError) -> str:
    """Say that a database cannot be used."""
    said = reason(error)
    if "locked" in said:
        return f"The journal {place.name} is locked by another program that writes to it: end that one first."
    if "not a database" in said or "malformed" in said:
        return f"The journal {place.name} is damaged ({said}). Bring back a copy of it, or {NEW}."
    return f"The journal {place.name} cannot be used ({said}): correct {DATABASE}, or start the database."
