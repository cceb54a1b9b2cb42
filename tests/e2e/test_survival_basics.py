"""What dies outright (a process, an agent, a router) costs at most the cell that it ran; variables stay.

All tests share an agent; one that kills it has the next one in its place.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import psutil
import pytest
from jupyter_client.ioloop import AsyncIOLoopKernelManager
from jupyter_client.provisioning import KernelProvisionerFactory

from replkernel.client.inquiry import ask_agents, live_agents
from replkernel.launch.kernel_record import read_record
from replkernel.protocol.status import ReplicaStatus
from replkernel.settings import data_dir
from tests.support.breadth import first_of
from tests.support.ending import lose
from tests.support.group import replicas
from tests.support.live import AGENT_S, Live, eventually, kernel
from tests.support.shared_place import _kernel_in_reach, _no_kernel_left, _own_directories, place
from tests.support.stock import OURS, kernelspec_dir

__all__ = ["_kernel_in_reach", "_no_kernel_left", "_own_directories", "place"]

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("zygotes_as_shipped")]

IN_ITS_MIDST_S = 1.0
"""A cell that has begun has been claimed within this time."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path) as running:
        yield running


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def whole(cells: int = 0) -> dict[str, ReplicaStatus] | None:
    """Return the three replicas once each has a process and the same log of at least `cells` executions."""
    kernels = ask_agents(os.environ, AGENT_S).kernels
    if not kernels or any(known.execution_count < cells for known in kernels):
        return None
    found = {replica.replica: replica for known in kernels for replica in known.replicas}
    rafts = {replica.raft.applied if replica.raft else -1 for replica in found.values()}
    alive = all(replica.kernel_pid and _runs(replica.kernel_pid) for replica in found.values())
    return found if len(found) == 3 and alive and len(rafts) == 1 and rafts != {-1} else None


def agent_pid() -> int:
    (agent,) = live_agents(os.environ)
    return agent.pid


def settled(cells: int) -> dict[str, ReplicaStatus]:
    """Wait until each replica has the log of so many executions; return the replicas."""
    return eventually(lambda: whole(cells), f"{cells} cells in the logs of three replicas")


def kill_in_a_cell(pid: int, begun: Path) -> None:
    """Kill a process in the midst of the cell that makes a file as it begins."""

    def watch() -> None:
        eventually(begun.exists, "the cell's begin")
        time.sleep(IN_ITS_MIDST_S)
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=watch).start()


# -- the executor -----------------------------------------------------------------------------------


def test_an_executor_killed_in_a_cell_costs_that_cell_alone(live: Live, tmp_path: Path) -> None:
    pid = int(live.value("import os; x = {'a': [1, 2]}; y = x['a']; print(os.getpid())"))
    settled(1)
    begun = tmp_path / "begun"
    kill_in_a_cell(pid, begun)
    ran = live.run(f"y.append(3); import time; open({str(begun)!r}, 'w').close(); time.sleep(30)")
    assert ran.status == "error"
    assert ran.seconds < 25, "it does not sleep to its end"
    assert ran.error.startswith("ExecutorLost: ")
    assert "SIGKILL" in ran.error
    assert "the notebook is back at the cell before this one" in ran.error
    assert ran.kinds.count("error") == 1
    assert ran.kinds.count("idle") == 1
    after = live.run("print(x, y is x['a'])")
    assert after.out == "{'a': [1, 2]} True\n"
    assert int(live.value("print(os.getpid())")) != pid
    assert eventually(whole, "three replicas again")


TEE = """
import io, os, sys
class Tee:
    def __init__(self, under): self.under, self.count = under, 0
    def write(self, text): self.count += 1; return self.under.write(text)
    def __getattr__(self, name): return getattr(self.under, name)
own = sys.stdout; tee = sys.stdout = Tee(own); kept = [tee, [1]]
read, written = os.pipe()
"""


@pytest.mark.slow
def test_a_replaced_stream_is_the_processs_own_after_a_crash_and_the_loss_is_told(live: Live) -> None:
    live.run(TEE)
    pid = int(live.value("print(os.getpid())"))
    settled(2)
    lose(pid)
    ran = live.run("print(type(tee).__name__, kept[0] is tee, tee.under is own is sys.stdout, tee.count > 0)")
    assert ran.out == "Tee True True True\n"
    assert "went what lived in it alone" in ran.err and "sys.stdout (cell 1)" in ran.err
    assert live.run("print(5)").err == ""
    assert "Nothing binds" in live.value("%replkernel pins")


@pytest.mark.slow
def test_a_callback_that_waits_on_the_event_loop_holds_the_notebook_and_is_told_when_it_is_lost(
    live: Live,
) -> None:
    live.run(
        "import asyncio, os; hits = []; asyncio.get_running_loop().call_later(600, hits.append, 1) and None"
    )
    pid = int(live.value("print(os.getpid())"))
    assert "callbacks wait" not in live.value("%replkernel pins")
    assert "A callback waits on the event loop: list.append in " in live.value("%replkernel pins")
    settled(4)
    lose(pid)
    ran = live.run("print(hits)")
    assert ran.out == "[]\n"
    assert "went what lived in it alone: callback list.append (cell 1): A callback waits" in ran.err
    assert "Nothing binds" in live.value("%replkernel pins")


@pytest.mark.parametrize("code", first_of("import ctypes; ctypes.string_at(0)", "os._exit(3)"))
def test_a_cell_that_ends_its_own_process_says_how(live: Live, code: str) -> None:
    live.value("import os; x = 5; print(x)")
    settled(1)
    ran = live.run(code)
    assert ran.error.startswith("ExecutorLost: ")
    assert ("exit code 3" if "_exit" in code else "SIGSEGV") in ran.error
    assert live.value("print(x)") == "5"


@pytest.mark.slow
@pytest.mark.parametrize("code", first_of("quit()", "exit"))
def test_a_cell_that_leaves_its_process_costs_no_later_cell(live: Live, code: str) -> None:
    pid = int(live.value("import os; x = 0; print(os.getpid())"))
    ran = live.run(code)
    assert ran.status == "ok", ran.error
    assert "restart the kernel" in ran.err
    pids = set()
    for number in range(1, 13):
        ran = live.run("x += 1; print(x, os.getpid())")
        assert ran.status == "ok", ran.error
        value, runs_in = ran.out.split()
        assert int(value) == number
        pids.add(int(runs_in))
        time.sleep(0.02)
    assert pid not in pids


@pytest.mark.slow
def test_an_idle_executor_that_is_killed_is_not_missed(live: Live) -> None:
    pid = int(live.value("import os; x = 1; print(os.getpid())"))
    settled(1)
    lose(pid)
    ran = live.run("x += 1; print(x, os.getpid())")
    assert ran.status == "ok", ran.error
    value, runs_in = ran.out.split()
    assert value == "2"
    assert int(runs_in) != pid
    assert ran.reply["content"]["execution_count"] == 2


@pytest.mark.slow
def test_cells_that_follow_at_once_run_when_the_executor_dies_between_them(live: Live) -> None:
    pid = int(live.value("import os; x = 0; print(os.getpid())"))
    settled(1)
    os.kill(pid, signal.SIGKILL)
    waiting = [live.client.execute(f"x += 1; print('cell', {number}, x)") for number in range(3)]
    lost = sum(live.reply(msg_id)["content"]["status"] != "ok" for msg_id in waiting)
    assert live.value("print(x)") == str(3 - lost)
    assert lost in (0, 1, 3)


# -- a standby --------------------------------------------------------------------------------------


def test_a_standby_that_is_killed_is_replaced_and_holds_everything_again(live: Live) -> None:
    ran = live.run("import os; data = bytearray(os.urandom(300_000)); check = sum(data)")
    before = settled(1)
    standby = next(name for name in before if name != ran.replica)
    lose(before[standby].kernel_pid)
    after = eventually(
        lambda: (found := whole()) and found[standby].kernel_pid != before[standby].kernel_pid and found,
        "another process for the standby",
    )
    live.value("print('go on')")
    settled(2)
    lose(*(replica.kernel_pid for name, replica in after.items() if name != standby))
    assert live.value("print(sum(data) == check)") == "True"


# -- the agent --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.one_host
def test_an_agent_killed_while_all_is_idle_takes_nothing_with_it(live: Live) -> None:
    pid = int(live.value("import os; x = [1]; print(os.getpid())"))
    settled(1)
    lose(agent_pid())
    ran = live.run("x.append(2); print(x, os.getpid())")
    assert ran.status == "ok", ran.error
    assert ran.out == f"[1, 2] {pid}\n"
    eventually(lambda: whole(2), "three replicas under a new agent")
    lose(pid)
    assert live.value("print(x)") == "[1, 2]"


@pytest.mark.one_host
def test_an_agent_killed_during_a_cell_does_not_stop_it(live: Live, tmp_path: Path) -> None:
    pid = int(live.value("import os, time; x = 1; print(os.getpid())"))
    settled(1)
    begun = tmp_path / "begun"
    kill_in_a_cell(agent_pid(), begun)
    ran = live.run(f"open({str(begun)!r}, 'w').close(); time.sleep(3); x += 1; print('done', os.getpid())")
    assert ran.status == "ok", ran.error
    assert ran.out == f"done {pid}\n"
    eventually(lambda: whole(2), "three replicas under a new agent")
    lose(pid)
    assert live.value("print(x)") == "2"


# -- the router -------------------------------------------------------------------------------------


def router_pid() -> int:
    (known,) = ask_agents(os.environ, AGENT_S).kernels
    record = read_record(data_dir(os.environ), known.kernel_id)
    assert record is not None
    return record.router_pid


def test_a_router_that_is_killed_and_started_again_finds_the_variables(live: Live) -> None:
    pid = int(live.value("import os; x = {1: 2}; print(os.getpid())"))
    lose(router_pid())
    live.manager.restart_kernel(now=True)
    live.client.wait_for_ready(timeout=30)
    ran = live.run("print(x, os.getpid())")
    assert ran.status == "ok", ran.error
    assert ran.out == f"{{1: 2}} {pid}\n"
    assert ran.reply["content"]["execution_count"] == 2


@pytest.mark.slow
def test_a_cell_lost_with_its_process_and_its_router_is_said_to_be_lost(live: Live) -> None:
    live.value("import os; x = 0")
    eventually(lambda: whole(1), "three replicas that know of the first cell")
    router = router_pid()
    pid = int(live.value("x += 1; print(os.getpid())"))
    os.kill(pid, signal.SIGKILL)
    lose(router)
    live.manager.restart_kernel(now=True)
    live.client.wait_for_ready(timeout=30)
    ran = live.run("print(x)")
    told = "the notebook is back at cell 1" in ran.err and "run cell 2 again" in ran.err
    assert (ran.out, told) in {("1\n", False), ("0\n", True)}, (ran.out, ran.err, ran.error)
    assert ran.reply["content"]["execution_count"] == 3


async def test_a_router_that_crashes_is_started_again_by_jupyters_restarter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "replkernel-provisioner"
    group = "jupyter_client.kernel_provisioners"
    point = EntryPoint(name, "replkernel.provisioner:ReplkernelProvisioner", group)
    monkeypatch.setitem(KernelProvisionerFactory.instance().provisioners, name, point)
    monkeypatch.setenv("JUPYTER_PATH", str(kernelspec_dir(tmp_path / "jupyter")))
    spec = Path(os.environ["JUPYTER_PATH"]) / "kernels" / OURS / "kernel.json"
    fields = json.loads(spec.read_text())
    fields["metadata"]["kernel_provisioner"] = {"provisioner_name": name}
    spec.write_text(json.dumps(fields))
    manager = AsyncIOLoopKernelManager(kernel_name=OURS)
    await manager.start_kernel(env=dict(os.environ))
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        await client.execute_interactive("x = 'kept'", timeout=60)
        assert manager.provisioner is not None
        before = manager.provisioner.pid
        os.kill(before, signal.SIGKILL)
        restarted: list[bool] = []
        manager.add_restart_callback(lambda: restarted.append(True))
        deadline = time.monotonic() + 30
        while manager.provisioner.pid in (before, None) or not restarted:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        await client.wait_for_ready(timeout=60)
        printed: list[str] = []
        reply = await client.execute_interactive(
            "print(x)",
            timeout=60,
            output_hook=lambda message: printed.append(message["content"].get("text", "")),
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        assert "".join(printed) == "kept\n"
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=False)


def test_when_memory_runs_out_a_standby_is_killed_before_the_executor_and_both_before_agent_and_router(
    live: Live,
) -> None:
    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    executor = int(live.value("import os; print(os.getpid())"))
    eventually(lambda: sum(bool(each.kernel_pid) for each in replicas().values()) == 3, "three processes")
    known = replicas()
    standbys = [each.kernel_pid for each in known.values() if each.kernel_pid != executor]
    (router,) = (each.router_pid for each in ask_agents(os.environ, AGENT_S).kernels)
    others = [pid for pid in (router, *{each.agent_pid for each in known.values()}) if pid]
    eventually(lambda: min(score(pid) for pid in standbys if pid) > score(executor), "the standbys' place")
    assert max(map(score, others)) < score(executor)
    lose(executor)
    taken = int(live.value("print(os.getpid())"))
    assert score(taken) == max(map(score, others)) + 200
