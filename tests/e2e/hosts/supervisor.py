"""What holds for one end-to-end test that is run across machines: directories, hosts, supervised agents.

A router starts no agent on another machine again that has died there: on each host a supervisor does
(docs/run/several-hosts.md), and here a thread for all of them. Law: whoever holds the lock of starters keeps
an agent from being started, and what a test started on a machine ends with the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from replkernel.agent.io.start import Start, begin
from tests.e2e.faults.hosts import kill, lives
from tests.support.ending import end_agents

PLACE = "REPLKERNEL_TEST_HOSTS"
"""Names the directory of what the machines are, on the machine of pytest."""
HOSTS = "gpu1,gpu2,gpu3"
LOOK_S = 0.1
RESTART_S = 0.5
"""An agent is started again so long after its end: a test that takes its disk too has done so by then."""
STOP_S = 30.0
_numbers = count(1)


@contextlib.contextmanager
def site_of_a_test(*, spread: bool = True) -> Iterator[dict[str, str]]:
    """Hold machines ready for a test; yield the settings it is run with, and end all that it started there.

    With `spread` each replica is on a host of its own, else all are on one, which is yet another machine than
    pytest's. A test in a class or module that has them is given nothing more.
    """
    place = Path(os.environ[PLACE])
    if any((place / "s").iterdir()):
        yield {}
        return
    machines = json.loads((place / "machines.json").read_text())
    sockets = place / "s" / str(next(_numbers))
    sockets.mkdir(mode=0o700)
    supervisor = Supervisor(place)
    supervisor.start()
    try:
        yield {"REPLKERNEL_SOCKET_DIR": str(sockets)} | ({"REPLKERNEL_HOSTS": HOSTS} if spread else {})
    finally:
        end_agents(os.environ)
        supervisor.close()
        for holder, _ in machines.values():
            clear(holder)
        for directory in ("hosts", "environments"):
            for file in (place / directory).iterdir():
                file.unlink()
        shutil.rmtree(sockets, ignore_errors=True)


class Supervisor(threading.Thread):
    """Starts an agent again that routers have started and that was killed."""

    def __init__(self, place: Path) -> None:
        super().__init__(name="supervisor", daemon=True)
        self._environments = place / "environments"
        self._begun: list[Start] = []
        self._gone_at: dict[str, float] = {}
        self._closing = threading.Event()

    def run(self) -> None:
        """Look from time to time."""
        while not self._closing.wait(LOOK_S):
            self._let_go()
            for file in self._environments.iterdir():
                with contextlib.suppress(OSError, ValueError, KeyError):
                    self._look(file)
        for start in self._begun:
            start.close()

    def _look(self, file: Path) -> None:
        if file.suffix == ".new":
            return
        env = json.loads(file.read_text())
        said = Path(env["JUPYTER_DATA_DIR"], "replkernel", "agents", file.name, "agent.json")
        if said.exists():
            gone = not lives(int(json.loads(said.read_text())["pid"]))
        else:
            gone = not said.parent.exists()  # One that ends by itself takes its file along, and that alone.
        if not gone:
            self._gone_at.pop(file.name, None)
        elif time.monotonic() - self._gone_at.setdefault(file.name, time.monotonic()) >= RESTART_S:
            start = begin(file.name, env)
            if start is not None:
                del self._gone_at[file.name]
                self._begun.append(start)

    def _let_go(self) -> None:
        """Let others start agents again once those that were started listen, or have ended."""
        for start in list(self._begun):
            os.set_blocking(start.said, False)
            with contextlib.suppress(BlockingIOError):
                os.read(start.said, 64)
                start.close()
                self._begun.remove(start)

    def close(self) -> None:
        """Start none any more."""
        self._closing.set()
        self.join()


def clear(holder: int) -> None:
    """Kill whatever is left on a machine but the process that holds it, and that one's parent."""
    network = os.stat(f"/proc/{holder}/ns/net").st_ino
    kept = {holder, int(Path(f"/proc/{holder}/stat").read_text().rpartition(")")[2].split()[1])}
    deadline = time.monotonic() + STOP_S
    while left := [pid for pid in _processes_of(network) if pid not in kept]:
        assert time.monotonic() < deadline, f"processes {left} do not end"
        for pid in left:
            kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes_of(network: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "ns" / "net").stat().st_ino == network and lives(int(entry.name)):
                found.append(int(entry.name))
    return found
