"""The router and the real agent: whatever dies beside the executor, no cell and no variable is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.provisioning import KernelProvisionerFactory

from replkernel.agent.io.lookup import find_agent, stop_agent
from replkernel.client.inquiry import agent_names
from replkernel.errors import AgentUnavailable
from replkernel.settings import data_dir
from tests.support import conversation
from tests.support.live import eventually, reply_to

KERNELSPEC = Path(__file__).parents[2] / "replkernel" / "kernelspec" / "kernel.json"
TIMEOUT_S = 60.0
LARGE = 3_000_000
"""Bytes of a variable that goes into the store."""
NAME = "replkernel-provisioner"
POINT = EntryPoint(NAME, "replkernel.provisioner:ReplkernelProvisioner", "jupyter_client.kernel_provisioners")


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[KernelManager]:
    """Return the manager of a kernel with three replicas that will start its own agent."""
    monkeypatch.setenv("REPLKERNEL_HOST_NAME", "here")
    monkeypatch.setitem(KernelProvisionerFactory.provisioners, NAME, POINT)
    kernel = tmp_path / "jupyter" / "kernels" / "replicated"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(json.loads(KERNELSPEC.read_text())))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    manager = KernelManager(kernel_name="replicated")
    yield manager
    if manager.has_kernel:
        manager.shutdown_kernel(now=True)
    manager.context.destroy(linger=0)
    for name in agent_names(os.environ):
        with contextlib.suppress(AgentUnavailable):
            stop_agent(name, os.environ)


def connect(manager: KernelManager) -> BlockingKernelClient:
    """Start the kernel and return a client of it."""
    manager.start_kernel(stderr=subprocess.DEVNULL)
    return conversation.connected(manager, TIMEOUT_S)


def say(client: BlockingKernelClient, code: str) -> str:
    """Run a cell that must succeed and return what it printed."""
    return conversation.say(client, code, TIMEOUT_S)


def wait_for_output(client: BlockingKernelClient) -> None:
    """Wait until the running cell has printed something."""
    while client.get_iopub_msg(timeout=TIMEOUT_S)["msg_type"] != "stream":
        pass


def test_a_new_router_goes_on_with_the_kernel_of_one_that_crashed_in_a_cell(manager: KernelManager) -> None:
    client = connect(manager)
    say(client, "x = [1]")
    client.execute("import time; print('begun', flush=True); time.sleep(2); x.append(2)")
    wait_for_output(client)
    os.kill(manager.provisioner.pid, signal.SIGKILL)
    while manager.is_alive():
        time.sleep(0.02)
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=TIMEOUT_S)
    assert say(client, "print(x)") == "[1, 2]"
    assert say(client, "x.append(3); print(x)") == "[1, 2, 3]"
    client.stop_channels()


def test_an_agent_that_dies_in_a_cell_is_replaced_and_the_cell_goes_on(manager: KernelManager) -> None:
    client = connect(manager)
    say(client, "x = [1]")
    cell = client.execute("import time; print('begun', flush=True); time.sleep(2); x.append(2)")
    wait_for_output(client)
    agent = find_agent("here", os.environ)
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    assert reply_to(client, cell)["content"]["status"] == "ok"
    assert say(client, "print(x)") == "[1, 2]"
    eventually(lambda: (other := find_agent("here", os.environ)) and other.pid != agent.pid, "another agent")
    client.stop_channels()


def test_a_process_that_dies_while_its_agent_is_away_is_lost_for_a_reason(
    manager: KernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_DURABLE", "before_reply")
    client = connect(manager)
    pid = int(say(client, "import os; x = 1; print(os.getpid())"))
    cell = client.execute("import time; print('begun', flush=True); time.sleep(60)")
    wait_for_output(client)
    agent = find_agent("here", os.environ)
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGABRT)
    reply = reply_to(client, cell)["content"]
    assert reply["ename"] == "ExecutorLost"
    assert reply["evalue"].startswith("killed by SIGABRT (aborted) while its host agent was away;")
    assert say(client, "print(x)") == "1"
    client.stop_channels()


def test_an_agent_that_is_stopped_takes_along_what_its_kernels_have_in_the_store(
    manager: KernelManager,
) -> None:
    client = connect(manager)
    say(client, f"import os; x = os.urandom({LARGE})")
    client.stop_channels()
    store = data_dir(os.environ) / "store"
    deadline = time.monotonic() + TIMEOUT_S
    while not holds(stored(store), LARGE):
        assert time.monotonic() < deadline, stored(store)
        time.sleep(0.1)
    assert stop_agent("here", os.environ)
    assert stored(store) == []


def holds(files: list[Path], size: int) -> bool:
    """Tell whether a checkpoint and so many bytes are in a store, and nothing is on its way into it."""
    if any(path.name.startswith(".part-") for path in files):
        return False
    with contextlib.suppress(FileNotFoundError):
        written = sum(path.stat().st_size for path in files) >= size
        return written and any(path.name.startswith("checkpoint-") for path in files)
    return False


def stored(store: Path) -> list[Path]:
    """Return the files of a store."""
    return [path for path in store.rglob("*") if path.is_file()]


def test_a_cell_runs_before_it_could_be_committed_and_moves_after(
    manager: KernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_EXECUTOR", "rotate")
    client = connect(manager)
    assert say(client, "names = []; print(names)") == "[]"
    places: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(set(places)) < 3:  # A replica takes its turn as soon as it is there.
        assert time.monotonic() < deadline
        places.append(say(client, "import os; names.append(len(names)); print(os.getpid())"))
    assert len(set(places[-3:])) == 3, places
    assert say(client, "print(names)") == str([*range(len(places))])
    client.stop_channels()


def sessions(client: BlockingKernelClient, code: str) -> set[str]:
    """Run a cell and return the sessions of all that the kernel says about it."""
    found: set[str] = set()
    reply = client.execute_interactive(
        code, timeout=TIMEOUT_S, output_hook=lambda message: found.add(message["header"]["session"])
    )
    return {*found, reply["header"]["session"]}


def test_one_session_speaks_until_the_kernel_is_restarted(
    manager: KernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_EXECUTOR", "rotate")
    client = connect(manager)
    first = reply_to(client, client.kernel_info())["header"]["session"]
    pids: set[str] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(pids) < 3:
        assert time.monotonic() < deadline
        pids.add(say(client, "import os; print(os.getpid())"))
        assert sessions(client, "print(1); 1") == {first}
    os.kill(manager.provisioner.pid, signal.SIGKILL)
    while manager.is_alive():
        time.sleep(0.02)
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=TIMEOUT_S)
    assert sessions(client, "print(2); 2") == {first}
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=TIMEOUT_S)
    (second,) = sessions(client, "print(3); 3")
    assert second != first
    client.stop_channels()
