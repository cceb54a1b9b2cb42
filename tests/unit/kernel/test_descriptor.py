"""How long the end of a cell waits for what was written below Python; clock and thread are played."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.kernel import output

Ends = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Ends]:
    """Return the ends of the pipe behind a descriptor."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def looks(
    monkeypatch: pytest.MonkeyPatch, pipe: Ends, thread: Callable[[], object], *, apart_s: float
) -> int:
    """Wait by a clock that shows so much more at each look; `thread` runs between two. Return how many."""
    made = 0

    def sleep(_: float) -> None:
        nonlocal made
        made += 1
        thread()

    monkeypatch.setattr(output, "time", SimpleNamespace(monotonic=count(0.0, apart_s).__next__, sleep=sleep))
    stream: Any = SimpleNamespace(
        _should_watch=True,
        _is_master_process=lambda: True,
        _taking=False,
        _fid=pipe[0],
        watch_fd_thread=SimpleNamespace(is_alive=lambda: True),
    )
    output.OutStream.take_descriptor(stream)
    return made


def test_a_process_that_did_not_get_to_run_waits_for_the_thread_that_did_not_either(
    pipe: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.write(pipe[1], b"low")
    turns = iter([lambda: None, lambda: None, lambda: os.read(pipe[0], 3)])
    assert looks(monkeypatch, pipe, lambda: next(turns)(), apart_s=10.0) == 3


def test_who_writes_for_ever_keeps_no_cell_from_its_end(pipe: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    os.write(pipe[1], b"low")
    least, slowly = (looks(monkeypatch, pipe, lambda: None, apart_s=apart_s) for apart_s in (10.0, 0.0002))
    assert least < slowly <= output.DESCRIPTOR_WAIT_S / 0.0002 + 1
