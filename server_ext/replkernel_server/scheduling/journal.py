"""Writes the journal: every event that the core was given, in order, and the rows of the accounts.

What the tables are is in journal_tables.py. Law: this process alone writes it; rows are added, and none goes
but what a snapshot holds (shortening.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

import msgspec
from replkernel_scheduler.types import CellUsage
from sqlalchemy import ColumnElement, Table, delete, func, insert, inspect, select, update
from sqlalchemy.exc import InvalidRequestError, SQLAlchemyError

from replkernel_server.errors import JournalFailed, JournalFull, JournalRefused
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.journal_reading import JournalReading, reason, unusable
from replkernel_server.scheduling.journal_tables import (
    EVENT,
    HEAD,
    PAGE,
    PAST,
    SNAPSHOT,
    SNAPSHOT_PART,
    TABLES,
    USAGE,
    VERSION,
    VERSION_WITHOUT_SNAPSHOTS,
    Entry,
    Head,
    SnapshotHead,
    UsageEntry,
)
from replkernel_server.scheduling.settings import DATABASE

DISK_FULL = "database or disk is full"
"""SQLite's words, after which its transaction is undone for certain."""
WRITE_FAILED = "SQLITE_IOERR_WRITE"
"""So SQLite calls a quota that is used up, and a broken disk as well; its transaction is undone, too."""


class Journal(JournalReading):
    """An open journal, which this process alone writes."""

    def __init__(self, place: JournalPlace) -> None:
        """Lock and open it, making the tables on first use; raise JournalRefused if that cannot be."""
        with ExitStack() as undo:
            place.lock()
            undo.callback(place.unlock)
            self._engine = place.engine()
            undo.callback(self._engine.dispose)
            try:
                super().__init__(place, self._engine.connect())
                undo.callback(self._connection.close)
                place.claim(self._connection)
                self._own = self._connection.connection.dbapi_connection
                self._make_tables()
            except SQLAlchemyError as error:
                raise unusable(place, error) from error
            undo.pop_all()
        self.held_from = 1
        """The number of the oldest event that is there."""
        self.snapshot: SnapshotHead | None = None
        """The newest snapshot that is of use."""
        self.failures = 0
        """How many could not be made."""

    def _make_tables(self) -> None:
        """Make the tables of a new journal; refuse another program's file, and a journal that lacks one."""
        found = set(inspect(self._connection).get_table_names())
        version = None
        if HEAD.name in found:
            version = self._connection.execute(select(func.min(HEAD.c.version))).scalar()
        self._connection.rollback()
        missing = set(TABLES.tables) - found - {PAST.name}  # Earlier releases made none.
        if version == VERSION_WITHOUT_SNAPSHOTS:
            missing -= {SNAPSHOT.name, SNAPSHOT_PART.name}
        if version is not None and missing:
            raise self.damaged(f"it has no table {min(missing)}")
        if found and HEAD.name not in found and self.place.path is not None:
            raise JournalRefused(
                f"{self.place.path} is a database, but no scheduler's journal: name another file with "
                f"{DATABASE}."
            )
        TABLES.create_all(self._connection)
        if version == VERSION_WITHOUT_SNAPSHOTS:
            self._connection.execute(update(HEAD).values(version=VERSION))
        self._connection.commit()

    def begin(self, head: Head) -> None:
        """Write the head of a new journal."""
        document = msgspec.json.encode(head).decode()
        self._write([(HEAD, [{"version": VERSION, "document": document}])])

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

    def past(self) -> list[str]:
        """Return what looks at the cluster found, oldest first."""
        try:
            return [row.sample for row in self._rows(select(PAST.c.sample).order_by(PAST.c.at))]
        except SQLAlchemyError as error:
            raise self._failed(error) from error

    def add_past(self, at: float, sample: str, since: float) -> None:
        """Add what a look has found, and drop what is from before `since` or from a clock that went wrong."""
        self._delete(PAST, (PAST.c.at < since) | (PAST.c.at >= at))
        self._write([(PAST, [{"at": at, "sample": sample}])])

    # -- what a snapshot makes needless: each of these is one small transaction ---------------------

    def add_part(self, number: int, part: int, data: bytes) -> None:
        """Add a piece of a snapshot that is not there yet."""
        self._write([(SNAPSHOT_PART, [{"number": number, "part": part, "data": data}])])

    def add_snapshot(self, head: SnapshotHead) -> None:
        """Let there be a snapshot, whose pieces are all there."""
        self._write([(SNAPSHOT, [msgspec.structs.asdict(head)])])
        self.snapshot = head

    def drop_snapshot(self, number: int) -> None:
        """Let there be no snapshot behind this event; its pieces are of none then."""
        self._delete(SNAPSHOT, SNAPSHOT.c.number == number)

    def drop_part_of_none(self) -> bool:
        """Take away a piece that is of no snapshot; say whether there was one."""
        none = SNAPSHOT_PART.c.number.not_in(select(SNAPSHOT.c.number))
        rows = self._rows(select(SNAPSHOT_PART.c.number, SNAPSHOT_PART.c.part).where(none).limit(1))
        if not rows:
            return False
        number, part = rows[0]
        self._delete(SNAPSHOT_PART, (SNAPSHOT_PART.c.number == number) & (SNAPSHOT_PART.c.part == part))
        return True

    def drop_events(self, until: int) -> bool:
        """Take away the oldest events up to number `until`, PAGE at most; say whether there were any."""
        first = self.first()
        if first is None or first > until:
            return False
        last = min(until, first + PAGE - 1)
        self._delete(EVENT, EVENT.c.number <= last)
        self.held_from = last + 1
        return True

    def drop_usage(self, keep: int) -> bool:
        """Take away the oldest rows of the accounts beyond `keep`, PAGE at most; say whether it did."""
        newest = select(USAGE.c.number).order_by(USAGE.c.number.desc(), USAGE.c.part.desc())
        beyond = self._rows(newest.offset(keep).limit(1))
        if not beyond:
            return False
        oldest = select(USAGE.c.number).order_by(USAGE.c.number, USAGE.c.part).limit(PAGE)
        last = min(beyond[0].number, self._rows(oldest)[-1].number)
        self._delete(USAGE, USAGE.c.number <= last)
        return True

    def close(self) -> None:
        """Close it and let others use it."""
        self._connection.close()
        self._engine.dispose()
        self.place.unlock()

    def _delete(self, table: Table, where: ColumnElement[bool]) -> None:
        try:
            self._still_ours()
            self._connection.execute(delete(table).where(where))
            self._connection.commit()
        except SQLAlchemyError as error:
            raise self._failed(error) from error

    def _write(self, work: list[tuple[Table, list[dict[str, object]]]]) -> None:
        try:
            self._still_ours()
            for table, rows in work:
                self._connection.execute(insert(table), rows)
            self._connection.commit()
        except SQLAlchemyError as error:
            size = sum(
                len(value)
                for _, rows in work
                for row in rows
                for value in row.values()
                if isinstance(value, str | bytes)
            )
            raise self._failed(error, size) from error

    def _still_ours(self) -> None:
        """Raise if the connection was lost, and with it PostgreSQL's lock: another may have that."""
        if self._connection.invalidated or self._connection.connection.dbapi_connection is not self._own:
            raise InvalidRequestError("the connection was lost")

    def _failed(self, error: SQLAlchemyError, size: int = 0) -> JournalFailed:
        """Undo what was begun, and return what is to be said; `size` bytes were to be written."""
        with suppress(SQLAlchemyError):
            self._connection.rollback()
        failed_as = getattr(getattr(error, "orig", None), "sqlite_errorname", "")
        if DISK_FULL in reason(error) or (failed_as == WRITE_FAILED and not self.place.has_room(2 * size)):
            return JournalFull(
                f"There is no room for the journal {self.place.name}: nothing new is leased until there is; "
                "make room on its disk."
            )
        return JournalFailed(
            f"The journal {self.place.name} cannot be written ({reason(error)}): make room or repair the "
            "database, then start the scheduler again; nothing that was answered is lost."
        )
