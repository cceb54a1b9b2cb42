"""Kernels started through the provisioner: settings arrive, a kill ends everything, a crash costs nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.provisioning import KernelProvisionerFactory
from traitlets.config import Config

from replkernel.provisioner import ReplkernelProvisioner
from replkernel.settings import SETTING_DOCS, Settings, read_settings
from tests.support import conversation
from tests.support.live import eventually

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30.0
NAME = "replkernel-provisioner"
POINT = EntryPoint(NAME, "replkernel.provisioner:ReplkernelProvisioner", "jupyter_client.kernel_provisioners")


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[KernelManager]:
    """Return the manager of a kernel that the provisioner will start on stock replicas."""
    monkeypatch.setenv("REPLKERNEL_HOST_NAME", "stock")
    monkeypatch.setitem(KernelProvisionerFactory.provisioners, NAME, POINT)
    spec = json.loads((ROOT / "replkernel" / "kernelspec" / "kernel.json").read_text())
    spec["metadata"]["kernel_provisioner"]["config"] = {"replicas": 1}
    kernel = tmp_path / "jupyter" / "kernels" / "routed"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    stand_in = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "support" / "stock_replicas.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert stand_in.stdout is not None
    while stand_in.stdout.readline() != "ready\n":
        assert stand_in.poll() is None
    manager = KernelManager(kernel_name="routed", config=Config(ReplkernelProvisioner={"executor": "rotate"}))
    yield manager
    if manager.has_kernel:
        manager.shutdown_kernel(now=True)
    manager.context.destroy(linger=0)
    stand_in.terminate()
    stand_in.wait(TIMEOUT_S)
    stand_in.stdout.close()


def connect(manager: KernelManager) -> BlockingKernelClient:
    """Return a client of a started kernel that answers."""
    return conversation.connected(manager, TIMEOUT_S)


def say(client: BlockingKernelClient, code: str) -> str:
    """Run a cell and return what it printed."""
    return conversation.say(client, code, TIMEOUT_S)


def gone(pid: int, within_s: float = TIMEOUT_S) -> bool:
    """Tell whether a process ends in time."""
    deadline = time.monotonic() + within_s
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_every_setting_is_a_trait_that_says_what_it_does() -> None:
    traits = ReplkernelProvisioner.class_traits(config=True, variable=lambda name: name is not None)
    assert {trait.metadata["variable"] for trait in traits.values()} == {doc.variable for doc in SETTING_DOCS}
    assert all(trait.help.endswith(".") for trait in traits.values())


def test_traits_become_settings_and_defaults_leave_the_environment_alone() -> None:
    assert ReplkernelProvisioner().settings_env() == {}
    chosen = ReplkernelProvisioner(
        replicas=5,
        executor="random",
        hosts=["a", "b"],
        durable="before_reply",
        preload=["numpy"],
        orphan_grace_s=2.5,
    )
    settings = read_settings(chosen.settings_env())
    expected = Settings(
        replicas=5,
        executor="random",
        hosts=("a", "b"),
        durable="before_reply",
        preload=("numpy",),
        orphan_grace_s=2.5,
        store_url=settings.store_url,
    )
    assert settings == expected


def test_settings_and_the_kernels_id_reach_the_router_which_outlives_its_launcher(
    manager: KernelManager,
) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    env = psutil.Process(manager.provisioner.pid).environ()
    assert (env["REPLKERNEL_REPLICAS"], env["REPLKERNEL_EXECUTOR"]) == ("1", "rotate")
    assert env["KERNEL_ID"] == manager.kernel_id
    assert "JPY_PARENT_PID" not in env
    assert os.getsid(manager.provisioner.pid) == manager.provisioner.pid
    client.stop_channels()


@pytest.mark.parametrize("again", [False, True])
def test_nobody_can_take_a_port_between_jupyters_choice_and_its_use(
    manager: KernelManager, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    taken: list[socket.socket] = []
    launch = ReplkernelProvisioner.launch_kernel

    async def late(self: ReplkernelProvisioner, cmd: list[str], **kwargs: Any) -> Any:
        info = self.connection_info
        for name in ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port"):
            other = socket.socket()
            with contextlib.suppress(OSError):
                other.bind((str(info["ip"]), int(info[name])))
                taken.append(other)
                continue
            other.close()
        return await launch(self, cmd, **kwargs)

    if again:
        manager.start_kernel(stderr=subprocess.DEVNULL)
        connect(manager).stop_channels()
    monkeypatch.setattr(ReplkernelProvisioner, "launch_kernel", late)
    if again:
        manager.restart_kernel()
    else:
        manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    for other in taken:
        other.close()
    assert taken == []
    assert "REPLKERNEL_GIVEN_PORTS" not in say(client, "import os; print(sorted(os.environ))")
    client.stop_channels()


def test_a_killed_router_takes_its_kernel_with_it(manager: KernelManager) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    pid = int(say(client, "import os; print(os.getpid())"))
    manager.shutdown_kernel(now=True)
    assert gone(pid)
    client.stop_channels()


@pytest.mark.parametrize("now", [False, True])
def test_a_restart_gives_a_fresh_kernel(manager: KernelManager, *, now: bool) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    pid = int(say(client, "import os; x = 1; print(os.getpid())"))
    manager.restart_kernel(now=now)
    client.wait_for_ready(timeout=TIMEOUT_S)
    assert say(client, "print('x' in globals())") == "False"
    assert gone(pid)
    client.stop_channels()


def test_a_router_that_crashed_is_replaced_without_ending_its_kernel(manager: KernelManager) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    try:
        pid = say(client, "import os; kept = 41; print(os.getpid())")
        os.kill(manager.provisioner.pid, signal.SIGKILL)
        eventually(lambda: not manager.is_alive(), "the end of the router")
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=TIMEOUT_S)
        assert say(client, "print(os.getpid(), kept)") == f"{pid} 41"
    finally:
        client.stop_channels()
