"""The ports of a kernel that its clients use: another user of the machine reads nothing there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from jupyter_client import KernelManager
from traitlets.config import Config

from tests.support.ending import end_agents
from tests.support.stock import OURS, kernelspec_dir

STARTED_S = 60.0
CELLS = 3
LISTENING_MS = 500
SECRET = "the model's access key is 4711"


@pytest.fixture(autouse=True)
def _kernel_in_reach(
    _own_directories: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("JUPYTER_PATH", str(kernelspec_dir(tmp_path / "jupyter")))
    yield
    end_agents(os.environ)


@contextlib.contextmanager
def running(manager: KernelManager) -> Iterator[KernelManager]:
    """Have the manager's kernel run, ready for cells."""
    manager.start_kernel()
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def overheard(manager: KernelManager) -> bytes:
    """Return what a process that knows the ports alone hears while a cell prints its secret."""
    client = manager.client()
    client.start_channels()
    with zmq.Context() as context, context.socket(zmq.SUB) as ear:
        client.wait_for_ready(timeout=STARTED_S)
        ear.setsockopt(zmq.LINGER, 0)
        ear.subscribe(b"")
        ear.connect(f"tcp://127.0.0.1:{manager.iopub_port}")
        heard = b""
        for _ in range(CELLS):  # The first may be over before the kernel's port knows of a listener.
            client.execute_interactive(f"print({SECRET!r})", timeout=STARTED_S, output_hook=_unheard)
            while ear.poll(LISTENING_MS):
                heard += b"".join(ear.recv_multipart())
            if SECRET.encode() in heard:
                break
    client.stop_channels()
    return heard


def _unheard(message: object) -> None:
    """Print nothing."""


def test_the_output_channel_is_closed_to_whoever_has_no_key() -> None:
    with running(KernelManager(kernel_name=OURS)) as manager:
        assert overheard(manager) == b""


def test_a_restarted_kernel_stays_closed() -> None:
    with running(KernelManager(kernel_name=OURS)) as manager:
        manager.restart_kernel(now=True)
        assert overheard(manager) == b""


def test_a_site_may_switch_encryption_off() -> None:
    site = Config({"KernelManager": {"transport_encryption": "disabled"}})
    with running(KernelManager(kernel_name=OURS, config=site)) as manager:
        assert SECRET.encode() in overheard(manager)


def listening(pid: int) -> set[str]:
    """Return the inodes of the TCP sockets on which a process listens."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    listeners = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    opened = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It is closed by now.
            opened.add(os.readlink(descriptor))
    return listeners & opened


def test_a_kernel_process_listens_on_no_port_of_its_own() -> None:
    with running(KernelManager(kernel_name=OURS)) as manager:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=STARTED_S)
        said: list[str] = []
        client.execute_interactive(
            "import os; print(os.getpid())",
            timeout=STARTED_S,
            output_hook=lambda message: said.append(message["content"].get("text", "")),
        )
        client.stop_channels()
        assert listening(int("".join(said))) == set()
