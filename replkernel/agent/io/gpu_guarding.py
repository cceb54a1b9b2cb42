"""Drives the guard of this host's GPUs: has the hook run, keeps which accesses are open, tells the scheduler.

Law: which accesses are open is on disk before one is opened, so the next agent closes what this one left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from replkernel.agent.core.gpu_guard import GpuAccess, GpuGuard, HookCall
from replkernel.agent.io.device_hook import DeviceHook
from replkernel.errors import UNREADABLE
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.leasing.wire import HostLeases, LeasesOpen

log = logging.getLogger(__name__)

FILE = "open-gpus.json"
FILE_BYTES_MAX = 1024 * 1024

_Rows = list[tuple[str, str, str]]


class GpuGuarding:
    """One host's."""

    def __init__(self, hook: DeviceHook, directory: Path, pids_of: Callable[[str], Sequence[int]]) -> None:
        """Begin with the accesses that a file in `directory` says are open; `pids_of` knows kernels here."""
        self.say: Callable[[LeasesOpen], None] = lambda answer: None
        """What tells the scheduler."""
        self._hook, self._file, self._pids_of = hook, directory / FILE, pids_of
        self._guard = GpuGuard(_read(self._file))
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def told(self, leases: HostLeases) -> None:
        """Take the leases that are in force on this host."""
        self._guard.told(leases.leases)
        self._wake.set()

    async def close(self) -> None:
        """Do nothing any more; what is open stays so."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            call = self._guard.next(self._loop.time())
            answer = self._guard.answer() if call is None else None
            if call is not None:
                await self._do(call)
            elif answer is not None:
                self.say(answer)
            else:
                left_s = self._guard.deadline() - self._loop.time()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s if math.isfinite(left_s) else None):
                        await self._wake.wait()

    async def _do(self, call: HookCall) -> None:
        why = self._save() if call.action == "bind" else ""
        try:
            why = why or await asyncio.to_thread(self._hook.run, call, self._pids_of(call.kernel_id))
        except Exception as error:
            log.exception("The device hook could not be run")
            why = f"the device hook could not be run: {error!r}"
        self._guard.done(call, why, self._loop.time())
        what = f"{', '.join(call.gpus)} {'for' if call.action == 'bind' else 'to'} {call.owner}"
        if why:
            verb = "opened" if call.action == "bind" else "CLOSED, which is tried again,"
            log.error("%s could not be %s: %s", what, verb, why)
        else:
            log.info("%s: %s", "opened" if call.action == "bind" else "closed", what)
        if call.action == "release":
            self._save()

    def _save(self) -> str:
        """Write down which accesses are open; return why that failed."""
        rows = [(*access, kernel) for access, kernel in self._guard.accesses.items()]
        try:
            replace_own(self._file, msgspec.json.encode(rows), lasting=True)
        except OSError as error:
            log.error("%s cannot be written: %s", self._file, error)
            return f"it cannot be written down which GPUs are open ({error.strerror})"
        return ""


def _read(file: Path) -> dict[GpuAccess, str]:
    try:
        rows = msgspec.json.decode(read_own(file, FILE_BYTES_MAX), type=_Rows)
    except FileNotFoundError:
        return {}
    except (OSError, *UNREADABLE) as error:
        log.error("%s cannot be read, so GPUs may be open that nobody has a lease on: %s", file, error)
        return {}
    return {GpuAccess(owner, gpu): kernel for owner, gpu, kernel in rows}
