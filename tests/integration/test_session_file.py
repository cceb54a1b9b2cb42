"""The file in which a server keeps its sessions: each server its own, a stopping one's is waited for."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest
from replkernel_server.session_file import PLACES_MAX, KeptKernel, KeptSession, NoPlace, SessionFile

SESSION = KeptSession("s", "a.ipynb", "a.ipynb", "notebook")
KERNELS = (KeptKernel("k", "replkernel", (SESSION,)),)
NOBODY = 1
"""A port that nobody listens at."""


def opened(data_dir: Path, root: str = "/root", base: str = "/", port: int = 8888) -> SessionFile:
    """Return a server's file, claimed."""
    file = SessionFile(data_dir, root, base)
    file.claim(port)
    return file


def test_sessions_that_one_server_wrote_are_read_by_the_next(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write("127.0.0.1", 8888, KERNELS)
    first.release()
    second = SessionFile(tmp_path, "/root", "/")
    assert second.claim(8888).kernels == KERNELS
    (path,) = tmp_path.glob("server/*/sessions.json")
    assert path.stat().st_mode & 0o777 == 0o600
    second.release()


def test_servers_of_other_directories_and_other_users_of_a_hub_are_told_apart(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write("127.0.0.1", 8888, KERNELS)
    first.release()
    for root, base in (("/other", "/"), ("/root", "/user/a/")):
        file = SessionFile(tmp_path, root, base)
        assert file.claim(8888).kernels == ()
        file.release()


def test_a_live_servers_sessions_are_its_own_and_each_finds_those_of_its_port(tmp_path: Path) -> None:
    with socket.socket() as one, socket.socket() as two:
        ports = []
        for listener in (one, two):
            listener.bind(("127.0.0.1", 0))
            listener.listen(8)
            ports.append(listener.getsockname()[1])
        first = opened(tmp_path, port=ports[0])
        first.write("127.0.0.1", ports[0], KERNELS)
        second = SessionFile(tmp_path, "/root", "/")
        assert second.claim(ports[1]).kernels == ()
        other = (KeptKernel("k2", "replkernel"),)
        second.write("127.0.0.1", ports[1], other)
        first.release()
        second.release()
        again = SessionFile(tmp_path, "/root", "/")
        assert again.claim(ports[1]).kernels == other
        again.release()


def test_a_server_that_is_stopping_is_waited_for(tmp_path: Path) -> None:
    stopping = opened(tmp_path)
    stopping.write("127.0.0.1", NOBODY, KERNELS)
    started = time.monotonic()
    threading.Timer(0.3, stopping.release).start()
    file = SessionFile(tmp_path, "/root", "/")
    assert file.claim(NOBODY).kernels == KERNELS
    assert time.monotonic() - started > 0.2
    file.release()


LATER_VERSION = '{"version": 2, "kernels": [{"kernel_id": "k", "kernel_name": "replkernel"}]}'


@pytest.mark.parametrize("content", ["", "[]", LATER_VERSION, '{"kernels": 5}', '{"kernels": [{"x": 1}]}'])
def test_a_file_that_does_not_fit_restores_nothing(tmp_path: Path, content: str) -> None:
    first = opened(tmp_path)
    first.write("127.0.0.1", 8888, KERNELS)
    first.release()
    (path,) = tmp_path.glob("server/*/sessions.json")
    path.write_text(content)
    second = SessionFile(tmp_path, "/root", "/")
    assert second.claim(8888).kernels == ()
    second.write("127.0.0.1", 8888, KERNELS)
    assert json.loads(path.read_text())["kernels"][0]["kernel_id"] == "k"
    second.release()


def test_the_number_of_servers_is_bounded(tmp_path: Path) -> None:
    held = [opened(tmp_path, port=0) for _ in range(PLACES_MAX)]
    with pytest.raises(NoPlace, match="/root"):
        SessionFile(tmp_path, "/root", "/").claim(0)
    for file in held:
        file.release()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("a file")
    with pytest.raises(NoPlace, match="server"):
        SessionFile(tmp_path, "/root", "/").claim(0)
