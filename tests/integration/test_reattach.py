"""A kernel manager finds a kernel by its id: same key and ports, unless somebody took a port meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

import pytest
from jupyter_client import KernelManager
from traitlets.config import Config

from replkernel.launch.kernel_record import read_record
from replkernel.settings import data_dir
from tests.integration.test_router_provisioner import TIMEOUT_S, connect, gone, manager, say
from tests.support.ports import free_port
from tests.support.routed import PORTS

assert manager, "the fixture of a kernel on stock replicas"


@pytest.fixture(autouse=True)
def _stays(manager: KernelManager) -> None:
    """Have cells stay where they are: stock replicas commit nothing, for which a move would wait.

    The kernel's ports are nobody else's while it has no router, and none that the system chooses.
    """
    manager.update_config(Config(ReplkernelProvisioner={"executor": "sticky"}))
    manager.cache_ports = False
    for name in PORTS:
        setattr(manager, name, free_port())


def abandon(manager: KernelManager) -> tuple[str, int]:
    """Let go of a kernel as a killed program does; return its id and its router's process."""
    manager.stop_restarter()
    return str(manager.kernel_id), int(manager.provisioner.pid)


def find_again(kernel_id: str) -> KernelManager:
    """Start a kernel of the same id, as a server does that has been started again."""
    again = KernelManager(kernel_name="routed")
    again.start_kernel(kernel_id=kernel_id, stderr=subprocess.DEVNULL)
    return again


def end(manager: KernelManager) -> None:
    """Shut a kernel down."""
    manager.shutdown_kernel(now=True)
    manager.context.destroy(linger=0)


def test_a_live_router_is_attached_to_and_ends_with_its_new_manager(manager: KernelManager) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    pid = say(client, "import os; x = 5; print(os.getpid())")
    client.stop_channels()
    kernel_id, router = abandon(manager)
    again = find_again(kernel_id)
    assert again.provisioner.pid == router
    assert (again.session.key, again.ports) == (manager.session.key, manager.ports)
    client = connect(again)
    assert say(client, "print(x, os.getpid())") == f"5 {pid}"
    client.stop_channels()
    end(again)
    assert gone(router)
    assert gone(int(pid))
    assert read_record(data_dir(os.environ), kernel_id) is None


def test_an_attached_router_that_dies_is_seen_and_replaced(manager: KernelManager) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    connect(manager).stop_channels()
    kernel_id, router = abandon(manager)
    again = find_again(kernel_id)
    assert again.is_alive()
    os.kill(router, signal.SIGKILL)
    manager.provisioner.process.wait()
    deadline = time.monotonic() + TIMEOUT_S
    while again.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    again.restart_kernel(now=True)
    assert again.provisioner.pid != router
    assert again.ports == manager.ports
    connect(again).stop_channels()
    end(again)


def test_a_port_that_was_taken_meanwhile_gives_the_kernel_new_ones(manager: KernelManager) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    pid = say(client, "import os; x = 5; print(os.getpid())")
    client.stop_channels()
    kernel_id, router = abandon(manager)
    os.kill(router, signal.SIGKILL)
    manager.provisioner.process.wait()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", manager.hb_port))
        taken.listen(1)
        again = find_again(kernel_id)
        assert again.session.key == manager.session.key
        assert not set(again.ports) & set(manager.ports)
        client = connect(again)
        assert say(client, "print(x, os.getpid())") == f"5 {pid}"
        client.stop_channels()
        end(again)


def test_a_second_router_of_a_kernel_is_refused(manager: KernelManager) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    client.stop_channels()
    command = manager.format_kernel_cmd()
    second = subprocess.run(
        command,
        env=os.environ | {"KERNEL_ID": manager.kernel_id},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert second.returncode != 0
    assert "Traceback" not in second.stderr
    assert manager.is_alive()


@pytest.mark.parametrize("graceful", [True, False])
def test_a_restart_wipes_the_kernel_even_when_its_router_has_just_died(
    manager: KernelManager, *, graceful: bool
) -> None:
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = connect(manager)
    say(client, "x = 1")
    if graceful:
        os.kill(manager.provisioner.pid, signal.SIGKILL)
    manager.restart_kernel(now=not graceful)
    client.wait_for_ready(timeout=TIMEOUT_S)
    assert say(client, "print('x' in globals())") == "False"
    client.stop_channels()
