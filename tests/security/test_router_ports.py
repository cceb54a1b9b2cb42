"""Whoever reaches a kernel's ports without its key: what a router holds for him is bounded port by port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from replkernel.router.io.connection import PORTS, Ports, read_connection_file
from tests.conftest import ROOT

MEBIBYTE = 1024 * 1024
HELD_MAX = 40 * MEBIBYTE


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[Ports]:
    path = tmp_path / "kernel.json"
    fields = dict.fromkeys(PORTS, 0)
    path.write_text(json.dumps({**fields, "ip": "127.0.0.1", "key": "k" * 32, "transport": "tcp"}))
    made = Ports(read_connection_file(path))
    yield made
    made.close(linger_ms=0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", ["hb_port", "iopub_port", "stdin_port"])
def test_a_port_for_small_messages_takes_no_large_one(ports: Ports, name: str) -> None:
    before = resident_bytes()
    command = [sys.executable, "-m", "tests.security.hoard", "127.0.0.1", str(ports.numbers[name])]
    how = ["NULL:SUB" if name == "iopub_port" else "NULL:DEALER", "60", "5"]
    with subprocess.Popen([*command, *how], cwd=ROOT, stdout=subprocess.DEVNULL) as started:
        time.sleep(2.5)
        held = resident_bytes() - before
        started.kill()
    assert held < HELD_MAX


def test_a_large_cell_still_arrives(ports: Ports) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger = 0
        client.connect(f"tcp://127.0.0.1:{ports.numbers['shell_port']}")
        client.send(b"x" * 30 * MEBIBYTE)
        assert ports.sockets["shell_port"].poll(50_000)
        assert len(ports.sockets["shell_port"].recv_multipart()[1]) == 30 * MEBIBYTE
