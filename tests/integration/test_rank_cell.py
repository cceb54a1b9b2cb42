"""The notebook's side of a cell on several hosts: what it shows, what it holds, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from replkernel.protocol.message import encode
from replkernel.ranks.cell import Backlog
from replkernel.ranks.course import Interrupted
from replkernel.ranks.words import Ended, Result, Wrote
from tests.support.rank_cell import WAIT_MS, Running, running

MEBIBYTE = 1024 * 1024
LINE = "x" * (32 * 1024 - 1) + "\n"


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Running]:
    with running(monkeypatch, tmp_path, ("x",)) as made:
        yield made


def test_a_cell_shows_what_processes_write_and_gives_what_came_back(cell: Running) -> None:
    a, b = cell.begin()
    a.send(Wrote(0, "stdout", "one\ntwo\n"))
    a.send(Result(b"data"))
    a.send(Ended(0, 0))
    b.send(Wrote(1, "stdout", "three\n"))
    b.send(Ended(1, 0))
    assert cell.over.result(WAIT_MS / 1000) == b"data"
    assert set(cell.out.getvalue().splitlines()) == {"one", "two", "[1] three"}


def test_output_that_is_not_shown_waits_with_its_processes(cell: Running) -> None:
    a, b = cell.begin()
    cell.out.open.clear()
    sent = 0
    # What has to be taken may take its time; from there on, a second without room is the end.
    while sent < 2_000 and a.socket.poll(WAIT_MS if sent * len(LINE) <= 4 * MEBIBYTE else 1_000, zmq.POLLOUT):
        a.socket.send(encode(Wrote(0, "stdout", LINE)))
        sent += 1
    assert 4 * MEBIBYTE < sent * len(LINE) < 32 * MEBIBYTE
    cell.out.open.set()
    for message in (Result(b"data"), Ended(0, 0)):
        a.send(message)
    b.send(Ended(1, 0))
    assert cell.over.result(WAIT_MS / 1000) == b"data"
    assert cell.out.getvalue().count("x\n") == sent, "and nothing is lost"


def test_a_full_backlog_pauses_its_senders_until_half_of_it_is_taken() -> None:
    said: list[str] = []
    backlog = Backlog(100, lambda: said.append("pause"), lambda: said.append("resume"))
    for size in (60, 60, 60):
        backlog.put(Interrupted(), size)
    assert said == ["pause"]
    for has_room in (False, False, True):
        assert backlog.take(0.0) == Interrupted()
        assert backlog.has_room is has_room
        backlog.go_on()
    assert said == ["pause", "resume"]
    assert backlog.take(0.0) is None
