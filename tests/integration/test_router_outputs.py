"""Output that nobody was there for: told to who asks, sent to who comes back, kept for the next router."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import find_agent
from replkernel.launch.kernel_record import kernel_dir
from replkernel.settings import data_dir
from tests.support.live import eventually
from tests.support.routed import Client, Routed
from tests.support.shared_place import _kernel_in_reach, _own_directories, place

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

PAUSED = """import os, time
for i in range({count}):
    print('line', i, flush=True); time.sleep(0.02)
    with open({gate!r} + '.passed', 'a') as passed: passed.write('.')
    while i == {pause} and not os.path.exists({gate!r}):
        time.sleep(0.02)
"""
"""Waits before its client is gone: what is on its way to a client when that dies cannot be called back."""
STOPPED = """import os, time
for i in range({count}):
    print('line', i, flush=True); time.sleep(0.02)
    with open(os.path.join({directory!r}, 'printed'), 'a') as printed: printed.write('.')
    while os.path.exists(os.path.join({directory!r}, f'stop-{{i}}')):
        time.sleep(0.02)
"""


def lines(count: int) -> str:
    """Return what a cell prints."""
    return "".join(f"line {number}\n" for number in range(count))


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Callable[..., Routed]]:
    """Return a function that starts a kernel by its router alone."""
    started: list[Routed] = []

    def begin(**env: str) -> Routed:
        started.append(Routed(tmp_path, agents_stay=True, **env))
        return started[-1]

    yield begin
    for kernel in started:
        kernel.close()


def printed_so_far(client: Client, msg_id: str, text: str) -> None:
    """Wait until a cell has printed a text."""
    client.wait(lambda: text in client.texts(msg_id), text)


def begun(client: Client, directory: Path, count: int) -> tuple[str, Path]:
    """Have a cell print `count` lines and stop after the third until a file is there; return both."""
    gate = directory / "gate"
    msg_id = client.kernel.execute(PAUSED.format(count=count, pause=3, gate=str(gate)))
    printed_so_far(client, msg_id, "line 3\n")
    return msg_id, gate


def passed(gate: Path, line: int) -> None:
    """Wait until a cell of `begun` has printed a line, which its client need not have heard of."""
    eventually(lambda: gate.with_suffix(".passed").stat().st_size > line, f"line {line}")


class Stops:
    """A cell that prints lines and stops at some of them until it may go on.

    A router is killed at a stop, where its client has all lines: one that is noted and not yet on its way is
    told to who asks, and not sent by the next router.
    """

    def __init__(self, directory: Path, *at: int) -> None:
        self.directory = directory
        for line in at:
            self._stop(line).touch()

    def _stop(self, line: int) -> Path:
        return self.directory / f"stop-{line}"

    def cell(self, count: int) -> str:
        return STOPPED.format(count=count, directory=str(self.directory))

    def go_on(self, line: int) -> None:
        self._stop(line).unlink()

    def await_line(self, line: int) -> None:
        """Wait until the cell has printed a line, of which nobody need have heard."""
        printed = self.directory / "printed"
        eventually(lambda: printed.exists() and printed.stat().st_size > line, f"line {line}")


def test_outputs_are_told_until_they_are_saved(routed: Callable[..., Routed]) -> None:
    client = routed(REPLKERNEL_REPLICAS="1").client()
    for code in ("print('one'); 1", "1/0"):
        client.finish(client.kernel.execute(code))
    told = client.ask("replkernel_outputs_request", since=0)
    assert (told["status"], told["more"]) == ("ok", False)
    first, second = told["executions"]
    assert [output["output_type"] for output in first["outputs"]] == ["stream", "execute_result"]
    assert first["outputs"][0]["text"] == "one\n"
    assert (first["state"], first["execution_count"]) == ("ok", 1)
    assert (second["state"], second["outputs"][0]["ename"]) == ("error", "ZeroDivisionError")
    newest = max(first["version"], second["version"])
    assert client.ask("replkernel_outputs_request", since=newest)["executions"] == []
    assert client.ask("replkernel_outputs_saved", msg_ids=[first["msg_id"]]) == {"status": "ok"}
    left = client.ask("replkernel_outputs_request")["executions"]
    assert [execution["msg_id"] for execution in left] == [second["msg_id"]]


def test_a_running_cell_is_told_as_running_and_answered_at_once(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    client = routed(REPLKERNEL_REPLICAS="1").client()
    msg_id, gate = begun(client, tmp_path, 40)
    (running,) = client.ask("replkernel_outputs_request")["executions"]
    assert (running["state"], running["ended"]) == ("running", None)
    assert running["outputs"][0]["text"] == lines(4)
    gate.touch()
    client.finish(msg_id)
    (ended,) = client.ask("replkernel_outputs_request", since=running["version"])["executions"]
    assert (ended["state"], ended["outputs"][0]["text"]) == ("ok", lines(40))


def test_a_client_that_comes_back_is_sent_what_it_missed(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    watcher = kernel.client()
    msg_id, gate = begun(client, tmp_path, 30)
    client.close()
    kernel.await_departure()
    gate.touch()
    watcher.wait(lambda: "idle" in watcher.states(msg_id), "the end of the cell")
    client.open()
    client.kernel.kernel_info()
    assert client.finish(msg_id)["status"] == "ok"
    assert client.texts(msg_id) == lines(30)
    assert watcher.texts(msg_id) == lines(30)
    assert watcher.states(msg_id) == ["busy", "idle"]
    assert client.states(msg_id).count("idle") == 1
    after = client.kernel.execute("print('after')")
    client.finish(after)
    assert client.texts(after) == "after\n"


def test_output_goes_on_behind_what_was_missed(routed: Callable[..., Routed], tmp_path: Path) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    msg_id, gate = begun(client, tmp_path, 150)
    client.close()
    kernel.await_departure()
    gate.touch()
    passed(gate, 40)
    client.open()
    client.kernel.kernel_info()
    client.finish(msg_id)
    assert client.texts(msg_id) == lines(150)


def test_a_router_killed_in_a_cell_costs_nothing(routed: Callable[..., Routed], tmp_path: Path) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    client.finish(client.kernel.execute("ran = 0"))
    stops = Stops(tmp_path, 3)
    msg_id = client.kernel.execute("ran += 1\n" + stops.cell(150) + "ran")
    behind = client.kernel.execute("print('ran', ran)")
    printed_so_far(client, msg_id, "line 3\n")
    eventually(lambda: len(client.ask("replkernel_outputs_request")["executions"]) == 3, "the cell behind")
    kernel.kill()
    stops.go_on(3)
    stops.await_line(20)
    kernel.start()
    assert client.finish(msg_id)["execution_count"] == 2
    assert client.finish(behind)["status"] == "ok"
    assert client.texts(msg_id) == lines(150)
    assert client.texts(behind) == "ran 1\n"
    told = client.ask("replkernel_outputs_request")["executions"]
    assert [execution["state"] for execution in told] == ["ok", "ok", "ok"]
    assert told[1]["outputs"][0]["text"] == lines(150)


@pytest.mark.slow
def test_routers_killed_one_after_the_other_send_nothing_twice(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    stops = Stops(tmp_path, 3, 60, 120)
    msg_id = client.kernel.execute(stops.cell(200))
    for line in (3, 60, 120):
        printed_so_far(client, msg_id, f"line {line}\n")
        kernel.kill()
        stops.go_on(line)
        stops.await_line(line + 20)
        kernel.start()
    assert client.finish(msg_id)["status"] == "ok"
    assert client.texts(msg_id).splitlines() == lines(200).splitlines()


@pytest.mark.slow
def test_a_reply_that_arrived_is_not_sent_again_by_the_next_router(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    stops = Stops(tmp_path, 3)
    msg_id = client.kernel.execute(stops.cell(100))
    printed_so_far(client, msg_id, "line 3\n")
    kernel.kill()
    stops.go_on(3)
    stops.await_line(20)
    kernel.start()
    assert client.finish(msg_id)["status"] == "ok"
    client.take(1.0)
    kernel.await_answer()  # That it was sent is noted at the end of the router's turn.
    kernel.kill()
    kernel.start()
    client.hello()
    client.take(1.0)
    assert client.reply(msg_id)  # Fails when there are two.
    assert client.texts(msg_id).splitlines() == lines(100).splitlines()


CAPTURED = """class Captured:
    def __replkernel_dump__(self): open({mark!r}, 'w').close()
    @classmethod
    def __replkernel_load__(cls, state): return cls()
"""
"""Marks when a cell that makes one is captured, which is after its reply."""


def test_a_reply_given_while_there_was_no_router_arrives(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    gate, mark = tmp_path / "gate", tmp_path / "captured"
    client.finish(client.kernel.execute(CAPTURED.format(mark=str(mark))))
    waits = f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)"
    msg_id = client.kernel.execute(
        f"import os, time; print('begun', flush=True)\n{waits}\ncaptured = Captured()\n'done'"
    )
    printed_so_far(client, msg_id, "begun\n")
    kernel.kill()
    gate.touch()
    eventually(mark.exists, "the end of the cell")
    kernel.start()
    assert client.finish(msg_id)["execution_count"] == 2
    results = [
        m["content"]["data"]["text/plain"] for m in client.of(msg_id) if m["msg_type"] == "execute_result"
    ]
    assert results == ["'done'"]
    assert client.states(msg_id).count("idle") == 1  # Who comes in the middle of a cell is told `busy` again.


@pytest.mark.slow
def test_nothing_is_kept_of_a_kernel_that_has_ended(routed: Callable[..., Routed]) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    client.finish(client.kernel.execute("print('kept for now')"))
    kept = kernel_dir(data_dir(kernel.env), kernel.kernel_id) / "outputs"
    assert kept.stat().st_mode & 0o777 == 0o700
    files = list(kept.iterdir())
    assert any(b"kept for now" in file.read_bytes() for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    client.kernel.shutdown()
    kernel.router.wait(30)
    assert not kept.exists()


def test_a_process_that_dies_while_there_is_no_router_ends_its_cell(routed: Callable[..., Routed]) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    asked = client.kernel.execute("import os; print(os.getpid())")
    client.finish(asked)
    msg_id = client.kernel.execute("import time; print('begun', flush=True); time.sleep(60)")
    printed_so_far(client, msg_id, "begun\n")
    kernel.kill()
    os.kill(int(client.texts(asked)), signal.SIGKILL)
    time.sleep(1)
    kernel.start()
    assert client.finish(msg_id)["ename"] == "ExecutorLost"
    after = client.kernel.execute("print('on')")
    client.finish(after)
    assert client.texts(after) == "on\n"


@pytest.mark.slow
def test_a_cell_that_was_sent_to_a_dead_process_runs_although_its_router_dies_before_that_is_told(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    kernel = routed(REPLKERNEL_DURABLE="before_reply", REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    asked = client.kernel.execute("import os; runs = []; print(os.getpid())")
    client.finish(asked)
    agent = find_agent("here", kernel.env)
    assert agent is not None
    os.kill(agent.pid, signal.SIGSTOP)
    os.kill(int(client.texts(asked)), signal.SIGKILL)
    mark = tmp_path / "began"
    code = f"runs.append(1)\nwith open({str(mark)!r}, 'a') as mark: mark.write('x')\nprint(runs)"
    msg_id = client.kernel.execute(code)
    client.take(0.5)
    kernel.kill()
    os.kill(agent.pid, signal.SIGCONT)
    kernel.start()
    assert client.finish(msg_id)["status"] == "ok"
    assert (client.texts(msg_id), mark.read_text()) == ("[1]\n", "x")


@pytest.mark.slow
def test_a_page_that_is_back_after_a_newcomer_is_sent_what_a_new_router_published_before(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    msg_id, gate = begun(client, tmp_path, 60)
    kernel.kill()
    client.close()
    kernel.start()
    newcomer = kernel.client()
    time.sleep(3)  # Clients that connect again by themselves have done so.
    gate.touch()
    printed_so_far(newcomer, msg_id, "line 50\n")
    client.open()
    client.kernel.kernel_info()
    assert client.finish(msg_id)["status"] == "ok"
    assert client.texts(msg_id).splitlines() == lines(60).splitlines()


def test_a_page_that_was_away_longer_than_the_router_lived_is_sent_everything(
    routed: Callable[..., Routed], tmp_path: Path
) -> None:
    kernel = routed(REPLKERNEL_REPLICAS="1")
    client = kernel.client()
    msg_id, gate = begun(client, tmp_path, 60)
    client.close()
    kernel.await_departure()
    gate.touch()
    passed(gate, 20)
    kernel.kill()
    kernel.start()
    kernel.await_answer()
    passed(gate, 59)
    client.open()
    client.kernel.kernel_info()
    assert client.finish(msg_id)["status"] == "ok"
    assert client.texts(msg_id).splitlines() == lines(60).splitlines()
    assert client.states(msg_id).count("idle") == 1  # Who comes in the middle of a cell is told `busy` again.
