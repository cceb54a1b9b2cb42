"""What clients of a kernel notice of its router with real replicas: what a stock kernel does, and more."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient

from replkernel.router.core.questions import LONG_S
from tests.support.live import Live, await_commit, eventually, kernel, published
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope, tidy

__all__ = ["_kernel_in_reach", "_own_directories", "place"]
pytestmark = pytest.mark.timeout(120)

REPLY_S = 30.0
TRIES = 5
SLEEP = "[time.sleep(0.1) for _ in range(600)]"
"""Sleeps that an interrupt ends: of one that comes right before a sleep Python learns when that is over."""


@pytest.fixture(scope=shared_scope)
def shared(place: Path) -> Iterator[Live]:
    with kernel(place) as running:
        yield running


@pytest.fixture
def live(shared: Live) -> Iterator[Live]:
    """Return the kernel that most tests share, idle and without variables."""
    yield shared
    tidy(shared)


def replies_to(
    client: BlockingKernelClient, *msg_ids: str, channel: str = "shell"
) -> dict[str, dict[str, Any]]:
    """Return the replies to requests, in whatever order they come; replies to earlier ones are left."""
    deadline = time.monotonic() + REPLY_S
    found: dict[str, dict[str, Any]] = {}
    while set(msg_ids) - set(found):
        left = max(0.01, deadline - time.monotonic())
        message: dict[str, Any] = getattr(client, f"get_{channel}_msg")(timeout=left)
        msg_id = message["parent_header"].get("msg_id")
        if msg_id in msg_ids:
            found[msg_id] = message
    return found


def reply_to(client: BlockingKernelClient, msg_id: str, channel: str = "shell") -> dict[str, Any]:
    """Return the reply to one request."""
    return replies_to(client, msg_id, channel=channel)[msg_id]


def started(client: BlockingKernelClient, code: str, before: str = "pass") -> str:
    """Send a cell that does `before`, says so and does `code`; return its id once it has said so."""
    msg_id = client.execute(f"{before}; print('started', flush=True); {code}")
    while True:
        message = client.get_iopub_msg(timeout=REPLY_S)
        if message["parent_header"].get("msg_id") == msg_id and message["msg_type"] == "stream":
            return msg_id


# -- a standby answers while the executor is busy -----------------------------------------------------


def test_questions_are_answered_while_a_cell_runs(live: Live, tmp_path: Path) -> None:
    live.value("import time; wonderful_name = [1]; print()")
    client = live.client
    await_commit(client)
    answered = tmp_path / "answered"
    cell = started(client, f"import os\nwhile not os.path.exists({str(answered)!r}): time.sleep(0.05)")
    questions = {
        "complete": client.complete("wonderful_n", 11),
        "inspect": client.inspect("wonderful_name", 3),
        "history": client.history(hist_access_type="tail", n=5, raw=True, output=False),
        "is_complete": client.is_complete("for i in range(3):"),
        "kernel_info": client.kernel_info(),
        "comm_info": client.comm_info(),
    }
    replies = replies_to(client, *questions.values())
    assert cell not in replies
    answers = {kind: replies[msg_id]["content"] for kind, msg_id in questions.items()}
    assert answers["complete"]["matches"] == ["wonderful_name"]
    assert answers["inspect"]["found"] is True
    assert "list" in answers["inspect"]["data"]["text/plain"]
    assert any("wonderful_name" in line for _, _, line in answers["history"]["history"])
    assert answers["is_complete"]["status"] == "incomplete"
    assert answers["kernel_info"]["status"] == "ok"
    assert answers["comm_info"] == {"status": "ok", "comms": {}}
    answered.touch()
    assert reply_to(client, cell)["content"]["status"] == "ok"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Live]:
    """Return a kernel whose processes have imported nothing yet."""
    with kernel(tmp_path) as running:
        yield running


def imported_in_short_cells(live: Live, directory: Path) -> tuple[Path, str]:
    """Have a notebook use a library that nobody else has imported; return where each import is noted, and it.

    A cell that takes a second has a standby import it, as it must: then another library is taken.
    """
    for number in range(TRIES):
        importers, library = directory / f"importers{number}", f"slow_library{number}"
        (directory / f"{library}.py").write_text(
            f"import os\nwith open({str(importers)!r}, 'a') as out: out.write(f'{{os.getpid()}}\\n')\n"
            "class Model:\n    weights_of_it = 1\n    def fit_it(self): 'Fit the model.'\n"
        )
        ran = [
            live.run(f"import sys; sys.path.insert(0, {str(directory)!r})"),
            live.run(f"from {library} import Model"),
            live.run("model = Model(); table = {'first': 1, 'second': 2}"),
        ]
        imports = len(importers.read_text().split())
        assert [each.status for each in ran] == ["ok"] * 3
        if max(each.seconds for each in ran) < LONG_S:
            assert imports == 1
            return importers, library
        with contextlib.suppress(AssertionError):  # What the cell gave rise to is not to meet the next one.
            eventually(lambda at=importers: len(at.read_text().split()) == 2, "a standby's import")
    raise AssertionError(f"a cell that takes no time took {LONG_S:g} s, {TRIES} times")


def test_a_long_cell_has_a_standby_import_what_answers_need_before_anybody_asks(
    fresh: Live, tmp_path: Path
) -> None:
    live = fresh
    importers, library = imported_in_short_cells(live, tmp_path)
    live.value("import pandas; frame = pandas.DataFrame({'alpha': [1]})")
    answered = tmp_path / "answered"
    cell = started(live.client, f"import os\nwhile not os.path.exists({str(answered)!r}): sum(range(20_000))")
    eventually(lambda: len(importers.read_text().split()) == 2, "a standby's import")
    for code, found in {
        "model.weights": "weights_of_it",
        "model.fi": "fit_it",
        "table['": "first",
        "frame['": "alpha",
        "frame.al": "alpha",
        "tab": "table",
        "import slow_lib": library,
    }.items():
        reply = reply_to(live.client, live.client.complete(code, len(code)))["content"]
        assert any(found in match for match in reply["matches"]), (code, reply)
    told = reply_to(live.client, live.client.inspect("model.fit_it", 10))["content"]
    assert "Fit the model." in told["data"]["text/plain"]
    answered.touch()
    assert reply_to(live.client, cell)["content"]["status"] == "ok"


# -- one of each ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["1 + 1", "1 / 0", "print('x')", "%lsmagic", ""])
def test_each_request_has_one_busy_input_reply_and_idle(live: Live, code: str) -> None:
    msg_id = live.client.execute(code)
    kinds = Counter(
        message["content"].get("execution_state", message["msg_type"])
        for message in published(live.client, msg_id)
    )
    assert (kinds["busy"], kinds["idle"], kinds["execute_input"]) == (1, 1, 1)
    assert reply_to(live.client, msg_id)["msg_type"] == "execute_reply"
    with pytest.raises(queue.Empty):
        live.client.get_shell_msg(timeout=0.3)


def test_the_same_request_twice_runs_once_and_is_answered_twice(live: Live) -> None:
    count = live.run("runs = 0").reply["content"]["execution_count"]
    message = live.client.session.msg(
        "execute_request",
        {"code": "runs += 1", "silent": False, "store_history": True, "user_expressions": {}},
    )
    for _ in range(3):
        live.client.shell_channel.send(message)
        assert reply_to(live.client, message["header"]["msg_id"])["content"]["execution_count"] == count + 1
    assert live.value("print(runs)") == "1"


def test_two_clients_at_once_each_get_their_own_answers(live: Live) -> None:
    other: BlockingKernelClient = live.manager.blocking_client()
    other.start_channels(hb=False)
    try:
        other.wait_for_ready(timeout=REPLY_S)
        asked: dict[str, list[str]] = {"a": [], "b": []}
        clients = {"a": live.client, "b": other}
        for number in range(10):
            for name, client in clients.items():
                wish = {"value": f"'{name}{number}'"}
                asked[name].append(client.execute("", user_expressions=wish))
        for name, client in clients.items():
            replies = replies_to(client, *asked[name])
            assert len(replies) == 10
            values = [replies[msg_id]["content"]["user_expressions"]["value"] for msg_id in asked[name]]
            texts = [value["data"]["text/plain"].strip('"') for value in values]
            assert texts == [f"'{name}{number}'" for number in range(10)]
        shared = other.execute("print('heard by both')")
        assert any(message["msg_type"] == "stream" for message in published(live.client, shared))
    finally:
        other.stop_channels()


def test_a_silent_cell_shows_nothing_and_does_not_count(live: Live) -> None:
    before = live.run("1")
    silent = live.run("quiet = 2; quiet", silent=True, store_history=False)
    assert "execute_input" not in silent.kinds
    assert "execute_result" not in silent.kinds
    after = live.run("quiet")
    counts = [ran.reply["content"]["execution_count"] for ran in (before, after)]
    assert counts[1] == counts[0] + 1


def test_an_error_aborts_the_cells_that_wait_but_not_those_that_do_not_care(
    live: Live, tmp_path: Path
) -> None:
    client, sent = live.client, tmp_path / "sent"
    live.value("import os, time; print()")
    failing = client.execute(f"while not os.path.exists({str(sent)!r}): time.sleep(0.02)\n1 / 0")
    waiting = [client.execute("print('no')") for _ in range(3)]
    # The cells have arrived once this is answered.
    reply_to(client, client.kernel_info())
    sent.touch()
    assert reply_to(client, failing)["content"]["ename"] == "ZeroDivisionError"
    assert [reply_to(client, msg_id)["content"]["status"] for msg_id in waiting] == ["aborted"] * 3
    failing = client.execute("time.sleep(0.5); 1 / 0", stop_on_error=False)
    waiting = [client.execute("print('yes')") for _ in range(2)]
    assert reply_to(client, failing)["content"]["status"] == "error"
    assert [reply_to(client, msg_id)["content"]["status"] for msg_id in waiting] == ["ok"] * 2


# -- input and interrupts ---------------------------------------------------------------------------


@pytest.fixture(scope=shared_scope)
def rotating(place: Path) -> Iterator[Live]:
    """Return a kernel that runs each cell on another replica."""
    with kernel(place, REPLKERNEL_EXECUTOR="rotate") as running:
        yield running


@pytest.mark.parametrize("policy", ["shared", "rotating"])
def test_input_reaches_the_cell_that_asked(request: pytest.FixtureRequest, policy: str) -> None:
    live: Live = request.getfixturevalue(policy)
    for answer in ("first", "second"):
        msg_id = live.client.execute("given = input('who? '); print(given)", allow_stdin=True)
        asked = live.client.get_stdin_msg(timeout=REPLY_S)
        assert asked["content"]["prompt"] == "who? "
        live.client.input(answer)
        assert reply_to(live.client, msg_id)["content"]["status"] == "ok"
        assert live.value("print(given)") == answer
    tidy(live)


def test_a_running_cell_is_interrupted_and_variables_stay(live: Live) -> None:
    live.value("import time; x = 1; print()")
    msg_id = started(live.client, SLEEP, before="x = 2")
    begun = time.monotonic()
    live.manager.interrupt_kernel()
    content = reply_to(live.client, msg_id)["content"]
    assert content["ename"] == "KeyboardInterrupt"
    assert time.monotonic() - begun < 10
    assert live.value("print(x)") == "2"


def test_an_interrupt_aborts_the_cells_that_wait(live: Live) -> None:
    live.value("import time; ran = []; print()")
    running = started(live.client, SLEEP)
    waiting = [live.client.execute(f"ran.append({number})") for number in range(3)]
    # The cells have arrived once this is answered: an interrupt would overtake them.
    reply_to(live.client, live.client.kernel_info())
    live.manager.interrupt_kernel()
    assert reply_to(live.client, running)["content"]["ename"] == "KeyboardInterrupt"
    assert {reply_to(live.client, msg_id)["content"]["status"] for msg_id in waiting} == {"aborted"}
    assert live.value("print(ran)") == "[]"


def test_a_cell_can_be_interrupted_at_any_moment_of_its_start(live: Live) -> None:
    client = live.client
    for number in range(30):
        msg_id = client.execute(f"print({number})")
        time.sleep(number * 0.0004)
        interrupt = client.session.msg("interrupt_request", {})
        client.control_channel.send(interrupt)
        content = reply_to(client, msg_id)["content"]
        assert content["status"] == "ok" or content["ename"] == "KeyboardInterrupt"
        # One that comes late is not to meet a later cell than the next.
        reply_to(client, interrupt["header"]["msg_id"], channel="control")
    again = live.run("print('alive')", timeout=20)
    if again.error.startswith("KeyboardInterrupt"):
        again = live.run("print('alive')", timeout=20)
    assert again.out == "alive\n"


# -- restart ----------------------------------------------------------------------------------------


def test_a_restart_wipes_the_namespace_and_keeps_the_ports(live: Live) -> None:
    live.value("x = 1; print(x)")
    ports = [getattr(live.manager, f"{name}_port") for name in ("shell", "iopub", "stdin", "control", "hb")]
    live.manager.restart_kernel(now=False)
    live.client.wait_for_ready(timeout=60)
    again = [getattr(live.manager, f"{name}_port") for name in ("shell", "iopub", "stdin", "control", "hb")]
    assert again == ports
    ran = live.run("print('x' in globals())")
    assert ran.out == "False\n"
    assert ran.reply["content"]["execution_count"] == 1


# -- comms, usage, output ---------------------------------------------------------------------------

ECHO = """
def opened(comm, message):
    comm.send({'opened': message['content']['data']})
    comm.on_msg(lambda m: comm.send({'echo': m['content']['data']}))
    comm.on_close(lambda m: print('closed', flush=True))
get_ipython().kernel.comm_manager.register_target('echo', opened)
"""


def test_a_comm_is_opened_echoed_and_closed(live: Live) -> None:
    assert live.run(ECHO).status == "ok"
    client, comm = live.client, "a-comm-of-the-tests"

    def send(kind: str, **content: Any) -> list[dict[str, Any]]:
        message = client.session.msg(kind, {"comm_id": comm, "data": {}, **content})
        client.shell_channel.send(message)
        return published(client, message["header"]["msg_id"])

    def told(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [message["content"]["data"] for message in messages if message["msg_type"] == "comm_msg"]

    assert told(send("comm_open", target_name="echo", data={"n": 1})) == [{"opened": {"n": 1}}]
    known = reply_to(client, client.comm_info())["content"]["comms"]
    assert known == {comm: {"target_name": "echo"}}
    assert told(send("comm_msg", data={"n": 2})) == [{"echo": {"n": 2}}]
    closed = send("comm_close")
    printed = [message["content"]["text"] for message in closed if message["msg_type"] == "stream"]
    assert "".join(printed) == "closed\n"
    assert reply_to(client, client.comm_info())["content"]["comms"] == {}


def test_executions_on_the_control_channel_are_answered_there_in_their_order(live: Live) -> None:
    live.value("import time; ran = []")
    sent = [
        live.client.session.msg("execute_request", {"code": f"time.sleep({pause}); ran.append({pause})"})
        for pause in (0.2, 0.1, 0.0)
    ]
    for message in sent:
        live.client.control_channel.send(message)
    asked = [message["header"]["msg_id"] for message in sent]
    replies = replies_to(live.client, *asked, channel="control")
    assert list(replies) == asked, "in their order"
    assert [reply["content"]["status"] for reply in replies.values()] == ["ok"] * 3
    assert live.value("print(ran)") == "[0.2, 0.1, 0.0]"


def test_the_usage_of_the_executor_is_told(live: Live) -> None:
    pid = int(live.value("import os; print(os.getpid())"))
    message = live.client.session.msg("usage_request", {})
    live.client.control_channel.send(message)
    content = reply_to(live.client, message["header"]["msg_id"], "control")["content"]
    assert content["pid"] == pid
    assert content["kernel_memory"] > 0


def test_twenty_thousand_lines_arrive_complete_and_in_order(live: Live) -> None:
    ran = live.run("for number in range(20_000): print(number)")
    assert ran.out.splitlines() == [str(number) for number in range(20_000)]


@pytest.mark.slow
def test_fifty_megabytes_of_output_arrive_whole(live: Live) -> None:
    ran = live.run("for _ in range(50): print('x' * (1 << 20))")
    assert len(ran.out) == 50 * ((1 << 20) + 1)
    shown = live.run("'y' * 20_000_000")
    (result,) = [content for kind, content in shown.messages if kind == "execute_result"]
    assert len(result["data"]["text/plain"]) == 20_000_002
    assert live.value("print('alive')") == "alive"


# -- policies ---------------------------------------------------------------------------------------


def test_rotate_runs_each_cell_on_another_replica(rotating: Live) -> None:
    rotating.value("trail = []; import os; print()")
    eventually(lambda: len({rotating.run("pass").replica for _ in range(3)}) == 3, "three replicas")
    ran = [rotating.run("trail.append(os.getpid())") for _ in range(6)]
    replicas = [each.replica for each in ran]
    assert all(one != other for one, other in itertools.pairwise(replicas)), replicas
    assert set(replicas) == {"r1", "r2", "r3"}
    assert rotating.value("print(len(trail), len(set(trail)))") == "6 3"


def test_a_kernel_of_one_replica_answers_while_its_cell_runs(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_REPLICAS="1") as live:
        first = live.run("import time; x = 1")
        assert (first.status, first.replica) == ("ok", "r1")
        answered = tmp_path / "answered"
        wait = f"import os\nwhile not os.path.exists({str(answered)!r}): time.sleep(0.05)\nx = 2"
        cell = started(live.client, wait)
        assert reply_to(live.client, live.client.kernel_info())["content"]["status"] == "ok"
        completed = live.client.complete("tim", 3)
        answered.touch()
        replies = replies_to(live.client, cell, completed)
        assert replies[cell]["content"]["status"] == "ok"
        assert "time" in replies[completed]["content"]["matches"]
        assert live.value("print(x)") == "2"


@pytest.mark.parametrize("replicas", ["1", "3"])
def test_a_reply_that_waits_for_its_commit_says_durable(tmp_path: Path, replicas: str) -> None:
    with kernel(tmp_path, REPLKERNEL_DURABLE="before_reply", REPLKERNEL_REPLICAS=replicas) as live:
        assert live.run("x = 1").said["durable"] is True
        assert live.run("import os; big = os.urandom(500_000)").said["durable"] is True
        failed = live.run("y = 2; 1 / 0")
        assert (failed.status, failed.said["durable"]) == ("error", True)


@pytest.mark.one_host
def test_the_replies_metadata_tells_who_ran_the_cell(live: Live) -> None:
    said = live.run("x = list(range(100))").said
    assert set(said) >= {"replica", "host", "gpus", "lease_s", "queued_s", "state_bytes", "durable"}
    assert said["replica"] in ("r1", "r2", "r3")
    assert said["host"] == os.uname().nodename.split(".")[0]
    assert eventually(lambda: live.run("pass").said["state_bytes"] > 0, "captured state")
