"""A kernel's record on disk, and the router process that it names: never somebody else's, never half."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from replkernel.agent.io.death import start_time
from replkernel.launch.attachment import PORTS, AttachedRouter, attach, taken_port
from replkernel.launch.kernel_record import (
    BadKernelId,
    KernelRecord,
    forget_kernel,
    kernel_dir,
    read_record,
    router_lives,
    this_machine,
    write_record,
)
from replkernel.records import KernelId

RECORD = KernelRecord(
    kernel_id=KernelId("k-1"),
    kernel_name="replkernel",
    incarnation="i",
    connection={"ip": "127.0.0.1", "transport": "tcp", "key": "secret", **dict.fromkeys(PORTS, 0)},
    connection_file="/nowhere/kernel-k-1.json",
    cwd="/",
    machine=this_machine(),
)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that waits for its end."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.communicate()


def served_by(pid: int, started: int | None = None, machine: str | None = None) -> KernelRecord:
    """Return a record that names a router's process."""
    return msgspec.structs.replace(
        RECORD,
        router_pid=pid,
        router_started=start_time(pid) if started is None else started,
        machine=machine or this_machine(),
    )


def test_a_record_is_read_as_it_was_written_by_its_owner_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    write_record(data_dir, RECORD)
    found = read_record(data_dir, "k-1")
    assert found is not None and found.updated > 0
    assert msgspec.structs.replace(found, updated=0.0) == RECORD
    directory = kernel_dir(data_dir, "k-1")
    assert [directory.stat().st_mode & 0o777, directory.parent.stat().st_mode & 0o777] == [0o700, 0o700]
    assert [(file.name, file.stat().st_mode & 0o777) for file in directory.iterdir()] == [
        ("kernel.json", 0o600)
    ]
    forget_kernel(directory)
    assert read_record(data_dir, "k-1") is None
    assert not directory.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"kernel_id": "k-1"}', "x" * 70_000])
def test_a_record_that_cannot_be_read_is_as_good_as_absent_and_said(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_record(tmp_path, RECORD)
    (kernel_dir(tmp_path, "k-1") / "kernel.json").write_text(content)
    assert read_record(tmp_path, "k-1") is None
    assert "kernel.json" in caplog.text


def test_a_record_of_another_kernel_or_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    path = kernel_dir(tmp_path, "k-1") / "kernel.json"
    (tmp_path / "kernels" / "k-2").mkdir()
    (tmp_path / "kernels" / "k-2" / "kernel.json").write_bytes(path.read_bytes())
    assert read_record(tmp_path, "k-2") is None
    path.chmod(0o660)
    assert read_record(tmp_path, "k-1") is not None, "a volume may be its group's"
    path.chmod(0o602)
    assert read_record(tmp_path, "k-1") is None


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "a\0b", "x" * 129])
def test_an_id_that_is_a_path_has_neither_record_nor_directory(tmp_path: Path, name: str) -> None:
    assert read_record(tmp_path, name) is None
    with pytest.raises(BadKernelId):
        kernel_dir(tmp_path, name)


def test_a_router_is_known_by_pid_start_time_and_machine(process: subprocess.Popen[bytes]) -> None:
    assert router_lives(served_by(process.pid))
    assert not router_lives(served_by(process.pid, start_time(process.pid) + 1)), "another process by now"
    assert not router_lives(served_by(process.pid, machine="elsewhere"))
    assert not router_lives(RECORD)
    assert attach(served_by(process.pid, start_time(process.pid) + 1)) is None


def test_an_attached_router_is_signalled_and_its_end_is_seen(process: subprocess.Popen[bytes]) -> None:
    router = attach(served_by(process.pid))
    assert router is not None and router.poll() is None
    router.send_signal(0)
    with pytest.raises(TimeoutError):
        router.wait(0.05)
    router.terminate()
    assert router.wait(10) == router.poll() == router.returncode
    assert process.wait(10) == -signal.SIGTERM
    router.kill()
    with pytest.raises(ProcessLookupError):
        AttachedRouter(process.pid, 1)


def test_a_port_that_somebody_took_is_named() -> None:
    with socket.socket() as taken, socket.socket() as free:
        for each in (taken, free):
            each.bind(("127.0.0.1", 0))
        taken.listen(1)
        port, other = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        ports = dict.fromkeys(PORTS, other)
        record = msgspec.structs.replace(RECORD, connection={**RECORD.connection, **ports})
        assert taken_port(record) == ""
        record = msgspec.structs.replace(record, connection={**record.connection, "hb_port": port})
        assert taken_port(record) == f"127.0.0.1:{port}"


def test_a_record_is_never_seen_half_written(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            write_record(tmp_path, RECORD)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            assert read_record(tmp_path, "k-1") is not None
    finally:
        over.set()
        writer.join()
