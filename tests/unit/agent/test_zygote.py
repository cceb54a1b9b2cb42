"""The zygote makes jedi ready in a quiet moment: once, to its end, and never while anything is wanted."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

ZYGOTE = """
import socket, sys, time
from replkernel.agent.io import zygote
from replkernel.kernel import practice, preload

def practise():
    print("begins", flush=True)
    until = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        len("")
    practice._done = True
    print("done", flush=True)

preload.preload_more, practice.practise = lambda: None, practise
zygote._Spawner(socket.socket(fileno=int(sys.argv[1])), []).serve()
"""


class Zygote:
    """A zygote whose practice takes so many seconds."""

    def __init__(self, practice_s: float) -> None:
        self.link, its_end = socket.socketpair()
        environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path), "REPLKERNEL_ZYGOTE_IDLE_S": "0.1"}
        with its_end:
            self.process = subprocess.Popen(
                [sys.executable, "-c", ZYGOTE, str(its_end.fileno()), str(practice_s)],
                env=environment,
                pass_fds=[its_end.fileno()],
                stdout=subprocess.PIPE,
                text=True,
            )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> str:
        """Let it go, and return what it has said meanwhile."""
        self.link.close()
        try:
            return self.process.communicate(timeout=20)[0]
        finally:
            self.process.kill()


@pytest.fixture
def zygote() -> Iterator[Callable[[float], Zygote]]:
    """Return what starts a zygote."""
    started: list[Zygote] = []

    def start(practice_s: float) -> Zygote:
        started.append(Zygote(practice_s))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()
        each.link.close()


def test_the_practice_of_a_quiet_zygote_is_done_and_not_repeated(zygote: Callable[[float], Zygote]) -> None:
    quiet = zygote(0.3)
    assert [quiet.says(), quiet.says()] == ["begins", "done"]
    with pytest.raises(subprocess.TimeoutExpired):
        quiet.process.wait(0.5)
    assert quiet.close() == ""
    assert quiet.process.returncode == 0


def test_a_zygote_that_practises_hears_its_agent_at_once(zygote: Callable[[float], Zygote]) -> None:
    busy = zygote(1e9)
    assert busy.says() == "begins"
    assert busy.close() == ""
    assert busy.process.returncode == 0
