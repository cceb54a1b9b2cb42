"""Kernel processes forked from one zygote, as agents fork them: no test waits for IPython to be imported.

Law: a zygote is shared by processes whose imports could not differ, and ends with the process of the tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

from replkernel.agent.io.spawning_place import ZygoteKey, spawn_zygote, zygote_key
from replkernel.agent.io.zygote_wire import (
    ForkKernel,
    ForkRefused,
    FrameReader,
    KernelExited,
    KernelForked,
    report_decoder,
    send_frame,
)
from replkernel.kernel.birth import Birth, encode_birth
from tests.support import left_open

FORK_S = 60.0
LOOK_S = 0.01
OWN_DIRECTORIES = frozenset({"MPLCONFIGDIR"})
"""Each test has its own, and what is imported does not depend on them."""


class Signalled:
    """What can be signalled, of a process that another one forked."""

    pid: int

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        raise NotImplementedError

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkedProcess(Signalled):
    """A process that a zygote forked; of `subprocess.Popen` it has what tests need."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid

    @property
    def returncode(self) -> int | None:
        """Return how it ended, as far as is known."""
        return self._zygote.ended.get(self.pid)

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        self._zygote.hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises TimeoutExpired."""
        deadline = time.monotonic() + (FORK_S if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"the forked process {self.pid}", timeout or FORK_S)
            time.sleep(LOOK_S)
        return code


class Zygote:
    """One zygote and its children."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.ended: dict[int, int] = {}
        """How those that ended did."""
        self.pid, self._link, _ = spawn_zygote(sys.executable, env, (), os.devnull)
        left_open.lasting_pids.add(self.pid)
        left_open.lasting_sockets.add(self._link)
        self._reader = FrameReader()
        self._forked: list[int] = []

    def fork(self, birth: Birth) -> ForkedProcess:
        """Have a kernel process."""
        self._forked.clear()
        send_frame(self._link, ForkKernel(1, encode_birth(birth)))
        deadline = time.monotonic() + FORK_S
        while not self._forked:
            assert time.monotonic() < deadline, f"the zygote does not fork within {FORK_S:g} s"
            self.hear(1.0)
        return ForkedProcess(self, self._forked.pop())

    def hear(self, within_s: float) -> None:
        """Take what it says, waiting so long for it."""
        self._link.settimeout(within_s)
        try:
            data = self._link.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            return
        finally:
            self._link.settimeout(None)
        assert data, "the zygote has ended"
        for body in self._reader.feed(data):
            match report_decoder.decode(body):
                case KernelForked(pid=pid):
                    self.ended.pop(pid, None)
                    self._forked.append(pid)
                case KernelExited(pid=pid, wait_status=status):
                    self.ended[pid] = os.waitstatus_to_exitcode(status)
                case ForkRefused(why=why):
                    raise AssertionError(why)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()
        os.waitpid(self.pid, 0)


_zygotes: dict[ZygoteKey, Zygote] = {}


def fork(birth: Birth) -> ForkedProcess:
    """Fork the kernel process of `birth` from a zygote with the imports that it would have itself."""
    env = {name: value for name, value in birth.spec.env.items() if name not in OWN_DIRECTORIES}
    key = zygote_key(sys.executable, env, ())
    if key not in _zygotes:
        _zygotes[key] = Zygote(env)
    return _zygotes[key].fork(birth)


def end_zygotes() -> None:
    """End them, with the session."""
    while _zygotes:
        _zygotes.popitem()[1].close()
