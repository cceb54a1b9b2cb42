"""Schedulers forked from one process that has imported what they need: most of a scheduler's start is that.

That process is scheduler_forking.py, one for each process of tests, as long as these last.

Law: what Python reads of its environment when it starts is as in the process that forks, or none is forked.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from tests.support import left_open
from tests.support.forked import Signalled

READ_AT_STARTS = ("PYTHON", "LD_")
"""The variables whose names begin so."""
FORKING = "tests.support.scheduler_forking"
END_S = 60.0


class ForkedScheduler(Signalled):
    """A forked scheduler; of `subprocess.Popen` it has what tests need."""

    def __init__(self, arguments: Sequence[str], parent: socket.socket) -> None:
        self.returncode: int | None = None
        """How it ended, as far as was looked."""
        asked = {"arguments": list(arguments), "environment": dict(os.environ), "directory": os.getcwd()}
        pipes = [os.pipe() for _ in range(3)]
        socket.send_fds(parent, [json.dumps(asked).encode()], [theirs for _, theirs in pipes])
        for _, theirs in pipes:
            os.close(theirs)
        self.stdout, self.stderr, self._told = (os.fdopen(ours) for ours, _ in pipes)
        self.pid = int(self._told.readline())
        left_open.forked_pids.add(self.pid)

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        if self.returncode is None and select.select([self._told], (), (), 0.0)[0]:
            self.returncode = int(self._told.readline())
            self._told.close()
            left_open.forked_pids.discard(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises TimeoutExpired."""
        if self.returncode is None:
            select.select([self._told], (), (), END_S if timeout is None else timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"the forked scheduler {self.pid}", timeout or END_S)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return what was not read of its output and errors."""
        said: list[str] = []
        deadline = time.monotonic() + (END_S if timeout is None else timeout)
        while not self.stderr.closed and _readable(self.stderr, deadline):
            if not (more := os.read(self.stderr.fileno(), 1 << 16)):
                break
            said.append(more.decode())
        self.wait(max(0.0, deadline - time.monotonic()))
        output = "" if self.stdout.closed else self.stdout.read()
        self.stdout.close()
        self.stderr.close()
        return output, "".join(said)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


_parent: tuple[subprocess.Popen[bytes], socket.socket, dict[str, str]] | None = None


def start(*arguments: str) -> ForkedScheduler | None:
    """Fork a scheduler with the environment of this process; None if one like this has to be started anew."""
    global _parent
    if _parent is None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", FORKING, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        left_open.lasting_pids.add(process.pid)
        left_open.lasting_sockets.add(ours)
        _parent = (process, ours, _read_at_starts(os.environ))
    _, link, before = _parent
    return ForkedScheduler(arguments, link) if before == _read_at_starts(os.environ) else None


def end_parent() -> None:
    """End the process that forks, with the session."""
    global _parent
    if _parent is not None:
        process, link, _ = _parent
        link.close()
        process.wait(END_S)
        _parent = None


def _readable(file: TextIO, deadline: float) -> bool:
    return bool(select.select([file], (), (), max(0.0, deadline - time.monotonic()))[0])


def _read_at_starts(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_STARTS)}
