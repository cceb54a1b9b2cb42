"""What tests leave open fails their module: it is named with its test, and with what to do."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.support import left_open

ME = re.escape("tests/integration/test_left_open.py::test_")


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_open, "GRACE_S", 0.0)


@contextlib.contextmanager
def told(what: str, temporary: Path, head: str = r"left open \(close it in the test ") -> Iterator[None]:
    """Expect that this is told of what the body opens or changes."""
    with (
        pytest.raises(pytest.fail.Exception, match=rf"(?s)^{head}.*{what}"),
        left_open.nothing_left_open(temporary),
    ):
        yield


def test_a_socket_is_told_with_its_test_and_its_line(tmp_path: Path) -> None:
    with (
        contextlib.ExitStack() as opened,
        told(rf"laddr=.* of {ME}a_socket_is.*: {__file__}:\d+ < ", tmp_path),
    ):
        opened.enter_context(socket.socket())


def test_a_pair_of_unix_sockets_is_told(tmp_path: Path) -> None:
    with contextlib.ExitStack() as opened, told(f"family=1.* of {ME}a_pair_of", tmp_path):
        for one in socket.socketpair():
            opened.enter_context(one)


def test_a_socket_of_zeromq_is_told_with_its_test_and_its_line(tmp_path: Path) -> None:
    with (
        contextlib.ExitStack() as opened,
        told(rf"zmq.Socket.* of {ME}a_socket_of_zeromq.*: .*{__file__}:\d+", tmp_path),
    ):
        context = opened.enter_context(zmq.Context())
        opened.enter_context(context.socket(zmq.PAIR))


def test_a_changed_directory_variable_or_path_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = f"REPLKERNEL_OF_A_TEST: None has become 'x'\nsys.path: .*\nworking directory: .*{tmp_path}"
    with monkeypatch.context() as patch, told(changed, tmp_path, "left changed by some test "):
        patch.chdir(tmp_path)
        patch.setenv("REPLKERNEL_OF_A_TEST", "x")
        patch.syspath_prepend(tmp_path)


def test_a_changed_directory_variable_or_path_is_put_back_for_the_next_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_BEFORE", "x")
    before = os.getcwd(), sys.path[:], dict(os.environ)
    with told("working directory", tmp_path, "left changed by some test "):
        os.chdir(tmp_path)
        os.environ["REPLKERNEL_OF_A_TEST"] = os.environ.pop("REPLKERNEL_BEFORE")
        sys.path.insert(0, str(tmp_path))
    assert (os.getcwd(), sys.path, dict(os.environ)) == before


def test_a_socket_that_nobody_holds_is_not_told_once_more_of_the_next_module(tmp_path: Path) -> None:
    with told("laddr", tmp_path):
        ring = [socket.socket()]
        ring.append(ring)  # type: ignore[arg-type]
        del ring
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gc.collect()  # Had it been left to this one, pytest would fail this test.


def test_a_file_is_told_with_its_test(tmp_path: Path) -> None:
    path = tmp_path / "a-file"
    with contextlib.ExitStack() as opened, told(f"the file {path}, opened by {ME}a_file_is", tmp_path):
        opened.enter_context(path.open("w"))


def test_a_thread_is_told_with_its_test_and_where_it_is(tmp_path: Path) -> None:
    end, began = threading.Event(), threading.Event()

    def stay() -> None:
        began.set()
        end.wait()

    thread = threading.Thread(target=stay, name="a-thread")
    try:
        with told(rf"the thread a-thread of {ME}a_thread_is.* {__file__}:\d+", tmp_path):
            thread.start()
            began.wait()
            left_open.test_ends()
            left_open.test_begins("a later test")
    finally:
        end.set()
        thread.join()


def test_a_process_is_told_with_its_test(tmp_path: Path) -> None:
    with contextlib.ExitStack() as opened, told(rf"the process \d+: .*, of {ME}a_process_is", tmp_path):
        command = [sys.executable, "-c", "input(1)"]
        process = opened.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        opened.callback(process.kill)
        assert process.stdout is not None
        process.stdout.read(1)  # While its program is being loaded it has neither command nor environment.


def test_a_process_of_another_run_whose_directory_begins_alike_is_not_ours(tmp_path: Path) -> None:
    begin = "sleep 60 >/dev/null 2>&1 & echo $!"  # It is no child of ours: its parent has ended.
    with contextlib.ExitStack() as opened, left_open.nothing_left_open(tmp_path):
        begun = subprocess.run(
            ["sh", "-c", begin], env={"HOME": f"{tmp_path}0/home"}, stdout=subprocess.PIPE, text=True
        )
        opened.callback(os.kill, int(begun.stdout), signal.SIGKILL)


def test_what_nobody_can_close_any_more_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_open, "GRACE_S", 60.0)
    monkeypatch.setattr(left_open.threading, "enumerate", lambda: [threading.current_thread()])
    monkeypatch.setattr(left_open.time, "sleep", lambda _: pytest.fail("waits", pytrace=False))
    with contextlib.ExitStack() as opened, told("laddr", tmp_path):
        opened.enter_context(socket.socket())


def test_what_another_thread_closes_soon_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_open, "GRACE_S", 60.0)
    looked = threading.Event()
    monkeypatch.setattr(left_open.time, "sleep", lambda _: looked.set())
    with left_open.nothing_left_open(tmp_path):
        one = socket.socket()
        threading.Thread(target=lambda: looked.wait() and one.close()).start()
