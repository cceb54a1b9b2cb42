"""Whoever reaches the scheduler's port without a token: few wait, not for long, and with little in hand."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.lab import Server
from tests.support.live import eventually

PROGRAM = [sys.executable, "-m", "replkernel.cli", "scheduler", "--port", "0"]
IDLE_S = 10.0
LATE_S = 60.0
"""So much later a busy machine may do something."""
STRANGERS_MAX = 512


@pytest.fixture
def service() -> Iterator[Server]:
    token_file = Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "scheduler" / "token"
    with subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().partition("=")[2]
        yield Server(f"{url}/api/v1/", token_file.read_text(), token_file)
        process.terminate()
        assert process.wait(20) == 0


def connected(service: Server) -> socket.socket:
    place = urlsplit(service.url)
    return socket.create_connection((place.hostname, place.port), timeout=IDLE_S + LATE_S)  # type: ignore[arg-type]


def is_closed(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        return stranger.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def is_open(stranger: socket.socket) -> bool:
    return not is_closed(stranger)


def test_a_silent_connection_and_a_dripping_one_end(service: Server) -> None:
    with connected(service) as silent, connected(service) as dripping:
        began_at = time.monotonic()
        dripping.sendall(b"GET /api/v1/status HTTP/1.1\r\n")
        closed = False
        while not closed and time.monotonic() - began_at < IDLE_S + LATE_S:
            try:
                dripping.sendall(b"X-More: yes\r\n")
            except OSError:
                closed = True
            time.sleep(0.5)
        assert closed
        eventually(lambda: is_closed(silent), "the end of the silent one", LATE_S)


def test_many_silent_connections_do_not_stay_and_keep_nobody_out(service: Server) -> None:
    strangers = [connected(service) for _ in range(STRANGERS_MAX + 88)]
    try:
        assert service.get("status")[0] == 200
        # For a part of the time in which none of them leaves for its age.
        kept = "that no more than may wait are kept"
        eventually(lambda: sum(map(is_open, strangers)) <= STRANGERS_MAX, kept, IDLE_S / 2)
    finally:
        for each in strangers:
            each.close()


def test_a_header_of_more_than_16_kib_is_refused(service: Server) -> None:
    with connected(service) as stranger:
        stranger.sendall(b"GET /api/v1/status HTTP/1.1\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n")
        assert b"200" not in stranger.recv(4096)
