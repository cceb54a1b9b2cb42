"""A process that has a part of a GPU: what MPS is told, and what its user is where nobody is held to his."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import NamedTuple

import pytest

from replkernel.kernel.shared_card import CONTROL, DIRECTORY, MEMORY, THREADS, SharedCard, mps_runs


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a host where an MPS daemon listens."""
    (tmp_path / "control").touch()
    return {DIRECTORY: str(tmp_path)}


def test_where_the_daemon_listens_it_holds_memory_and_processors(env: dict[str, str]) -> None:
    assert mps_runs(env)
    assert SharedCard(env).lend(0.333, 7.5) == ""
    assert (env[MEMORY], env[THREADS]) == ("0=7680M", "34")


def test_a_whole_gpu_is_held_to_nothing_and_what_the_user_has_set_comes_back(env: dict[str, str]) -> None:
    env[THREADS] = "80"
    card = SharedCard(env)
    card.lend(0.5, 8.0)
    card.lend(0.25, 8.0)
    assert env[THREADS] == "25"
    card.lend(0.0, 0.0)
    assert env[THREADS] == "80"
    assert MEMORY not in env


def test_without_a_daemon_nothing_is_set_and_that_is_told_once(tmp_path: Path) -> None:
    env = {DIRECTORY: str(tmp_path)}
    card = SharedCard(env)
    assert card.lend(0.0, 0.0) == ""
    said = card.lend(0.5, 8.0)
    assert "torch is held to 8 GiB of it; other libraries, and processes that cells start, are not" in said
    assert card.lend(0.5, 8.0) == ""
    assert env == {DIRECTORY: str(tmp_path)}


def test_of_a_card_whose_memory_nobody_knows_that_is_told(tmp_path: Path) -> None:
    said = SharedCard({DIRECTORY: str(tmp_path)}).lend(0.5, 0.0)
    assert "how much memory it has is not known" in said


def test_a_process_in_which_cuda_has_started_keeps_its_part_which_is_told_once(
    env: dict[str, str],
) -> None:
    started = [False]
    card = SharedCard(env, lambda: started[0])
    assert card.lend(0.5, 8.0) == ""
    started[0] = True
    assert card.lend(0.5, 8.0) == "", "it has what it started with"
    assert "keeps to that until the kernel is restarted" in card.lend(0.25, 8.0)
    assert card.lend(0.0, 0.0) == ""
    assert (env[MEMORY], env[THREADS]) == ("0=8192M", "50")


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_pipe_that_its_daemon_has_left_is_no_daemon(tmp_path: Path, kind: str) -> None:
    env, control = {DIRECTORY: str(tmp_path)}, tmp_path / CONTROL
    assert not mps_runs(env)
    if kind == "pipe":
        os.mkfifo(control)
        with contextlib.closing(_Descriptor(os.open(control, os.O_RDONLY | os.O_NONBLOCK))):
            assert mps_runs(env)
    else:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
            daemon.bind(str(control))
            daemon.listen()
            assert mps_runs(env)
    assert control.exists()
    assert not mps_runs(env)


class _Descriptor(NamedTuple):
    number: int

    def close(self) -> None:
        os.close(self.number)
