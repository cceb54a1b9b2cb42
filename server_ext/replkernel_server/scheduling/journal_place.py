"""Where the journal lies: an engine for its URL, a private file, and the lock that one scheduler holds.

Law: the one module that knows databases by name. A file that others can read, or that another scheduler uses,
is refused in one sentence with the setting's name; a password is never part of it.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from replkernel.errors import NO_ROOM
from replkernel_server.errors import JournalAway, JournalInUse, JournalRefused
from replkernel_server.scheduling.settings import DATABASE

if TYPE_CHECKING:
    import sqlite3


BUSY_S = 5.0
ROOM_BYTES = 64 * 1024
"""What SQLite writes besides, for a small transaction."""
ADVISORY_LOCK = 7_310_587_214
"""PostgreSQL's advisory lock that a scheduler holds; two schedulers need two databases."""
IN_USE = (
    "is used by another scheduler that runs (a Jupyter Server hosts one too): stop that one, or give this "
    "one a journal of its own with"
)
SQLITE_FILES = ("", "-wal", "-shm")


class JournalPlace:
    """A database that this process alone may write a journal into."""

    def __init__(self, address: str) -> None:
        """Check the address; nothing is opened yet."""
        try:
            self.url: URL = make_url(address)
        except ArgumentError as error:
            raise JournalRefused(
                f"{DATABASE} is not a database URL: write sqlite:////path/to/journal.sqlite or unset it."
            ) from error
        if self.url.drivername == "postgresql":
            self.url = self.url.set(drivername="postgresql+psycopg")
        self.name = f"{DATABASE}={self.url.render_as_string(hide_password=True)}"
        kind = self.url.get_backend_name()
        if kind not in ("sqlite", "postgresql") or not self.url.database or self.url.database == ":memory:":
            raise JournalRefused(
                f"{self.name} is neither a file of SQLite nor a database of PostgreSQL: write "
                "sqlite:////path/to/journal.sqlite or postgresql://user:password@host/database."
            )
        self.path = Path(self.url.database) if kind == "sqlite" else None
        self._lock: int | None = None

    def lock(self) -> None:
        """Make the file, private, and let no other scheduler use it."""
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            mode = self.path.stat().st_mode & 0o777
        except BlockingIOError as error:
            self.unlock()
            raise JournalInUse(f"The journal {self.path} {IN_USE} {DATABASE}.") from error
        except OSError as error:
            self.unlock()
            raise JournalAway(
                f"The journal {self.path} cannot be used ({error.strerror}): make its directory writable, or "
                f"name another file with {DATABASE}."
            ) from error
        if mode & 0o077:
            self.unlock()
            raise JournalRefused(f"The journal {self.path} can be read by others: run chmod 600 {self.path}.")

    def engine(self, *, reads_only: bool = False) -> Engine:
        """Return an engine for the database; one that reads only need not hold the lock."""
        if self.path is None:
            try:
                return create_engine(self.url, pool_pre_ping=True)
            except (NoSuchModuleError, ModuleNotFoundError) as error:
                raise JournalRefused(
                    f"{self.name} needs a driver that is not installed ({error}): pip install "
                    "'replkernel[postgres]', or unset it."
                ) from error
        engine = create_engine(self.url, connect_args={"check_same_thread": False, "timeout": BUSY_S})
        event.listen(engine, "connect", _unchanging if reads_only else _durable)
        return engine

    def claim(self, connection: Connection) -> None:
        """Hold PostgreSQL's lock for as long as `connection` lives; wait for a killed scheduler's to go."""
        if self.path is not None:
            return
        until = time.monotonic() + BUSY_S
        query, number = text("SELECT pg_try_advisory_lock(:number)"), {"number": ADVISORY_LOCK}
        while not (held := connection.execute(query, number).scalar()) and time.monotonic() < until:
            time.sleep(0.1)
        connection.commit()
        if not held:
            raise JournalInUse(f"The journal {self.name} {IN_USE} {DATABASE}.")

    def set_aside(self) -> Path | None:
        """Move the journal's files out of the way; return where it is now, None if there was none."""
        if self.path is None:
            raise JournalRefused(
                f"--new-journal moves files, and {self.name} is none: name an empty database with {DATABASE}."
            )
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        aside = Path(f"{self.path}.{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}")
        for ending in SQLITE_FILES:
            part = Path(f"{self.path}{ending}")
            if part.exists():
                part.rename(f"{aside}{ending}")
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        return aside

    def has_room(self, size: int) -> bool:
        """Say whether so many bytes and a few more can be written beside the file; without one, they can."""
        if self.path is None:
            return True
        trial = Path(f"{self.path}.room")
        try:
            trial.write_bytes(bytes(ROOM_BYTES + size))
        except OSError as error:
            return error.errno not in NO_ROOM
        finally:
            with suppress(OSError):
                trial.unlink()
        return True

    def unlock(self) -> None:
        """Let others use it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _unchanging(connection: sqlite3.Connection, _: object) -> None:
    """Let nothing be changed."""
    connection.execute("PRAGMA query_only=ON")


def _durable(connection: sqlite3.Connection, _: object) -> None:
    """Let a commit survive a loss of power, and readers read while it is made."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
