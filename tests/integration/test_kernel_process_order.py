"""A kernel process that runs cells with most of the namespace still to come, and what it is asked then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.protocol.process_to_agent import FetchBlobs
from tests.integration.test_kernel_process import Stage
from tests.integration.test_kernel_process_state import pumped
from tests.support.fake_agent import PATIENCE_S, FakeRouter, text_of
from tests.support.live import eventually

BIG = "import numpy as np\nbig = np.full(9_000_000, 7.0)\nbigger = [big]\nsmall = 1\ndef alone(): return 0"
"""More than a cell waits for."""


@pytest.fixture
def stage(short_dir: Path) -> Iterator[Stage]:
    """Return a stage; when the test fails its logs are printed."""
    stage = Stage(short_dir)
    yield stage
    stage.close()
    for log in sorted(short_dir.glob("*.log")):
        print(log.name, log.read_text()[-2000:])


@pytest.fixture
def behind(stage: Stage) -> FakeRouter:
    """Return a replica that has run a cell without `big`, whose blobs come as soon as the agent is polled."""
    first, second = stage.start("r1"), stage.start("r2")
    first.run(BIG)
    stage.move("r1", "r2", 1)
    reply, _ = second.run("small += 1", needs=1, seq=2)
    assert reply["content"]["status"] == "ok"
    return second


def test_a_cell_starts_before_the_bytes_that_it_does_not_need(stage: Stage, behind: FakeRouter) -> None:
    reply, _ = behind.run("small += 1", needs=2, seq=3)
    assert reply["content"]["status"] == "ok"
    with pumped(stage):
        assert behind.value("[small, bigger[0][0]]", needs=3, seq=4) == [3, 7.0]
    assert any(isinstance(message, FetchBlobs) for name, message in stage.agent.log if name == "r2")


def test_changes_of_a_cell_leave_without_the_variables_that_wait(stage: Stage, behind: FakeRouter) -> None:
    behind.run("big = 'mine'", needs=2, seq=3)
    delta = stage.agent.await_delta("r2", 3)
    assert {name for part in delta.components for name in part.names} - {"small"} == {"big"}
    assert delta.dropped == ()
    with pumped(stage):
        assert behind.value("[big, bigger[0][0]]", needs=3, seq=4) == ["mine", 7.0]


def test_completion_knows_the_names_that_wait(behind: FakeRouter) -> None:
    reply = behind.ask("complete_request", {"code": "x = bi", "cursor_pos": 6})
    assert {"big", "bigger"} <= set(reply["content"]["matches"])


def test_inspection_brings_what_it_asks_about(stage: Stage, behind: FakeRouter) -> None:
    with pumped(stage):
        reply = behind.ask("inspect_request", {"code": "big", "cursor_pos": 3, "detail_level": 0})
    assert reply["content"]["found"]
    assert "ndarray" in reply["content"]["data"]["text/plain"]


def test_a_cell_of_a_subshell_finds_every_variable(stage: Stage, behind: FakeRouter) -> None:
    subshell = behind.ask("create_subshell_request", {}, channel="control")["content"]["subshell_id"]
    body = {
        "code": "found = float(big[0])",
        "silent": False,
        "store_history": True,
        "user_expressions": {"it": "found"},
        "allow_stdin": False,
    }
    with pumped(stage):
        reply = behind.ask("execute_request", body, subshell_id=subshell)
    assert reply["content"]["status"] == "ok", reply["content"]
    assert reply["content"]["user_expressions"]["it"]["data"]["text/plain"] == "7.0"


def test_a_cell_of_a_subshell_finds_what_stands_for_what_could_not_be_restored(
    stage: Stage,
) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(
        f"{BIG}\nclass Sealed:\n"
        "    def __replkernel_dump__(self): return 0\n"
        "    @classmethod\n"
        "    def __replkernel_load__(cls, data): raise OSError('the seal is broken')\n"
        "sealed = Sealed()"
    )
    stage.move("r1", "r2", 1)
    second.run("small += 1", needs=1, seq=2)
    subshell = second.ask("create_subshell_request", {}, channel="control")["content"]["subshell_id"]
    with pumped(stage):
        msg_id = second.send("execute_request", {"code": "sealed.open()"}, subshell_id=subshell)
        reply = second.receive(msg_id)
    assert reply["content"]["ename"] == "StateLostError", reply["content"]
    assert "sealed" in reply["content"]["evalue"]


def test_a_cell_of_a_subshell_hears_why_a_variable_that_arrived_anew_was_missing(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(BIG)
    stage.move("r1", "r2", 1)
    with pumped(stage):
        assert second.value("big[0]", needs=1, seq=2) == 7.0
    subshell = second.ask("create_subshell_request", {}, channel="control")["content"]["subshell_id"]
    begun, missed = stage.agent.directory / "begun", stage.agent.directory / "missed"
    looks = f"try:\n    big[0]\nfinally:\n    open({str(missed)!r}, 'w').close()"
    waits = "import time\nwhile 'big' in globals():\n    time.sleep(0.01)"
    code = f"open({str(begun)!r}, 'w').close()\n{waits}\n{looks}"
    msg_id = second.send("execute_request", {"code": code}, subshell_id=subshell)
    with pumped(stage):  # One that begins later would wait for the variable, as all cells do.
        eventually(begun.exists, "the cell in the subshell")
    stage.move("r2", "r1", 2)
    first.run("big[0] = 8", needs=2, seq=3)
    stage.move("r1", "r2", 3)
    stage.agent.blobs = "hold"
    second.run("small += 1", needs=3, seq=4)
    deadline = time.monotonic() + PATIENCE_S
    # Twice it is fetched ahead, and then for who has missed it.
    while len(stage.agent.held) < 3 or not missed.exists():
        stage.agent.poll(0.05)
        assert time.monotonic() < deadline
    stage.agent.blobs = "bring"
    stage.agent.answer_held()
    with pumped(stage):
        reply = second.receive(msg_id)
        second.drain(msg_id)
    assert reply["content"]["ename"] == "NameError"
    told = "big was still being restored when the cell looked for it; run the cell again."
    assert told in text_of(second.published, "stderr")


def test_who_looks_for_a_variable_in_an_unforeseen_way_hears_the_truth(
    stage: Stage, behind: FakeRouter
) -> None:
    hidden = "end = 'als__'\nprint(getattr(alone, '__glob' + end)['b' + 'ig'][0])"
    with pumped(stage):
        reply, published = behind.run(hidden, needs=2, seq=3)
        if reply["content"]["status"] == "error":
            assert "big was still being restored" in text_of(published, "stderr")
            reply, published = behind.run(hidden, needs=3, seq=4)
    assert reply["content"]["status"] == "ok"
    assert text_of(published) == "7.0\n"
