"""Reads a journal: its head, its events, its snapshots.

Law: it changes nothing, so that another process may read what a scheduler writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, func, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from replkernel.errors import UNREADABLE
from replkernel_server.errors import JournalAway, JournalRefused
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.journal_tables import (
    EVENT,
    HEAD,
    NEW,
    PAGE,
    SNAPSHOT,
    SNAPSHOT_PART,
    VERSION,
    VERSION_WITHOUT_SNAPSHOTS,
    Entry,
    Head,
    SnapshotHead,
)
from replkernel_server.scheduling.settings import DATABASE

SNAPSHOTS_MAX = 16
"""So many are looked at; there are never more than three."""


class JournalReading:
    """The journal behind one connection."""

    def __init__(self, place: JournalPlace, connection: Connection) -> None:
        """Read by `connection`, which nobody else uses meanwhile."""
        self.place, self._connection = place, connection

    def head(self) -> Head | None:
        """Return the head, None if the journal is new; refuse another version, or one that cannot be read."""
        try:
            rows = self._rows(select(HEAD))
        except SQLAlchemyError as error:
            raise unusable(self.place, error) from error
        if not rows:
            return None
        if len(rows) > 1 or rows[0].version not in (VERSION, VERSION_WITHOUT_SNAPSHOTS):
            named = ", ".join(str(row.version) for row in rows)
            raise JournalRefused(
                f"The journal {self.place.name} is of version {named}, and this program reads version "
                f"{VERSION}: use the program that wrote it, or {NEW}."
            )
        try:
            return msgspec.json.decode(rows[0].document, type=Head)
        except UNREADABLE as error:
            raise self.damaged(f"its head does not fit ({error})") from error

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the events behind number `after`, oldest first."""
        last = after
        while True:
            query = select(EVENT).where(EVENT.c.number > last).order_by(EVENT.c.number).limit(PAGE)
            try:
                rows = self._rows(query)
            except SQLAlchemyError as error:
                raise self.damaged(f"after event {last} it cannot be read: {reason(error)}") from error
            yield from (Entry(*row) for row in rows)
            if len(rows) < PAGE:
                return
            last = rows[-1].number

    def first(self) -> int | None:
        """Return the number of the oldest event that is there, None if there is none."""
        try:
            found: int | None = self._rows(select(func.min(EVENT.c.number)))[0][0]
        except SQLAlchemyError as error:
            raise self.damaged(f"it cannot be read: {reason(error)}") from error
        return found

    def snapshots(self) -> list[SnapshotHead]:
        """Return what snapshots there are, newest first."""
        query = select(SNAPSHOT).order_by(SNAPSHOT.c.number.desc()).limit(SNAPSHOTS_MAX)
        try:
            return [SnapshotHead(*row) for row in self._rows(query)]
        except SQLAlchemyError as error:
            raise self.damaged(f"its snapshots cannot be read: {reason(error)}") from error

    def snapshot_parts(self, number: int) -> Iterator[bytes]:
        """Yield the pieces of a snapshot, in their order."""
        query = select(SNAPSHOT_PART.c.part).where(SNAPSHOT_PART.c.number == number)
        try:
            for (part,) in self._rows(query.order_by(SNAPSHOT_PART.c.part)):
                one = (SNAPSHOT_PART.c.number == number) & (SNAPSHOT_PART.c.part == part)
                yield from (bytes(row.data) for row in self._rows(select(SNAPSHOT_PART.c.data).where(one)))
        except SQLAlchemyError as error:
            raise self.damaged(f"its snapshot {number} cannot be read: {reason(error)}") from error

    def damaged(self, what: str) -> JournalRefused:
        """Return the error that says what is wrong with the journal, and what to do."""
        return JournalRefused(
            f"The journal {self.place.name} is damaged: {what}. Bring back a copy of it, or {NEW}."
        )

    def _rows(self, query: Select[Any]) -> Sequence[Any]:
        try:
            return self._connection.execute(query).all()
        finally:
            with suppress(SQLAlchemyError):
                self._connection.rollback()


def reason(error: SQLAlchemyError) -> str:
    """Return the database's own words, without the statement and what it held."""
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else type(error).__name__).split())


def unusable(place: JournalPlace, error: SQLAlchemyError) -> JournalRefused:
    """Return the error that says why a database cannot be used."""
    said = reason(error)
    if "locked" in said:
        return JournalAway(
            f"The journal {place.name} is locked by another program that writes to it: end that one first."
        )
    if "not a database" in said or "malformed" in said:
        return JournalRefused(
            f"The journal {place.name} is damaged ({said}). Bring back a copy of it, or {NEW}."
        )
    return JournalAway(
        f"The journal {place.name} cannot be used ({said}): correct {DATABASE}, or start the database."
    )
