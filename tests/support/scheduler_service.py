"""The scheduler's service as a process that a test starts, asks, kills and starts again."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from replkernel_scheduler.effects import LeaseChanged, LeaseEnded, LeaseGranted
from replkernel_scheduler.harvest.types import HarvestEvent
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.recovery import make_beside
from replkernel_server.service import main

from tests.support import forked_scheduler
from tests.support.lab import Server
from tests.support.ports import free_port

PROGRAM = [sys.executable, "-m", "replkernel.cli", "scheduler"]


def scheduler_files() -> Path:
    """Return the directory of the token and the journal."""
    return Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "scheduler"


class Service:
    """A running service; `rest` asks it."""

    def __init__(self, *options: str) -> None:
        """Start it and wait until it listens, at a port that stays its own while it is away."""
        options = options if "--port" in options else ("--port", str(free_port()), *options)
        self.process = forked_scheduler.start(*options) or subprocess.Popen(
            [*PROGRAM, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
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
        return self.process.wait(), said


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Service]:
    """Start the service, and leave none behind."""
    service = Service(*options)
    try:
        yield service
    finally:
        service.kill()


def refused(*options: str) -> str:
    """Have a service refuse to start, in this process; return the sentence that it says.

    One that starts after all ends by itself, for nobody comes.
    """
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(["--port", "0", "--idle", "0.5", *options])
    assert code == 1, said.getvalue()
    assert "Traceback" not in said.getvalue()
    return said.getvalue().strip()


def refused_process(*options: str) -> str:
    """Start a process of the service that must not start; return the sentence that it says."""
    done = subprocess.run(
        [*PROGRAM, "--port", "0", *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


def no_gpu_was_ever_leased_twice() -> int:
    """Replay the journal on the disk, and return how many leases it granted."""
    journal = Journal(JournalPlace(f"sqlite:///{scheduler_files() / 'journal.sqlite'}"))
    head = journal.head()
    assert head is not None
    core, held, granted = make_beside(head), dict[str, str](), set[str]()
    for entry in journal.entries():
        for effect in core.handle(msgspec.json.decode(entry.event, type=HarvestEvent), entry.at):
            if isinstance(effect, LeaseChanged):
                for gpu in [gpu for gpu, lease in held.items() if lease == effect.lease.lease]:
                    if gpu not in effect.lease.gpus:
                        del held[gpu]
            elif isinstance(effect, LeaseGranted):
                for gpu in effect.lease.gpus:
                    assert held.setdefault(gpu, effect.lease.lease) == effect.lease.lease
                granted.add(effect.lease.lease)
            elif isinstance(effect, LeaseEnded):
                for gpu in effect.lease.gpus:
                    del held[gpu]
        core.check_invariants()
    journal.close()
    return len(granted)
