"""Real kernel processes under a fake agent and a fake router: cells, moves, interrupts, standbys."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replkernel.hosts.reach import Reach
from replkernel.protocol.agent_to_process import DeltaCommitted, ExecutionRefused, StopProcess
from replkernel.protocol.envelope import Envelope
from replkernel.protocol.process_to_agent import (
    ClaimExecution,
    KernelHello,
    NotebookStatusQuery,
    ProposeDelta,
    ReplicaApplied,
)
from replkernel.records import Fence, Seq
from tests.support.fake_agent import FakeAgent, FakeRouter, interrupt, text_of
from tests.support.ports import free_port


class Stage:
    """A fake agent with the routers of the kernel processes that a test has started."""

    def __init__(self, directory: Path) -> None:
        self.agent = FakeAgent(directory)
        self.routers: dict[str, FakeRouter] = {}
        self.hellos: dict[str, KernelHello] = {}
        self.processes: dict[str, Any] = {}

    def start(self, replica: str, **options: Any) -> FakeRouter:
        """Start a replica's kernel process and connect to it."""
        self.processes[replica] = self.agent.spawn(self.agent.birth(replica, **options))
        self.hellos[replica] = self.agent.await_message(replica, KernelHello)
        self.routers[replica] = FakeRouter(self.hellos[replica].endpoints)
        return self.routers[replica]

    def move(self, source: str, target: str, seq: int) -> None:
        """Commit what `source` changed in execution `seq` and hand it to `target`."""
        delta = self.agent.await_delta(source, seq)
        self.agent.send(source, DeltaCommitted(Seq(seq)))
        self.agent.move(delta, target)

    def await_applied(self, replica: str, seq: int) -> None:
        """Wait until a standby has taken execution `seq` over."""
        self.agent.await_message(replica, ReplicaApplied, lambda message: message.seq >= seq)

    def await_heard(self, replica: str) -> None:
        """Wait until a process has heard what its agent has sent: it asks something, and hears that last."""
        seen, asks = len(self.agent.log), "get_ipython().kernel.replica.link.notebook_status()"
        asked = self.routers[replica].submit(asks, bare=True, silent=True, store_history=False)
        self.agent.await_message(replica, NotebookStatusQuery, after=seen)
        self.routers[replica].receive(asked)

    def close(self) -> None:
        for router in self.routers.values():
            router.close()
        self.agent.close()


@pytest.fixture
def stage(short_dir: Path) -> Iterator[Stage]:
    """Return a stage; when the test fails its logs are printed."""
    stage = Stage(short_dir)
    yield stage
    stage.close()
    for log in sorted(short_dir.glob("*.log")):
        print(log.name, log.read_text()[-2000:])


def test_a_process_that_finds_too_few_ports_ends_and_says_what_to_set(stage: Stage) -> None:
    first = free_port()
    reach = Reach(port_first=first, port_last=first + 1)
    birth = msgspec.structs.replace(stage.agent.birth("r1"), reach=reach)
    assert stage.agent.spawn(birth).wait() == 1
    assert f"any of the ports {first}-{first + 1} " in Path(birth.log_path).read_text()
    assert "set REPLKERNEL_PORTS" in Path(birth.log_path).read_text()


def test_a_cell_is_answered_and_its_output_and_its_delta_leave_the_process(stage: Stage) -> None:
    router = stage.start("r1")
    reply, published = router.run("x = 41\nprint('hello')\nx + 1")
    assert reply["content"]["status"] == "ok"
    assert reply["metadata"]["replkernel"]["replica"] == "r1"
    assert reply["metadata"]["replkernel"]["host"] == "host-r1"
    assert reply["idents"][1:] == [b"client"]
    assert text_of(published) == "hello\n"
    delta = stage.agent.await_delta("r1", 1)
    assert (delta.execution_count, delta.replica, delta.fence) == (1, "r1", 1)
    assert any("x" in component.names for component in delta.components)


def test_every_execution_proposes_a_delta(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("x = 1")
    router.run("", needs=1)
    router.run("x", needs=2, silent=True, store_history=False)
    router.run("1/0", needs=3)
    assert stage.agent.await_delta("r1", 4).execution_count == 2
    seqs = [message.delta.seq for _, message in stage.agent.log if isinstance(message, ProposeDelta)]
    assert seqs == [1, 2, 3, 4]


def test_state_moves_to_another_process(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("import math\nx = [1]\ny = x\ndef area(r):\n    return math.pi * r * r\nx")
    stage.move("r1", "r2", 1)
    first.run("y.append(2)\n'two'", needs=1)
    stage.move("r1", "r2", 2)
    assert second.value("[x, y is x, _oh[1] is x, Out[2], _, __ is x]", needs=2, seq=3) == [
        [1, 2], True, True, "two", "two", True,
    ]  # fmt: skip
    assert second.value("area(2) > 12", needs=2, seq=3)
    reply, _ = second.run("len(In), _i, _ii, In[2], _i1[:11]", needs=3, seq=4)
    assert reply["content"]["execution_count"] == 3
    assert second.value("list(Out[3])", needs=4, seq=5) == [
        4, "y.append(2)\n'two'", "import math\nx = [1]\ny = x\ndef area(r):\n    return math.pi * r * r\nx",
        "y.append(2)\n'two'", "import math",
    ]  # fmt: skip


def test_state_moves_there_and_back(stage: Stage) -> None:
    routers = [stage.start("r1"), stage.start("r2")]
    routers[0].run("log = []", seq=1)
    for seq in range(2, 8):
        here, there = ("r1", "r2") if seq % 2 else ("r2", "r1")
        stage.move(there, here, seq - 1)
        reply, _ = routers[(seq + 1) % 2].run(f"log.append({seq})\nlog", needs=seq - 1, seq=seq)
        assert reply["content"]["execution_count"] == seq
    assert routers[0].value(
        "log == [2, 3, 4, 5, 6, 7] and Out[7] is log and sorted(Out) == list(range(2, 8))", needs=7, seq=8
    )


def test_tracebacks_agree_on_every_replica(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("def broken():\n    # the reason\n    return 1 / 0")
    stage.move("r1", "r2", 1)
    here, _ = first.run("broken()", needs=1)
    there, _ = second.run("broken()", needs=1, seq=2)
    assert here["content"]["traceback"] == there["content"]["traceback"]
    assert any("# the reason" in line for line in there["content"]["traceback"])
    assert second.value("__import__('inspect').getsource(broken)", needs=1, seq=3).startswith("def broken")
    stage.agent.await_delta("r1", 2)
    assert first.value("broken.__code__.co_filename", needs=2) == second.value(
        "broken.__code__.co_filename", needs=3, seq=4
    )


def test_a_cell_waits_for_the_state_it_needs(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("x = 5")
    waiting = second.submit("x + 1", needs=1, seq=2)
    assert not second.channels["executions"].poll(300)
    stage.move("r1", "r2", 1)
    assert second.receive(waiting)["content"]["status"] == "ok"
    assert stage.agent.await_delta("r2", 2).fence == 2


def test_waiting_for_state_can_be_interrupted(stage: Stage) -> None:
    stage.start("r1")
    second = stage.start("r2")
    waiting = second.submit("x", needs=1, seq=2)
    second.await_published(waiting, "busy")
    assert not second.channels["executions"].poll(100), "it waits"
    interrupt(stage.processes["r2"])
    reply = second.receive(waiting)
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    assert reply["metadata"]["replkernel"]["ran"] is False
    published = second.drain(waiting)
    assert [message["content"]["ename"] for message in published if message["msg_type"] == "error"] == [
        "KeyboardInterrupt"
    ]
    assert not [
        message
        for name, message in stage.agent.log
        if name == "r2" and isinstance(message, (ClaimExecution, ProposeDelta))
    ]


def test_running_code_can_be_interrupted(stage: Stage) -> None:
    router = stage.start("r1")
    running = router.submit("import time\nprint('go', end='')\nwhile True: time.sleep(0.01)")
    router.await_published(running, "go")
    reply = router.ask("interrupt_request", {}, channel="control")
    assert reply["content"]["status"] == "ok"
    assert router.receive(running)["content"]["ename"] == "KeyboardInterrupt"
    assert router.value("6 * 7", needs=1) == 42


def test_a_cell_that_was_sent_after_an_error_runs(stage: Stage) -> None:
    router = stage.start("r1")
    for number in range(1, 40, 2):
        failing, behind = router.submit("1/0", needs=number - 1), router.submit("x = 1", needs=number - 1)
        assert router.receive(failing)["content"]["status"] == "error"
        assert router.receive(behind)["content"]["status"] == "ok"


def test_an_interrupt_between_cells_harms_nothing(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("x = 1")
    for _ in range(20):
        interrupt(stage.processes["r1"])
    time.sleep(0.3)
    assert router.value("x", needs=1) == 1
    assert stage.agent.await_delta("r1", 2).seq == 2


def test_a_standby_answers_from_rebuilt_state(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("forty_two = 42")
    stage.move("r1", "r2", 1)
    stage.await_applied("r2", 1)
    reply = second.ask("complete_request", {"code": "forty_", "cursor_pos": 6})
    assert "forty_two" in reply["content"]["matches"]
    reply = second.ask("inspect_request", {"code": "forty_two", "cursor_pos": 4, "detail_level": 0})
    assert "42" in reply["content"]["data"]["text/plain"]
    reply = second.ask(
        "history_request",
        {"hist_access_type": "range", "output": True, "raw": True, "session": 0, "start": 1, "stop": 5},
    )
    assert reply["content"]["history"] == [[0, 1, ["forty_two = 42", None]]]


def test_a_question_waits_for_the_state_that_it_is_to_see(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run("forty_two = 42")
    look = Envelope(Seq(0), Fence(0), needs=Seq(1))
    cursor = {"code": "forty_two", "cursor_pos": 6, "detail_level": 0}
    kinds = {"complete_request": cursor, "inspect_request": cursor, "history_request": HISTORY}
    for kind, content in kinds.items():
        early = second.send(kind, content, envelope=look)
        if kind == "complete_request":
            time.sleep(0.3)
            stage.move("r1", "r2", 1)
        reply = second.receive(early)["content"]
        said = reply.get("matches") or reply.get("history") or reply["data"]["text/plain"]
        assert "42" in str(said) or "forty_two" in said


HISTORY = {"hist_access_type": "range", "output": True, "raw": True, "session": 0, "start": 1, "stop": 5}


def test_one_history_session_for_all_replicas(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    database = Path(stage.agent.directory) / "ipython" / "profile_default" / "history.sqlite"
    second.ask("complete_request", {"code": "a", "cursor_pos": 1})
    assert not database.exists()
    first.run("a = 1")
    stage.move("r1", "r2", 1)
    second.run("b = 2", needs=1, seq=2)
    stage.move("r2", "r1", 2)
    first.run("get_ipython().history_manager.writeout_cache()", needs=2, seq=3)
    numbers = [
        router.value(
            "get_ipython().history_manager.session_number", needs=3, seq=4 + place, store_history=False
        )
        for place, router in enumerate((first, first))
    ]
    assert numbers == [1, 1]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with sqlite3.connect(database) as connection:
            rows = connection.execute(
                "SELECT session, line, source_raw FROM history ORDER BY line"
            ).fetchall()
            sessions = connection.execute("SELECT COUNT(*) FROM sessions").fetchone()[0]
        if len(rows) == 3:
            break
        time.sleep(0.1)
    assert rows[:2] == [(1, 1, "a = 1"), (1, 2, "b = 2")]
    assert sessions == 1


def test_a_running_thread_is_told_as_a_pin_in_the_delta_and_by_the_magic(stage: Stage) -> None:
    router = stage.start("r1")
    router.run(
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True)\nt.start()"
    )
    delta = stage.agent.await_delta("r1", 1)
    reasons = [pin.reason for pin in (*delta.pins, *(pin for part in delta.components for pin in part.pins))]
    assert any("thread" in reason.lower() for reason in reasons), reasons
    asked = router.submit("%replkernel pins", needs=1)
    stage.agent.await_message("r1", NotebookStatusQuery)
    router.receive(asked)
    published = router.drain(asked)
    assert "hread" in text_of(published)
    assert "r1" in text_of(published)


def test_a_refused_execution_does_not_run(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("x = 1")
    stage.agent.send("r1", ExecutionRefused(Seq(2), "Replica r2 was faster."))
    stage.await_heard("r1")
    reply, _ = router.run("x = 2", needs=1)
    assert reply["content"]["status"] == "error"
    assert "r2 was faster" in reply["content"]["evalue"]
    assert reply["metadata"]["replkernel"]["ran"] is False
    assert router.value("x", needs=1, seq=3) == 1


def test_a_process_that_lost_ends(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("x = 1")
    stage.agent.send("r1", ExecutionRefused(Seq(1), "Replica r2 was faster."))
    assert stage.processes["r1"].wait(20) == 0


def test_greeting_a_new_agent_with_what_was_not_acknowledged(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("x = 1")
    stage.agent.await_delta("r1", 1)
    stage.agent.send("r1", DeltaCommitted(Seq(1)))
    stage.await_heard("r1")
    stage.agent.vanish()
    router.run("x = 2", needs=1)
    router.run("x = 3", needs=2)
    router.ask("kernel_info_request", {})  # The main thread answers it once it has captured the cell before.
    seen = len(stage.agent.log)
    stage.agent.listen()
    hello = stage.agent.await_message("r1", KernelHello, after=seen)
    assert [delta.seq for delta in hello.unacknowledged] == [2, 3]
    assert hello.applied == 3
    stage.agent.send("r1", DeltaCommitted(Seq(3)))
    router.run("x = 4", needs=3)
    assert stage.agent.await_delta("r1", 4).seq == 4


def test_stop_process_runs_atexit(stage: Stage) -> None:
    router = stage.start("r1")
    router.run(
        "import atexit\natexit.register(lambda: open('gone', 'w').write('yes'))\n"
        "f = open('data', 'w')\nf.write('kept')"
    )
    stage.agent.await_delta("r1", 1)
    stage.agent.send("r1", StopProcess("the test is over"))
    assert stage.processes["r1"].wait(20) == 0
    assert (stage.agent.directory / "gone").read_text() == "yes"
    assert (stage.agent.directory / "data").read_text() == "kept"


def test_a_process_that_ends_has_written_its_history_and_closed_the_session(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("a = 1")
    stage.agent.await_delta("r1", 1)
    router.run("b = 2", seq=2)
    stage.agent.send("r1", StopProcess("the test is over"))
    assert stage.processes["r1"].wait(20) == 0
    database = Path(stage.agent.directory) / "ipython" / "profile_default" / "history.sqlite"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT line, source_raw FROM history ORDER BY line").fetchall()
        ended = connection.execute("SELECT num_cmds FROM sessions WHERE end IS NOT NULL").fetchall()
    assert rows == [(1, "a = 1"), (2, "b = 2")]
    assert ended == [(2,)]


def test_shutdown_request_ends_the_process(stage: Stage) -> None:
    router = stage.start("r1")
    assert router.ask("shutdown_request", {"restart": False}, channel="control")["content"]["status"] == "ok"
    assert stage.processes["r1"].wait(20) == 0


def test_a_process_without_agent_and_router_ends(stage: Stage) -> None:
    stage.start("r1", env={"REPLKERNEL_ORPHAN_GRACE_S": "1"})
    stage.agent.vanish()
    time.sleep(2.5)
    assert stage.processes["r1"].poll() is None, "its router is still there"
    stage.routers.pop("r1").close()
    assert stage.processes["r1"].wait(20) == 0


def test_a_process_whose_directories_are_gone_ends_too(stage: Stage) -> None:
    stage.start("r1", env={"REPLKERNEL_ORPHAN_GRACE_S": "1"})
    stage.agent.vanish()
    shutil.rmtree(stage.agent.directory)
    stage.routers.pop("r1").close()
    assert stage.processes["r1"].wait(20) == 0


def test_before_reply_waits_for_the_commit(stage: Stage) -> None:
    router = stage.start("r1", durable="before_reply")
    pending = router.submit("x = 1")
    stage.agent.await_delta("r1", 1)
    assert not router.channels["shell"].poll(200)
    stage.agent.send("r1", DeltaCommitted(Seq(1)))
    assert router.receive(pending)["metadata"]["replkernel"]["durable"] is True


def test_executions_without_an_envelope_run_and_are_captured_with_the_next(stage: Stage) -> None:
    router = stage.start("r1")
    reply, _ = router.run("loose = 1", bare=True)
    assert reply["content"]["status"] == "ok"
    router.run("bound = 2")
    names = {name for part in stage.agent.await_delta("r1", 1).components for name in part.names}
    assert {"loose", "bound"} <= names


def test_a_missing_directory_is_told(stage: Stage) -> None:
    router = stage.start("r1", cwd="/nowhere/at/all")
    _, published = router.run("x = 1")
    assert "/nowhere/at/all" in text_of(published, "stderr")
    _, published = router.run("x = 1", needs=1)
    assert text_of(published, "stderr") == ""


def test_input_and_comms_are_stock(stage: Stage) -> None:
    router = stage.start("r1")
    running = router.submit("name = input('who? ')", allow_stdin=True)
    request = router.receive(running, channel="stdin")
    assert request["content"]["prompt"] == "who? "
    router.channels["stdin"].send_multipart(
        [b"client", *router.session.serialize(router.session.msg("input_reply", {"value": "me"}))]
    )
    assert router.receive(running)["content"]["status"] == "ok"
    router.run(
        "get_ipython().kernel.comm_manager.register_target('t', lambda comm, msg: comm.send({'got': 1}))",
        needs=1,
    )
    opened = router.send("comm_open", {"comm_id": "c1", "target_name": "t", "data": {}})
    assert [m["content"]["data"] for m in router.drain(opened) if m["msg_type"] == "comm_msg"] == [{"got": 1}]


def test_user_code_sees_a_stock_kernel(stage: Stage) -> None:
    router = stage.start("r1", connection_file="/run/user/kernel-9.json")
    assert router.value("[type(get_ipython()).__name__, type(get_ipython()).__module__, __name__]") == [
        "ZMQInteractiveShell", "ipykernel.zmqshell", "__main__",
    ]  # fmt: skip
    seen = router.value(
        "(lambda sys, os: [sys.argv, os.environ.get('JPY_PARENT_PID'), '' in sys.path, os.getcwd()])"
        "(__import__('sys'), __import__('os'))",
        needs=1,
    )
    assert seen[0][0].endswith("ipykernel_launcher.py")
    assert seen[0][1:] == ["-f", "/run/user/kernel-9.json"]
    assert seen[1:] == [None, True, str(stage.agent.directory)]
    info = json.loads(stage.hellos["r1"].kernel_info)
    assert (info["status"], info["implementation"]) == ("ok", "ipython")
    assert "debugger" in info["supported_features"]


def test_secrets_are_not_on_the_command_line(stage: Stage) -> None:
    stage.start("r1")
    pid = stage.hellos["r1"].pid
    assert b"token-r1" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert os.stat(stage.agent.directory / "r1.log").st_mode & 0o077 == 0


def test_sigterm_ends_the_process_at_once(stage: Stage) -> None:
    stage.start("r1")
    os.kill(stage.hellos["r1"].pid, signal.SIGTERM)
    assert stage.processes["r1"].wait(60) == -signal.SIGTERM
