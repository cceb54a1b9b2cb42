"""The agent's part of cells on several hosts: launchers started for its own user, and known while they live.

Law: nothing is started that bears no seal of this user. The same cell again is the same launcher. A launcher
holds the lock in its directory, so an agent that is started again knows it; what one that was killed has left
on the host is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import signal
import subprocess
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from replkernel.agent.io.start import is_locked
from replkernel.errors import ReplkernelError
from replkernel.jobs.words import key_of
from replkernel.launch.module_command import module_command
from replkernel.leasing.wire import StartRanks
from replkernel.ranks.launcher import end_members, firsts_in
from replkernel.ranks.words import AT_ONCE, Orders, check_seal, job_of

log = logging.getLogger(__name__)
SEEN_MAX = 1_000
LOCK = "lock"


class Launchers:
    """The launchers of this agent's host; `changed` hears when `any` may be another."""

    def __init__(self, host: str, root: Path, env: Mapping[str, str], changed: Callable[[], None]) -> None:
        """Go on with those that an earlier agent has started."""
        self._host, self._root, self._env, self._changed = host, root, env, changed
        self._live: dict[int, tuple[str, Path, subprocess.Popen[bytes] | None]] = {}
        """By the descriptor of the process: the cell, the directory, and the process if it is our child."""
        self._clearing: set[asyncio.Future[None]] = set()
        self._seen: OrderedDict[str, None] = OrderedDict()
        for place in root.iterdir() if root.is_dir() else ():
            try:
                self._find(place)
            except (OSError, ValueError) as error:
                log.warning("%s is no launcher's: %s", place, error)

    def any(self) -> bool:
        """Tell whether a launcher lives."""
        return bool(self._live)

    def gangs(self) -> tuple[str, ...]:
        """Return the cells of which launchers live."""
        return tuple([gang for gang, _, _ in self._live.values()])

    def start(self, wanted: StartRanks) -> str:
        """Start a launcher, unless that was done; return why not, in one sentence.

        Raises OSError where the host cannot do it now.
        """
        if wanted.gang in self._seen:
            return ""
        try:
            check_seal(key_of(self._env), wanted.seal, wanted.gang, wanted.directory, wanted.endpoint)
            if not os.path.isdir(wanted.directory):
                raise ReplkernelError(
                    f"Host {self._host} has no directory {wanted.directory}: mount it there under this path, "
                    "or run the notebook in a directory that all hosts have."
                )
            self._spawn(wanted)
        except ReplkernelError as error:
            log.error("a cell on several hosts cannot be started: %s", error)
            return str(error)
        self._seen[wanted.gang] = None
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return ""

    def stop(self, gang: str, within_s: float = 0.0, *, saves: bool = True) -> None:
        """Have a cell's launcher end its processes, and itself, unless it has done so within a time.

        A job's name stands for all launchers that it has by now; with `saves` it may save first.
        """
        signum = signal.SIGTERM if saves else AT_ONCE
        for name in {gang, *[name for name in self.gangs() if job_of(name) == gang]}:
            self._seen.pop(name, None)
            if within_s > 0.0:
                asyncio.get_running_loop().call_later(within_s, self._tell_to_end, name, signum)
            else:
                self._tell_to_end(name, signum)

    def _tell_to_end(self, gang: str, signum: signal.Signals) -> None:
        for end, (name, _, _) in self._live.items():
            if name == gang:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(end, signum)

    def stop_all(self) -> None:
        """Have all launchers end their processes, and themselves."""
        for gang in self.gangs():
            self.stop(gang)

    def _spawn(self, wanted: StartRanks) -> None:
        place = self._root / secrets.token_hex(8)
        place.mkdir(mode=0o700, parents=True)
        lock = os.open(place / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process = subprocess.Popen(
                module_command("replkernel.ranks.launcher"),
                stdin=subprocess.PIPE,
                env=dict(self._env),
                start_new_session=True,
                pass_fds=(lock,),
            )
            # Before its orders, without which it ends.
            os.write(lock, f"{process.pid} {wanted.gang}".encode())
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        finally:
            os.close(lock)
        orders = Orders(
            wanted.gang, self._host, wanted.gpus, wanted.directory, wanted.endpoint, str(place), lock
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as told:
            told.write(msgspec.json.encode(orders))
        self._watch(os.pidfd_open(process.pid), wanted.gang, place, process)
        self._changed()

    def _find(self, place: Path) -> None:
        """Watch the launcher that has this directory, or clear up after it."""
        if _is_free(place):
            self._clear(place)
            return
        pid, _, gang = (place / LOCK).read_text().partition(" ")
        end = os.pidfd_open(int(pid))
        if _is_free(place):  # It has ended meanwhile, and its number may be another's.
            os.close(end)
            self._clear(place)
        else:
            self._watch(end, gang, place, None)
            self._seen[gang] = None

    def _watch(self, end: int, gang: str, place: Path, process: subprocess.Popen[bytes] | None) -> None:
        self._live[end] = gang, place, process
        asyncio.get_running_loop().add_reader(end, self._ended, end)

    def _ended(self, end: int) -> None:
        asyncio.get_running_loop().remove_reader(end)
        os.close(end)
        _, place, process = self._live.pop(end)
        if process is not None:
            process.wait()
        self._clear(place)
        self._changed()

    def _clear(self, place: Path) -> None:
        """End what a launcher has left here, and remove its directory; a thread does it."""
        clearing = asyncio.get_running_loop().run_in_executor(None, partial(_clear, place))
        self._clearing.add(clearing)
        clearing.add_done_callback(self._clearing.discard)


def _clear(place: Path) -> None:
    end_members(place, *firsts_in(place))
    shutil.rmtree(place, ignore_errors=True)


def _is_free(place: Path) -> bool:
    """Tell whether no launcher holds the lock in this directory."""
    return not is_locked(str(place / LOCK))
