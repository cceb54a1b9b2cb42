"""The agent's part of cells on several hosts: launchers started for its own user, and known while they live.

Law: nothing is started that bears no seal of this user. The same cell again is the same launcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec

from replkernel.errors import ReplkernelError
from replkernel.jobs.words import key_of
from replkernel.launch.module_command import module_command
from replkernel.leasing.wire import StartRanks
from replkernel.ranks.words import Orders, check_seal

log = logging.getLogger(__name__)
SEEN_MAX = 1_000


class Launchers:
    """The launchers that this agent has started; `changed` hears when `any` may be another."""

    def __init__(self, host: str, env: Mapping[str, str], changed: Callable[[], None]) -> None:
        self._host, self._env, self._changed = host, env, changed
        self._live: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()

    def any(self) -> bool:
        """Tell whether a launcher lives."""
        return bool(self._live)

    def gangs(self) -> tuple[str, ...]:
        """Return the cells of which launchers live."""
        return tuple([gang for gang, _ in self._live.values()])

    def start(self, wanted: StartRanks) -> str:
        """Start a launcher, unless that was done; return why not, in one sentence."""
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
        except (ReplkernelError, OSError) as error:
            log.error("a cell on several hosts cannot be started: %s", error)
            return str(error)
        self._seen[wanted.gang] = None
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return ""

    def stop(self, gang: str, within_s: float = 0.0) -> None:
        """Have a cell's launcher end its processes, and itself, unless it has done so within a time."""
        self._seen.pop(gang, None)
        if within_s > 0.0:
            asyncio.get_running_loop().call_later(within_s, self.stop, gang)
            return
        for name, process in self._live.values():
            if name == gang:
                with contextlib.suppress(OSError):
                    process.send_signal(signal.SIGTERM)

    def stop_all(self) -> None:
        """Have all launchers end their processes, and themselves."""
        for gang in self.gangs():
            self.stop(gang)

    def _spawn(self, wanted: StartRanks) -> None:
        orders = Orders(wanted.gang, self._host, wanted.gpus, wanted.directory, wanted.endpoint)
        process = subprocess.Popen(
            module_command("replkernel.ranks.launcher"),
            stdin=subprocess.PIPE,
            env=dict(self._env),
            start_new_session=True,
        )
        assert process.stdin is not None
        with process.stdin as told:
            told.write(msgspec.json.encode(orders))
        end = os.pidfd_open(process.pid)
        self._live[end] = (wanted.gang, process)
        asyncio.get_running_loop().add_reader(end, self._ended, end)
        self._changed()

    def _ended(self, end: int) -> None:
        asyncio.get_running_loop().remove_reader(end)
        os.close(end)
        self._live.pop(end)[1].wait()
        self._changed()
