"""A machine of its own inside this one: network, processes, name and sockets apart; what is shared is named.

A machine's only way to another one is the test's wire (`tests/e2e/faults/wire.py`). Law: Unix sockets and
process numbers of one machine mean nothing on another, as between real ones, and all ends with `close`; one
that `shares_processes` has the numbers of this one, and who started processes there ends them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.e2e.faults.hosts import CLONE_NEWNET, in_thread, make_network, may_have_networks
from tests.e2e.faults.wire import Wire

START_S = 10.0
Made = TypeVar("Made")

BEGIN = """
set -e
hostname "$MACHINE"
for place in $OWN; do mount -t tmpfs -o mode=0700 none "$place"; done
for pair in $BOUND; do mount --bind "${pair#*:}" "${pair%%:*}"; done
echo ready
exec sleep infinity
"""


def why_no_machines() -> str:
    """Return why this machine cannot hold others, or an empty string."""
    if os.geteuid() != 0:
        return "only root may make machines of their own (namespaces)"
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not may_have_networks():
        return "no right to make network namespaces with devices in them"
    return ""


class Machine:
    """One machine: its namespaces, held by a process whose end is the machine's."""

    def __init__(
        self,
        name: str,
        address: str,
        wire: Wire,
        own: Sequence[Path],
        bound: Mapping[Path, Path],
        *,
        shares_processes: bool = False,
    ) -> None:
        """`own` are directories that are empty and private here; `bound` are paths that show another one."""
        self.name, self.address = name, address
        self._apart = ["--propagation", "slave"] if shares_processes else ["--pid", "--mount-proc"]
        self._entered = ["-n", "-m", "-u"] if shares_processes else ["-n", "-m", "-p", "-u"]
        self._wire = wire
        self._own, self._bound = own, bound
        self._processes: list[subprocess.Popen[bytes]] = []
        self._network, device = in_thread(lambda: make_network(address, f"tun-{name}"))
        wire.add(name, address, device)
        self._start()

    def _start(self) -> None:
        env = {
            "PATH": os.environ["PATH"],
            "MACHINE": self.name,
            "OWN": " ".join(map(str, self._own)),
            "BOUND": " ".join(f"{place}:{shown}" for place, shown in self._bound.items()),
        }
        unshare = ["unshare", "--mount", "--uts", "--fork", "--kill-child", *self._apart]
        start = partial(
            subprocess.Popen, [*unshare, "sh", "-c", BEGIN], env=env, stdout=subprocess.PIPE, cwd="/"
        )
        self._holder: subprocess.Popen[bytes] = self.inside(start)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n", f"machine {self.name} did not start"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
        self.first = int(children.split()[0])

    def inside(self, work: Callable[[], Made]) -> Made:
        """Do something in the machine's network: sockets that are made there stay in it."""

        def enter_and_work() -> Made:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(self._network, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "the machine's network could not be entered")
            return work()

        return in_thread(enter_and_work)

    def run(
        self, command: Sequence[str], env: Mapping[str, str], log: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process on the machine; it ends with it."""
        enter = ["nsenter", "-t", str(self.first), *self._entered, "--wd=/"]
        with open(log or os.devnull, "ab") as output:
            process = subprocess.Popen(
                [*enter, *command],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def talk(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a process on the machine whose standard streams are here."""
        enter = ["nsenter", "-t", str(self.first), *self._entered, f"--wdns={os.getcwd()}"]
        return subprocess.Popen(
            [*enter, *command], env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, command: Sequence[str], env: Mapping[str, str], within_s: float = 60.0) -> str:
        """Run a command on the machine to its end; return what it said on both streams."""
        enter = ["nsenter", "-t", str(self.first), *self._entered, "--wd=/"]
        done = subprocess.run(
            [*enter, *command],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=within_s,
            check=False,
        )
        return done.stdout.decode(errors="replace")

    def crash(self) -> None:
        """Let the machine lose its power: every process on it is gone at once, its disks stay."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGKILL)
        self._holder.wait(START_S)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(START_S)
        self._processes = []
        if self._holder.stdout is not None:
            self._holder.stdout.close()

    def boot(self) -> None:
        """Bring a machine that has crashed back, with nothing running on it."""
        self._start()

    def cut(self) -> None:
        """Pull its cable: nothing leaves and nothing arrives, and nobody is told."""
        self._set_cuts(1)

    def mend(self) -> None:
        """Put its cable back."""
        self._set_cuts(0)

    def _set_cuts(self, cuts: int) -> None:
        with self._wire.lock:
            for other in self._wire.hosts():
                if other != self.name:
                    self._wire.links.link(self.name, other).cuts = cuts
                    self._wire.links.link(other, self.name).cuts = cuts

    def close(self) -> None:
        """End it all."""
        self.crash()
        os.close(self._network)


def wait_until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait until something holds, which must be within the time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)
