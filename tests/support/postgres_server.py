"""A PostgreSQL server of a test's own: in a new directory, on a Unix socket alone, ended with the test.

The one that REPLKERNEL_TEST_POSTGRES names is used instead. Where neither can be, `why_not` says why.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
from replkernel_server.scheduling.journal_place import JournalPlace
from sqlalchemy import create_engine, make_url, text

from tests.support.ending import end_process

VARIABLE = "REPLKERNEL_TEST_POSTGRES"
PLACES = ("/usr/lib/postgresql/*/bin/initdb", "/usr/pgsql-*/bin/initdb")
STARTS_S_MAX = 60.0


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    known = sorted(path for place in PLACES for path in Path("/").glob(place[1:]))
    return known[-1].parent if known else None


def why_not() -> str:
    """Say why there is no server to test with; an empty text if there is one."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed: pip install 'replkernel[postgres]'"
    if not os.environ.get(VARIABLE) and _programs() is None:
        return f"no PostgreSQL is installed, and {VARIABLE} names no server (postgresql://user@host/database)"
    return ""


class PostgresServer:
    """A server that runs, with `url` for its first database."""

    def __init__(self, directory: Path) -> None:
        """Make it, and start it."""
        programs = _programs()
        assert programs is not None
        self._programs, self._data, self._directory = programs, directory / "data", directory
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(directory, self._user)
        self._run("initdb", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "-D", str(self._data))
        self.url = f"postgresql://postgres@/postgres?host={directory}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            [self._programs / "postgres", "-D", self._data, "-k", self._directory, "-c", "listen_addresses="],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._directory,
            user=self._user if os.geteuid() == 0 else None,
        )
        until = time.monotonic() + STARTS_S_MAX
        ready = [self._programs / "pg_isready", "-q", "-h", self._directory]
        while subprocess.run(ready, check=False).returncode:
            if time.monotonic() > until or self.process.poll() is not None:
                raise AssertionError("PostgreSQL does not start")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as a power cut would."""
        processes = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        for process in processes:  # A new server refuses to start while one of them is left.
            end_process(process.pid)

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()

    def _run(self, program: str, *options: str) -> None:
        user = self._user if os.geteuid() == 0 else None
        command = [self._programs / program, *options]
        subprocess.run(command, check=True, capture_output=True, user=user, cwd=self._directory)


@contextlib.contextmanager
def postgres() -> Iterator[tuple[str, PostgresServer | None]]:
    """Have a server; yield its URL, and itself if it is one of the test's own."""
    named = os.environ.get(VARIABLE, "")
    if named:
        yield named, None
        return
    directory = Path(tempfile.mkdtemp(prefix="rkpg"))
    server = None
    try:
        server = PostgresServer(directory)
        yield server.url, server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def new_database(server: str) -> Iterator[str]:
    """Make a database on a server; yield its URL."""
    name = f"rk_{uuid.uuid4().hex}"
    admin = create_engine(JournalPlace(server).url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(server).set(database=name).render_as_string(hide_password=False)
    admin.dispose()
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()
