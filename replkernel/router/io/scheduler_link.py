"""The router's line to the scheduler, found or started: in a thread with an asyncio loop of its own.

The thread begins when the first cell asks for GPUs, and only then is asyncio imported: a kernel that needs
none pays for nothing. Law: nothing here makes the router wait but `close`, which is bounded; what the
scheduler says arrives as events, in order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from replkernel.leasing.wire import WIRE_VERSION, FromClient, FromScheduler, Hello
from replkernel.router.core import events

if TYPE_CHECKING:
    import asyncio

    from replkernel.leasing.channel import SchedulerChannel

CLOSE_S_MAX = 2.0
"""So long the router waits at its end for what it told the scheduler to be sent."""
GIVE_UP_S = 60.0
"""A scheduler that was found by its own word, and has given none for so long, is not there any more."""
AGAIN_S = 5.0
"""So long a cell that waits gives one whose process is gone to come back, before another is started.

Where none is to be started, it is looked for one after pauses of this.
"""


class SchedulerLink:
    """One router's line to the scheduler. `deliver` hands an event to the router's loop, from any thread."""

    def __init__(
        self, kernel_id: str, env: Mapping[str, str], deliver: Callable[[events.Event], None]
    ) -> None:
        self._hello = Hello(WIRE_VERSION, "router", kernel_id, pauses=True, idles=True)
        self._env = dict(env)
        self._deliver = deliver
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channel: SchedulerChannel | None = None
        self._news: asyncio.Event | None = None
        self._up = False
        self._closing = False
        self._open = False
        self._needed = False
        self._starts = True

    def open(self, *, starts: bool = True) -> None:
        """Find the scheduler and keep a line to it; after SchedulerMissing it may be opened again.

        Where there is none, this `starts` one, or looks until there is. While there is a line, or one is
        looked for, this says that somebody waits for a scheduler that does not listen.
        """
        if self._open:
            self._needed = True
            self._call(self._wake)
            return
        self._open, self._needed, self._starts = True, False, starts
        if self._thread is not None:
            self._thread.join(CLOSE_S_MAX)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def send(self, message: FromClient) -> None:
        """Send a message; without a connection it is lost, for all is told again when there is one."""
        self._call(self._send, message)

    def close(self) -> None:
        """Have what was told sent, and end the thread."""
        self._closing = True
        self._call(self._wake)
        if self._thread is not None:
            self._thread.join(CLOSE_S_MAX)

    def _call(self, what: Callable[..., None], *arguments: object) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has just ended, and its thread is telling so.
                loop.call_soon_threadsafe(what, *arguments)

    # -- in the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        import asyncio

        try:
            why = asyncio.run(self._serve())
        except Exception as error:  # SettingError: an address that is none; anything else is a fault of ours
            why = str(error) or type(error).__name__
        self._loop = self._channel = self._news = None
        self._open = False
        if not self._closing:
            self._deliver(events.SchedulerMissing(why))

    async def _serve(self) -> str:
        """Keep a line to whatever scheduler there is, wherever it moves; return why there is none."""
        import asyncio

        from replkernel.leasing.channel import SchedulerChannel
        from replkernel.leasing.finding import find_scheduler, stranger_at
        from replkernel.leasing.starting import find_or_start

        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        find = partial(find_scheduler, self._env)
        while True:
            where = await (find_or_start(self._env) if self._starts else self._sought(find))
            if not where[0]:
                return ""
            stranger = partial(stranger_at, env=self._env)
            self._channel = SchedulerChannel(
                *where, self._hello, self._heard, self._came_up, self._went_down, find, stranger
            )
            self._channel.start()
            try:
                await self._until_gone(find)
            finally:
                await self._channel.close()
            if self._closing or not self._needed:
                return ""

    async def _sought(self, find: Callable[[], tuple[str, str]]) -> tuple[str, str]:
        """Return where a scheduler is once there is one, which is started only if somebody needs it."""
        from replkernel.leasing.starting import find_or_start

        while not (self._closing or self._needed):
            await self._news_within(AGAIN_S)
            where = find()
            if where[0]:
                return where
        return ("", "") if self._closing else await find_or_start(self._env)

    async def _until_gone(self, find: Callable[[], tuple[str, str]]) -> None:
        """Wait until the scheduler has been nowhere for too long; the channel follows one that moves."""
        import asyncio

        clock = asyncio.get_running_loop().time
        since = clock()
        while not self._closing:
            was_up = self._up
            patience_s = AGAIN_S if self._needed else GIVE_UP_S
            left_s = None if was_up else since + patience_s - clock()
            if left_s is not None and left_s <= 0.0:
                if not find()[0]:
                    return
                left_s = patience_s
            await self._news_within(left_s)
            if was_up or self._up:
                since = clock()

    async def _news_within(self, seconds: float | None) -> None:
        """Wait until something is to be looked at, or for so long."""
        import asyncio

        assert self._news is not None
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def _send(self, message: FromClient) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()

    def _heard(self, message: FromScheduler) -> None:
        self._deliver(events.SchedulerSaid(message))

    def _came_up(self) -> None:
        self._up, self._needed = True, False
        self._wake()
        self._deliver(events.SchedulerUp())

    def _went_down(self, why: str) -> None:
        self._up = False
        self._wake()
        self._deliver(events.SchedulerDown(why))
