"""State between real kernel processes: what the shell keeps beside variables, far blobs, slow captures."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replkernel.protocol.agent_to_process import StopProcess
from replkernel.protocol.process_to_agent import (
    ChunksWritten,
    ClaimExecution,
    FetchBlobs,
    ProcessNotice,
    ProposeDelta,
)
from replkernel.records import KernelId
from tests.integration.test_kernel_process import Stage
from tests.support.fake_agent import FakeRouter, interrupt, text_of
from tests.support.live import eventually

SLOW = """\
import os, time
class Slow:
    def __replkernel_dump__(self):
        with open('dumps', 'a', buffering=1) as dumps:
            print('begun', file=dumps)
            while os.path.exists('hold'):
                time.sleep(0.01)
            print('ended', file=dumps)
    @classmethod
    def __replkernel_load__(cls, state):
        return cls()
slow = Slow()
"""
BREAKER = """\
from replkernel.state.state_capture import StateCapture
whole = StateCapture.capture
def broken(*args): raise RuntimeError("on purpose")
def breaks(): StateCapture.capture = broken
def mends(): StateCapture.capture = whole
"""
BIG = "import numpy as np\nbig = np.arange(300_000)\nsmall = 7"


@pytest.fixture
def stage(short_dir: Path) -> Iterator[Stage]:
    """Return a stage; when the test fails its logs are printed."""
    stage = Stage(short_dir)
    yield stage
    stage.close()
    for log in sorted(short_dir.glob("*.log")):
        print(log.name, log.read_text()[-2000:])


@contextmanager
def pumped(stage: Stage) -> Iterator[None]:
    """Let the agent answer in the background."""
    done = threading.Event()

    def pump() -> None:
        while not done.is_set():
            stage.agent.poll(0.05)

    thread = threading.Thread(target=pump)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_blobs_are_fetched_before_the_cell(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(BIG)
    stage.move("r1", "r2", 1)
    with pumped(stage):
        assert second.value("[int(big.sum()), bool(big.flags.writeable), small]", needs=1, seq=2) == [
            44999850000, True, 7,
        ]  # fmt: skip
    assert any(isinstance(message, FetchBlobs) for name, message in stage.agent.log if name == "r2")


def test_chunks_of_a_large_array_are_told_before_the_delta_that_names_them(stage: Stage) -> None:
    stage.start("r1").run("import os\nbig = bytearray(os.urandom(80_000_000))")
    names_big = stage.agent.await_message("r1", ProposeDelta, lambda message: bool(message.delta.blobs()))
    delta = names_big.delta
    messages = [message for name, message in stage.agent.log if name == "r1"]
    early = [
        message for message in messages[: messages.index(names_big)] if isinstance(message, ChunksWritten)
    ]
    told = [chunk for message in early for chunk in message.chunks]
    named = {chunk for blob in delta.blobs() for chunk in blob.chunks}
    assert len(told) == len(set(told)) > len(named) / 2
    assert set(told) <= named


def test_missing_blobs_refuse_the_cell_until_the_user_gives_them_up(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(BIG)
    stage.move("r1", "r2", 1)
    stage.agent.blobs = "lack"
    with pumped(stage):
        reply, _ = second.run("x = 1", needs=1, seq=2)
        assert reply["content"]["ename"] == "BlobMissing"
        assert "has lost them" in reply["content"]["evalue"]
        assert "%replkernel forget-missing" in reply["content"]["evalue"]
        assert reply["metadata"]["replkernel"]["ran"] is False
        reply, published = second.run("%replkernel forget-missing", needs=1, seq=3)
        assert reply["content"]["status"] == "ok"
        assert "big" in text_of(published)
        reply, _ = second.run("big + 1", needs=3, seq=4)
        assert reply["content"]["ename"] == "StateLostError"
        assert second.value("small", needs=4, seq=5) == 7


def test_a_store_that_is_back_gives_everything(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(BIG)
    stage.move("r1", "r2", 1)
    with pumped(stage):
        stage.agent.blobs = "lack"
        assert second.run("x = 1", needs=1, seq=2)[0]["content"]["status"] == "error"
        stage.agent.blobs = "bring"
        assert second.value("len(big)", needs=1, seq=3) == 300_000


def test_fetching_can_be_interrupted_and_tried_again(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(BIG)
    stage.move("r1", "r2", 1)
    stage.agent.blobs = "hold"
    waiting = second.submit("len(big)", needs=1, seq=2)
    second.await_published(waiting, "busy")
    stage.agent.await_message("r2", FetchBlobs)
    interrupt(stage.processes["r2"])
    assert second.receive(waiting)["content"]["ename"] == "KeyboardInterrupt"
    stage.agent.blobs = "bring"
    with pumped(stage):
        assert second.value("len(big)", needs=1, seq=3) == 300_000


@contextmanager
def captured_slowly(stage: Stage, router: FakeRouter, code: str) -> Iterator[None]:
    """Have `slow` defined, run a cell, and keep its capture from ending before the block does."""
    router.run(SLOW)
    stage.agent.await_delta("r1", 1)
    dumps, hold = (stage.agent.directory / name for name in ("dumps", "hold"))
    dumps.unlink()
    hold.touch()
    router.run(code, needs=1)
    eventually(dumps.exists, "the capture")
    yield
    hold.unlink()


def test_an_interrupt_does_not_break_a_capture(stage: Stage) -> None:
    router = stage.start("r1")
    with captured_slowly(stage, router, "x = 1\nslow = Slow()"):
        interrupt(stage.processes["r1"])
    names = {name for part in stage.agent.await_delta("r1", 2).components for name in part.names}
    assert "x" in names
    assert (stage.agent.directory / "dumps").read_text().startswith("begun\nended\n")


def test_an_interrupt_during_a_capture_reaches_the_cell_behind_it(stage: Stage) -> None:
    router = stage.start("r1")
    late = "from replkernel.kernel import interrupts\ninterrupts.REMEMBERED_S = 0.0\n"
    with captured_slowly(stage, router, f"{late}y = slow"):
        behind = router.submit("z = 1", needs=2)
        router.ask("kernel_info_request", {}, channel="control")  # What was sent before it has arrived, too.
        interrupt(stage.processes["r1"])
    assert router.receive(behind)["content"]["ename"] == "KeyboardInterrupt"
    assert router.value("'z' in globals()", needs=2, seq=4) is False


def test_a_capture_that_fails_does_not_break_the_cell(stage: Stage) -> None:
    router = stage.start("r1")
    (stage.agent.directory / "breaker.py").write_text(BREAKER)
    reply, _ = router.run("import breaker\nbreaker.breaks()\nx = 1")
    assert reply["content"]["status"] == "ok"
    reply, _ = router.run("breaker.mends()", needs=1)
    assert reply["content"]["status"] == "ok"
    delta = stage.agent.await_delta("r1", 2)
    assert any("x" in part.names for part in delta.components)
    told = [message.text for _, message in stage.agent.log if isinstance(message, ProcessNotice)]
    assert sum("on purpose" in text for text in told) == 1


def test_a_name_of_the_shell_that_the_user_took_travels(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("open = 'mine'\nexit = 5\n_i1 = 'edited'")
    stage.move("r1", "r2", 1)
    assert second.value("[open, exit, _i1, callable(quit)]", needs=1, seq=2) == ["mine", 5, "edited", True]


def test_reset_travels(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("x = 1\nx")
    stage.move("r1", "r2", 1)
    second.run("x", needs=1, seq=2)
    stage.agent.await_delta("r2", 2)
    stage.move("r2", "r1", 2)
    first.run("%reset -f", needs=2, seq=3)
    stage.move("r1", "r2", 3)
    seen = second.value("[sorted(Out), 'x' in globals(), len(In), 'open' in globals()]", needs=3, seq=4)
    assert seen[0] == []
    assert seen[1] is False
    assert seen[3] is True


def test_subshell_work_is_captured_with_the_next_cell(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("x = 0")
    stage.agent.await_delta("r1", 1)
    subshell = router.ask("create_subshell_request", {}, channel="control")["content"]["subshell_id"]
    body = {
        "code": "x = 99",
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
    }
    reply = router.ask("execute_request", body, subshell_id=subshell)
    assert reply["content"]["status"] == "ok"
    router.run("y = 1", needs=1)
    names = {name for part in stage.agent.await_delta("r1", 2).components for name in part.names}
    assert {"x", "y"} <= names


def test_async_cells_and_extensions(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("import asyncio\nawait asyncio.sleep(0.01)\n%load_ext autoreload\nvalue = 'awaited'")
    stage.move("r1", "r2", 1)
    loaded = "sorted(get_ipython().extension_manager.loaded)"
    value, extensions = second.value(f"[value, {loaded}]", needs=1, seq=2)
    assert value == "awaited"
    assert "IPython.extensions.autoreload" in extensions


def test_a_late_joiner_gets_everything_at_once(stage: Stage) -> None:
    first = stage.start("r1")
    deltas = []
    for number in range(1, 41):
        first.run(f"v{number} = {number}\nv{number} * 10", needs=number - 1)
        deltas.append(stage.agent.await_delta("r1", number))
    second = stage.start("r2")
    for delta in deltas:
        stage.agent.move(delta, "r2")
    seen = second.value(
        "[v40, Out[1], Out[40], len(In), _i40, len(get_ipython().history_manager.cells)]", needs=40, seq=41
    )
    assert seen == [40, 10, 400, 41, "v40 = 40\nv40 * 10", 40]
    reply, _ = second.run("1", needs=41, seq=42)
    assert reply["content"]["execution_count"] == 41


def test_a_standby_runs_no_finalizers_at_its_end(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(
        "class Guard:\n    def __init__(self, where): self.where = where\n"
        "    def __del__(self): open(self.where, 'a').write('gone ')\n"
        "guard = Guard('trace')"
    )
    stage.move("r1", "r2", 1)
    second.ask("complete_request", {"code": "guard.", "cursor_pos": 6})
    stage.agent.send("r2", StopProcess("the test is over"))
    assert stage.processes["r2"].wait(20) == 0
    assert not (stage.agent.directory / "trace").exists()
    stage.agent.send("r1", StopProcess("the test is over"))
    assert stage.processes["r1"].wait(20) == 0
    assert (stage.agent.directory / "trace").read_text() == "gone "


def test_a_host_with_a_history_of_its_own_gets_the_whole_session(stage: Stage) -> None:
    first = stage.start("r1")
    second = stage.start("r2", env={"IPYTHONDIR": str(stage.agent.directory / "other")})
    first.run("a = 1")
    stage.move("r1", "r2", 1)
    second.run("b = 2", needs=1, seq=2)
    second.run("get_ipython().history_manager.writeout_cache()", needs=2, seq=3)
    with sqlite3.connect(
        stage.agent.directory / "other" / "profile_default" / "history.sqlite"
    ) as connection:
        rows = connection.execute("SELECT line, source_raw FROM history ORDER BY line").fetchall()
    assert rows[:2] == [(1, "a = 1"), (2, "b = 2")]


def test_a_line_that_a_lost_replica_wrote_gives_way(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("a = 1")
    stage.move("r1", "r2", 1)
    first.run("lost = 2\nget_ipython().history_manager.writeout_cache()", needs=1, seq=2)
    reply, published = second.run("kept = 2\nget_ipython().history_manager.writeout_cache()", needs=1, seq=3)
    assert reply["content"]["status"] == "ok"
    assert "ERROR" not in text_of(published)
    _, published = second.run("import time; time.sleep(0.3)", needs=3, seq=4)
    assert "ERROR" not in text_of(published)
    with sqlite3.connect(
        stage.agent.directory / "ipython" / "profile_default" / "history.sqlite"
    ) as connection:
        assert connection.execute("SELECT COUNT(*) FROM sessions").fetchone() == (1,)
        row = connection.execute("SELECT source_raw FROM history WHERE line == 2").fetchone()
    assert row[0].startswith("kept")


def test_connect_request_names_the_routers_ports(stage: Stage) -> None:
    file = stage.agent.directory / "kernel-1.json"
    file.write_text(json.dumps({"shell_port": 5001, "iopub_port": 5002, "key": "secret", "ip": "127.0.0.1"}))
    router = stage.start("r1", connection_file=str(file))
    content = router.ask("connect_request", {})["content"]
    assert content == {"shell_port": 5001, "iopub_port": 5002, "status": "ok"}
    _, published = router.run("%connect_info")
    assert "5001" in text_of(published)


def test_claims_are_told_again_to_an_agent_that_comes_back_mid_cell(stage: Stage) -> None:
    router = stage.start("r1")
    running = router.submit("import os, time\nwhile not os.path.exists('over'): time.sleep(0.01)")
    stage.agent.await_message("r1", ClaimExecution)
    stage.agent.vanish()
    seen = len(stage.agent.log)
    stage.agent.listen()
    assert stage.agent.await_message("r1", ClaimExecution, after=seen).seq == 1
    (stage.agent.directory / "over").touch()
    assert router.receive(running)["content"]["status"] == "ok"
    assert stage.agent.await_delta("r1", 1).seq == 1


def _sessions(directory: Path) -> dict[int, list[str]]:
    """Return the lines of each session in the stage's history database."""
    database = directory / "ipython" / "profile_default" / "history.sqlite"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT session, source_raw FROM history ORDER BY session, line").fetchall()
    return {session: [text for one, text in rows if one == session] for session, _ in rows}


WRITE = "get_ipython().history_manager.writeout_cache()"


def test_a_kernel_that_begins_with_anothers_state_has_a_session_of_its_own(stage: Stage) -> None:
    first = stage.start("r1")
    fork, standby = (stage.start(replica, kernel_id=KernelId("fork")) for replica in ("r2", "r3"))
    first.run("a = 1")
    delta = stage.agent.await_delta("r1", 1)
    for replica in ("r2", "r3"):
        stage.agent.move(delta, replica)
    first.run("a = 'original'", needs=1, seq=2)
    first.run(WRITE, needs=2, seq=3)
    fork.run("a = 'fork'", needs=1, seq=2)
    stage.move("r2", "r3", 2)
    assert standby.value("[len(In), In[2], a]", needs=2, seq=3) == [3, "a = 'fork'", "fork"]
    standby.run("b = 3", needs=3, seq=4)
    _, published = standby.run(WRITE, needs=4, seq=5)
    assert "ERROR" not in text_of(published)
    original, of_fork = _sessions(stage.agent.directory).values()
    assert original == ["a = 1", "a = 'original'", WRITE]
    assert of_fork == ["a = 1", "a = 'fork'", "b = 3", WRITE]


def test_a_line_that_comes_late_gives_way_without_a_word(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    hold = "h = get_ipython().history_manager; h.writeout_cache, write = lambda *_: None, h.writeout_cache"
    first.run(hold)
    stage.move("r1", "r2", 1)
    first.run("lost = 2", needs=1, seq=2)
    second.run("kept = 2", needs=1, seq=3)
    second.run(WRITE, needs=3, seq=4)
    for seq in (3, 4):
        stage.agent.move(stage.agent.await_delta("r2", seq), "r1")
    stage.await_applied("r1", 4)
    _, published = first.run(f"del h.writeout_cache\n{WRITE}", needs=4, seq=5)
    assert "not unique" not in text_of(published)
    (lines,) = _sessions(stage.agent.directory).values()
    assert lines[1] == "kept = 2"
