"""The router as a process: its connection file, its ports, its exit, what it says when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client import BlockingKernelClient

from tests.support.breadth import each_nth
from tests.support.live import eventually
from tests.support.ports import free_port

PORTS = ("shell_port", "stdin_port", "control_port", "iopub_port", "hb_port")
TIMEOUT_S = 20.0
Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Return a function that starts a router; whatever still runs is killed afterwards."""
    started: list[subprocess.Popen[str]] = []

    def begin(file: Path, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "replkernel.router", "-f", str(file)],
            env=os.environ | env,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def connection_file(directory: Path, **fields: Any) -> Path:
    """Write a connection file with free choice of ports, changed by `fields` (None takes a field out)."""
    whole: dict[str, Any] = dict.fromkeys(PORTS, 0)
    whole |= {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256", **fields}
    path = directory / "kernel-test.json"
    path.write_text(json.dumps({name: value for name, value in whole.items() if value is not None}))
    return path


def client_of(file: Path) -> BlockingKernelClient:
    """Return a client of the kernel whose ports appear in `file`."""
    deadline = time.monotonic() + TIMEOUT_S
    while not json.loads(file.read_text())["shell_port"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels(hb=False)
    return client


@pytest.mark.parametrize(
    ("text", "sentence"),
    each_nth(
        [
            (None, "does not exist: start the kernel through Jupyter"),
            ("{", "is not JSON: have Jupyter write it again"),
            ("[]", "is not a JSON object"),
            ('{"shell_port": 0}', "lacks stdin_port, control_port, iopub_port, hb_port"),
        ],
        2,
    ),
)
def test_a_connection_file_that_is_no_use_is_one_sentence(
    launch: Launch, tmp_path: Path, text: str | None, sentence: str
) -> None:
    path = tmp_path / "kernel-x.json"
    if text is not None:
        path.write_text(text)
    assert sentence in told_of(launch(path), path)


def test_a_connection_file_that_cannot_be_read_is_one_sentence(launch: Launch, tmp_path: Path) -> None:
    path = tmp_path / "kernel-x.json"
    path.mkdir()
    told = told_of(launch(path), path)
    assert "cannot be read" in told and "make it readable" in told


def told_of(process: subprocess.Popen[str], file: Path) -> str:
    """Return the one sentence about its connection file with which a router ends."""
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert len(told.splitlines()) == 1 and str(file) in told, told
    return told


@pytest.mark.parametrize(
    ("fields", "sentence"),
    each_nth(
        [
            ({"signature_scheme": "md4"}, "signature_scheme"),
            ({"transport": "udp"}, "transport='udp'"),
            ({"shell_port": 70_000}, "shell_port=70000"),
            ({"ip": "192.0.2.1"}, "use an address of this machine"),
            ({"curve_publickey": "x", "curve_secretkey": "y"}, "40 characters"),
        ],
        5,
    ),
)
def test_a_field_that_cannot_be_used_is_named(
    launch: Launch, tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    process = launch(connection_file(tmp_path, **fields))
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, len(told.splitlines())) == (1, 1)
    assert sentence in told


def test_a_port_in_use_is_named_with_the_fix(launch: Launch, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = launch(connection_file(tmp_path, control_port=port))
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert f"Port 127.0.0.1:{port} (control_port of" in told and "stop that process" in told
    assert len(told.splitlines()) == 1


def listening(router: subprocess.Popen[str]) -> int:
    """Return at how many ports a router listens by now."""
    found = psutil.Process(router.pid).net_connections(kind="tcp4")
    return sum(each.status == psutil.CONN_LISTEN for each in found)


def test_a_port_that_is_taken_for_a_moment_is_waited_for(launch: Launch, tmp_path: Path) -> None:
    port = free_port()  # Nobody else gets it when it is let go.
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        router = launch(file := connection_file(tmp_path, control_port=port))
        eventually(lambda: listening(router) == 2, "that the router has the two ports before that one")
    client = client_of(file)
    assert client.kernel_info(reply=True, timeout=TIMEOUT_S)["content"]["status"] == "ok"
    client.shutdown(reply=True, timeout=TIMEOUT_S)
    client.stop_channels()


def test_a_wrong_setting_leaves_the_kernel_up_and_is_the_answer_to_every_cell(
    launch: Launch, tmp_path: Path
) -> None:
    file = connection_file(tmp_path)
    process = launch(file, REPLKERNEL_REPLICAS="many")
    client = client_of(file)
    info = client.kernel_info(reply=True, timeout=TIMEOUT_S)
    assert info["content"]["language_info"]["name"] == "python"
    for _ in range(2):
        reply = client.execute("1", reply=True, timeout=TIMEOUT_S)
        assert reply["content"]["ename"] == "SettingError"
        assert "REPLKERNEL_REPLICAS='many': not a whole number from 1 to 9" in reply["content"]["evalue"]
    client.shutdown(reply=True, timeout=TIMEOUT_S)
    client.stop_channels()
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert told.count("REPLKERNEL_REPLICAS") == 2
    assert len(told.splitlines()) == 1


def test_chosen_ports_are_written_back_for_the_owner_only(launch: Launch, tmp_path: Path) -> None:
    file = connection_file(tmp_path, kernel_name="kept")
    launch(file, REPLKERNEL_REPLICAS="many")
    client_of(file).stop_channels()
    fields = json.loads(file.read_text())
    assert len({fields[name] for name in PORTS}) == 5
    assert fields["kernel_name"] == "kept"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_ends_the_router_and_sigint_does_not(launch: Launch, tmp_path: Path, number: int) -> None:
    file = connection_file(tmp_path)
    process = launch(file, REPLKERNEL_REPLICAS="many")
    client = client_of(file)
    client.kernel_info(reply=True, timeout=TIMEOUT_S)
    process.send_signal(number)
    if number == signal.SIGTERM:
        assert process.wait(TIMEOUT_S) == 0
    else:
        client.kernel_info(reply=True, timeout=TIMEOUT_S)
    client.stop_channels()


def test_the_router_does_not_outlive_the_launcher_that_it_was_told_of(tmp_path: Path) -> None:
    file = connection_file(tmp_path)
    launcher = (
        "import os, subprocess, sys, time; env = os.environ | {'JPY_PARENT_PID': str(os.getpid())}; "
        f"p = subprocess.Popen([sys.executable, '-m', 'replkernel.router', '-f', {str(file)!r}], env=env); "
        "print(p.pid, flush=True); time.sleep(60)"
    )
    env = os.environ | {"REPLKERNEL_REPLICAS": "many"}
    parent = subprocess.Popen(
        [sys.executable, "-c", launcher],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    client_of(file).stop_channels()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + TIMEOUT_S
    while Path(f"/proc/{pid}").exists() and _running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
