"""The launcher of a host: what it tells its cell, how long it lives, and what it leaves on the host."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from replkernel.agent.io.death import start_time
from replkernel.hosts.far_sockets import listen_far, new_keys
from replkernel.hosts.reach import Reach
from replkernel.protocol.message import decoder, encode
from replkernel.ranks import launcher
from replkernel.ranks.launcher import Launcher, free_port
from replkernel.ranks.words import Begin, Ended, FromLauncher, Here, Orders, Program, Stop, Wrote
from tests.support.live import eventually

WAIT_S = 20.0


class Cell:
    """The notebook's side, in the test's own hands; the launcher has its turns while the cell waits."""

    def __init__(self, place: Path) -> None:
        self.socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.endpoint = listen_far(self.socket, Reach(), new_keys(), beats=True)
        self.place = place
        orders = Orders("g", "h1", ("GPU-1", "GPU-2"), str(place), self.endpoint, str(place))
        self.launcher = Launcher(orders, dict(os.environ))
        self.launcher.start()
        self.heard: list[object] = []
        self.peer = b""
        self._decoder = decoder(FromLauncher)

    def take(self) -> None:
        """Take what the launcher has sent."""
        while self.socket.poll(0):
            self.peer, data = self.socket.recv_multipart()
            self.heard.append(self._decoder.decode(data))

    def until(self, what: Callable[[], object]) -> None:
        """Give the launcher its turns until something is so."""
        until = time.monotonic() + WAIT_S
        while not what():
            assert time.monotonic() < until, self.heard
            self.launcher.turn()
            self.take()

    def begin(self, source: str, count: int = 1) -> None:
        """Have it start processes."""
        self.until(lambda: any(isinstance(each, Here) for each in self.heard))
        program = msgspec.msgpack.encode(Program(source, {}, {}, (), (), ()))
        self.send(Begin(0, count, count, "127.0.0.1", 2001, program))
        self.until(lambda: self.launcher.ranks)

    def send(self, message: Begin | Stop) -> None:
        """Tell the launcher something."""
        self.socket.send_multipart([self.peer, encode(message)])

    def ended(self) -> list[int]:
        """Return which ranks it has told to be over."""
        return sorted(each.rank for each in self.heard if isinstance(each, Ended))

    def wrote(self, stream: str = "stdout", rank: int = 0) -> list[str]:
        """Return what a process has written, as it came."""
        mine = (each for each in self.heard if isinstance(each, Wrote))
        return [each.text for each in mine if (each.rank, each.stream) == (rank, stream)]

    def close(self) -> None:
        """End both."""
        self.launcher.close()
        self.socket.close()


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Cell]:
    made = Cell(tmp_path)
    yield made
    made.close()


def test_a_launcher_stays_while_the_cell_does_though_its_own_processes_are_over(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell.begin("print('done')", 2)
    monkeypatch.setattr(launcher, "FIRST_S", 0.01)
    cell.until(lambda: cell.ended() == [0, 1])
    at = time.monotonic()
    cell.until(lambda: time.monotonic() > at + 0.5)
    assert not cell.launcher.over
    cell.send(Stop())
    cell.until(lambda: cell.launcher.over)


def test_a_cell_that_says_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "FIRST_S", 0.3)
    cell = Cell(tmp_path)
    cell.until(lambda: cell.launcher.over)
    cell.close()


FLOOD = "import sys\nwhile True:\n    sys.stdout.write('x' * 999 + chr(10))\n"


def test_a_launcher_sees_that_the_cell_is_gone_while_it_has_much_to_tell(cell: Cell) -> None:
    cell.begin(FLOOD, 5)
    cell.until(lambda: cell.wrote())
    until = time.monotonic() + 1.0
    while time.monotonic() < until:  # The cell takes nothing.
        cell.launcher.turn()
    assert not cell.launcher.over
    cell.socket.close()
    at = time.monotonic()
    while not cell.launcher.over:
        cell.launcher.turn()
        assert time.monotonic() < at + WAIT_S


def test_output_that_the_cell_does_not_take_at_once_is_not_lost(cell: Cell) -> None:
    cell.begin("for each in range(50_000): print('x' * 95, each)\n")
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        cell.launcher.turn()
    cell.until(lambda: cell.ended() == [0])
    lines = "".join(cell.wrote()).splitlines()
    assert [int(line.split()[1]) for line in lines] == list(range(50_000))


LEAVES = """\
import os, subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open("left", "w").write(str(left.pid))
print("started")
import time; time.sleep(600)
"""


def test_nothing_that_a_process_has_started_outlives_the_cell(cell: Cell) -> None:
    cell.begin(LEAVES)
    cell.until(lambda: cell.wrote() == ["started\n"])
    pid = int((cell.place / "left").read_text())
    assert start_time(pid)
    cell.launcher.close()
    # It has left its group, and ends all the same: its memory first, then it is gone.
    eventually(lambda: not start_time(pid), "the end of what a process has started", within_s=60.0)


def test_a_line_that_is_not_over_is_told_while_the_process_waits(cell: Cell) -> None:
    bar = "sys.stderr.write(chr(13) + ' 10%')\nprint('epoch', end=' ', flush=True)\n"
    cell.begin(f"import sys, time\n{bar}time.sleep(600)")
    cell.until(lambda: "".join(cell.wrote()) == "epoch " and "".join(cell.wrote("stderr")) == "\r 10%")


def test_the_last_words_are_told_also_where_a_child_has_the_pipe(cell: Cell) -> None:
    cell.begin(f"{LEAVES.splitlines()[0]}\n{LEAVES.splitlines()[1]}\nprint('last', end='')\n")
    cell.until(lambda: cell.ended() == [0])
    assert "".join(cell.wrote()) == "last"


def test_rank_0_has_a_free_port_that_nobody_else_is_given_before_it_listens() -> None:
    """It imports torch first; a port that the system gives out may be another program's by then."""
    ports = range(20_000, 32_701)
    assert all(free_port("127.0.0.1", Reach()) in ports for _ in range(20))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port("127.0.0.1", Reach(port_first=port, port_last=port)) != port
