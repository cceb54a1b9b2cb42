"""`replkernel status` with a scheduler: leases, who waits, and what is said of one that cannot be asked."""

from __future__ import annotations

import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from replkernel.leasing import standing
from replkernel.leasing.asking import Bounds
from replkernel.leasing.standing import UNTOLD, ask_scheduler
from tests.support.lab import Server

PROGRAM = [sys.executable, "-m", "replkernel.cli"]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    token_file = Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "scheduler" / "token"
    start = [*PROGRAM, "scheduler", "--port", "0"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().partition("=")[2]
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", url)
        yield Server(f"{url}/api/v1/", token_file.read_text(), token_file)
        process.terminate()
        assert process.wait(10) == 0


def test_leases_and_who_waits_are_shown(scheduler: Server) -> None:
    scheduler.call("POST", "hosts", {"name": "far", "gpus": ["GPU-0", "GPU-1"]})
    for number in (1, 2):
        wish = {"request": f"r{number}", "kernel_id": f"k{number}", "gpus": 2, "ttl_s": 60.0}
        scheduler.call("POST", "leases", wish)
    shown = subprocess.run(
        [*PROGRAM, "status"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    words = [line.split() for line in shown.splitlines()]
    assert [words[2][0], *words[2][-3:]] == ["GPU-0", "leased:", "kernel", "k1"]
    assert "1 lease, 1 cell waiting" in shown
    assert "waiting: a cell of kernel k2 for 2 GPUs" in shown


def test_without_a_scheduler_nothing_is_said_of_one() -> None:
    assert ask_scheduler(os.environ) == (None, UNTOLD)
    shown = subprocess.run(
        [*PROGRAM, "status"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "scheduler" not in shown


def test_a_refused_token_is_said_and_not_shown(scheduler: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", "not-the-token")
    asked, told = ask_scheduler(os.environ)
    assert asked is not None and asked.trouble == "it refuses our token"
    assert told == UNTOLD


class _Other(BaseHTTPRequestHandler):
    """A server that is no scheduler: it sends whoever asks elsewhere, and notes who arrives there."""

    arrived: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path == "/elsewhere":
            self.arrived.append(self.headers.get("Authorization", ""))
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", 0), _Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", "secret")
        yield
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("other")
def test_the_token_follows_no_redirect() -> None:
    asked, _ = ask_scheduler(os.environ)
    assert asked is not None and asked.trouble == "it answers 302"
    assert _Other.arrived == []


def test_a_scheduler_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "BOUNDS", Bounds(0.3, 30.0, 1024 * 1024))
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as deaf:
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", f"http://127.0.0.1:{deaf.server_address[1]}")
        asked, _ = ask_scheduler(os.environ)
    assert asked is not None and "does not answer" in asked.trouble
