"""Keeps the scheduler told of this host while there is one: finds it, connects, reads the GPUs, sends.

Law: the agent works the same without it; the driver's calls run in a thread of their own, and one that hangs
delays neither the loop nor a beat; what is wrong is logged once, not each time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from replkernel.agent.core.announcement import GIB, Announcement
from replkernel.agent.io.gpu_guarding import GpuGuarding
from replkernel.agent.io.gpus import GpuReader, GpusUnread, Reading
from replkernel.errors import ReplkernelError
from replkernel.leasing.channel import SchedulerChannel
from replkernel.leasing.finding import find_scheduler, stranger_at
from replkernel.leasing.wire import (
    BEAT_S,
    WIRE_VERSION,
    FromClient,
    FromScheduler,
    Hello,
    HostLeases,
    HostLeaves,
    KernelLeft,
    Refused,
)
from replkernel.protocol.status import GpuStatus
from replkernel.records import HostName, KernelId

log = logging.getLogger(__name__)

SEARCH_S = 5.0
"""How often a scheduler is looked for while none is connected."""
READ_S_MAX = 1.0
"""A beat waits so long for the driver, and then goes without it."""


class Announcer:
    """Tells the scheduler of one host; `told` gets the GPUs as they were read, and says who uses them.

    `guarding` hears which leases are in force here.
    """

    def __init__(
        self,
        host: str,
        reader: GpuReader,
        env: Mapping[str, str],
        told: Callable[[tuple[GpuStatus, ...]], tuple[GpuStatus, ...]],
        guarding: GpuGuarding | None = None,
    ) -> None:
        self._hello = Hello(WIRE_VERSION, "agent", HostName(host))
        self._reader, self._env, self._told = reader, env, told
        self._announcement = Announcement(*_size(), guarded=guarding is not None)
        self._guarding = guarding
        if guarding is not None:
            guarding.say = lambda answer: self._send([answer])
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")
        self._reading: Future[Reading] | None = None
        self._channel: SchedulerChannel | None = None
        self._up = False
        self._woken = asyncio.Event()
        """Set when there is a scheduler again: beats do not wait for the next search."""
        self._said = ""
        self._task: asyncio.Task[None] | None = None
        self._clock = asyncio.get_running_loop().time

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, *, leaves: bool) -> None:
        """End; `leaves`: no kernel stays on this host, so that it is gone at once."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._channel is not None:
            if leaves:
                self._channel.send(HostLeaves())
            await self._channel.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def kernel_left(self, kernel_id: KernelId) -> None:
        """Tell that no process of a kernel is left on this host: its router may not be there to do so."""
        if self._up:
            self._send([KernelLeft(kernel_id)])

    def is_up(self) -> bool:
        """Tell whether there is a scheduler."""
        return self._up

    def look(self) -> None:
        """Read the GPUs and tell of them at once."""
        self._woken.set()

    # -- turn by turn -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                fresh = await self._read()
                if self._up:
                    self._send(self._announcement.beat(self._clock(), fresh=fresh))
                else:
                    await self._look()
            except Exception as error:
                self._say(f"this host cannot be announced: {error!r}")
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S if self._up else SEARCH_S):
                    await self._woken.wait()
            self._woken.clear()

    async def _read(self) -> bool:
        """Read the GPUs; return whether the driver answered in time."""
        if self._reading is None:
            self._reading = self._thread.submit(self._reader.read)
        reading = asyncio.wrap_future(self._reading)
        done, _ = await asyncio.wait({reading}, timeout=READ_S_MAX)
        if not done:
            self._say("the GPUs' driver does not answer")
            return False
        self._reading = None
        try:
            gpus, whole = reading.result()
        except GpusUnread as error:
            self._say(str(error))
            self._announcement.unread(self._clock())
            return False
        self._announcement.read(self._told(gpus), whole=whole)
        return True

    async def _look(self) -> None:
        """Begin to connect if there is a scheduler; from then on the channel looks where it is."""
        if self._channel is not None:
            return
        find = partial(find_scheduler, self._env)
        url, token = await asyncio.to_thread(find)
        if not url:
            return
        try:
            callbacks = (self._take, self._welcomed, self._lost)
            stranger = partial(stranger_at, env=self._env)
            self._channel = SchedulerChannel(url, token, self._hello, *callbacks, find, stranger)
        except ReplkernelError as error:
            self._say(str(error))
            return
        self._channel.start()

    # -- what the channel tells ---------------------------------------------------------------------

    def _welcomed(self) -> None:
        self._up = True
        self._send(self._announcement.welcomed(self._clock()))
        self._woken.set()

    def _lost(self, why: str) -> None:
        self._up = False

    def _take(self, message: FromScheduler) -> None:
        if isinstance(message, Refused):
            self._say(f"the scheduler does not take this host: {message.why}")
            self._announcement.refused(self._clock())
        elif isinstance(message, HostLeases) and self._guarding is not None:
            self._guarding.told(message)

    def _send(self, messages: list[FromClient]) -> None:
        for message in messages:
            if self._channel is not None:
                self._channel.send(message)

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            log.warning("%s", what)


def _size() -> tuple[float, float]:
    """Return how many CPUs this process may use, and the machine's memory in GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float(len(os.sched_getaffinity(0))), round(memory / GIB, 1)
