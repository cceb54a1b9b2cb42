"""The agent's part of cells on several hosts: launchers started for its own user, and known while they live.

Law: nothing is started that bears no seal of this user. The same cell again is the same launcher. A launcher
holds the lock in its directory, so an agent that is started again knows it; what one that was killed has left
on the host is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import signal
import subprocess
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from replkernel.errors import ReplkernelError
from replkernel.jobs.words import key_of
from replkernel.launch.module_command import module_command
from replkernel.leasing.wire import StartRanks
from replkernel.ranks.launcher import end_members
from replkernel.ranks.words import Orders, check_seal

log = logging.getLogger(__name__)
SEEN_MAX = 1_000
LOCK = "lock"


class Launchers:
    """The launchers of this agent's host; `changed` hears when `any` may be another."""

    def __init__(self, host: str, root: Path, env: Mapping[str, str], changed: Callable[[], None]) -> None:
        """Go on with those that an earlier agent has started."""
        self._host, self._root, self._env, self._changed = host, root, env, changed
        self._live: dict[int, tuple[Path, subprocess.Popen[bytes] | None]] = {}
        """By the descriptor of the process."""
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

    def start(self, wanted: StartRanks) -> str:
        """Start a launcher, unless that was done; return why not, in one sentence."""
        place = self._root / hashlib.sha256(wanted.gang.encode()).hexdigest()[:32]
        if wanted.gang in self._seen or place.exists():
            return ""
        try:
            check_seal(key_of(self._env), wanted.seal, wanted.gang, wanted.directory, wanted.endpoint)
            if not os.path.isdir(wanted.directory):
                raise ReplkernelError(
                    f"Host {self._host} has no directory {wanted.directory}: mount it there under this path, "
                    "or run the notebook in a directory that all hosts have."
                )
            self._spawn(wanted, place)
        except (ReplkernelError, OSError) as error:
            log.error("a cell on several hosts cannot be started: %s", error)
            return str(error)
        self._seen[wanted.gang] = None
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return ""

    def stop_all(self) -> None:
        """Have all launchers end their processes, and themselves."""
        for end in self._live:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(end, signal.SIGTERM)

    def _spawn(self, wanted: StartRanks, place: Path) -> None:
        self._root.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700)
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
            os.write(lock, str(process.pid).encode())  # Before its orders, without which it ends.
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
        self._watch(os.pidfd_open(process.pid), place, process)
        self._changed()

    def _find(self, place: Path) -> None:
        """Watch the launcher that has this directory, or clear up after it."""
        if _is_free(place):
            self._clear(place)
            return
        end = os.pidfd_open(int((place / LOCK).read_bytes()))
        if _is_free(place):  # It has ended meanwhile, and its number may be another's.
            os.close(end)
            self._clear(place)
        else:
            self._watch(end, place, None)

    def _watch(self, end: int, place: Path, process: subprocess.Popen[bytes] | None) -> None:
        self._live[end] = place, process
        asyncio.get_running_loop().add_reader(end, self._ended, end)

    def _ended(self, end: int) -> None:
        asyncio.get_running_loop().remove_reader(end)
        os.close(end)
        place, process = self._live.pop(end)
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
    end_members(place)
    shutil.rmtree(place, ignore_errors=True)


def _is_free(place: Path) -> bool:
    """Tell whether no launcher holds the lock in this directory."""
    try:
        lock = os.open(place / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
