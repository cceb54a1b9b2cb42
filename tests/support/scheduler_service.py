"""The scheduler's service as a process that a test starts, asks, kills and starts again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.lab import Server

PROGRAM = [sys.executable, "-m", "replkernel.cli", "scheduler"]


def scheduler_files() -> Path:
    """Return the directory of the token and the journal."""
    return Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "scheduler"


class Service:
    """A running service; `rest` asks it."""

    def __init__(self, *options: str) -> None:
        """Start it and wait until it listens."""
        command = [*PROGRAM, "--port", "0", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        name, _, self.url = self.process.stdout.readline().strip().partition("=")
        if name != "REPLKERNEL_SCHEDULER_URL":
            raise AssertionError(self.process.communicate()[1])
        token = scheduler_files() / "token"
        self.rest = Server(f"{self.url}/api/v1/", token.read_text(), token)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, str]:
        """Ask it to end; return its exit code and what it said."""
        self.process.terminate()
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Service]:
    """Start the service, and leave none behind."""
    service = Service(*options)
    try:
        yield service
    finally:
        service.kill()


def refused(*options: str) -> str:
    """Start a service that must not start; return the sentence that it says."""
    done = subprocess.run(
        [*PROGRAM, "--port", "0", *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip()
