"""The notebook's side of a cell on several hosts: asks for GPUs, hears launchers, shows what they say.

It holds no rule: `course.py` decides. Law: the main thread shows and waits, so an interrupt gets through;
sockets live on a thread of their own. However the cell ends, it gives its GPUs back, and says on which hosts
it has not seen its processes end.
"""

from __future__ import annotations

import asyncio
import os
import queue
import secrets
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from replkernel.agent.io.peers import PeerSocket
from replkernel.errors import ReplkernelError
from replkernel.hosts.far_sockets import new_keys
from replkernel.hosts.reach import Reach
from replkernel.jobs.submitting import have_scheduler
from replkernel.jobs.words import key_of
from replkernel.leasing import wire
from replkernel.leasing.channel import SchedulerChannel
from replkernel.leasing.finding import find_scheduler, stranger_at, token_for
from replkernel.leasing.request import GpuRequest
from replkernel.ranks import course
from replkernel.ranks.program import program_of
from replkernel.ranks.words import (
    Begin,
    Emptied,
    Ended,
    FromLauncher,
    Here,
    Program,
    Result,
    Stop,
    Wrote,
    is_proof,
    seal_of,
)
from replkernel.records import HostName
from replkernel.state.process.own_threads import own_thread

LOOK_S = 0.1
UNSHOWN_BYTES_MAX = 4 * 1024 * 1024
"""With more that is not shown yet, launchers wait, and so do their processes."""
OVERHEAD_BYTES = 256
UNTAKEN_MAX = 64
"""So many messages of each launcher wait before that."""
CLOSE_S = 5.0
LATER_S = 60.0
"""A scheduler that is away when the cell ends is waited for so long, in the background, to tell it so."""
BAD = "`%gpu --help` lists what can be said."
CellEvent: TypeAlias = course.Event | Wrote


class RanksFailed(ReplkernelError):
    """A cell on several hosts did not come to a good end."""


def run_on_hosts(shell: Any, asked: GpuRequest, source: str) -> None:
    """Run a cell's text once for each GPU; raises RanksFailed, or KeyboardInterrupt."""
    program = program_of(shell.user_ns, shell.user_ns_hidden, source, asked.back)
    cell = _Cell(shell.kernel, asked, program)
    try:
        data = cell.run()
    finally:
        cell.close()
    if asked.back:
        import dill

        shell.push(dill.loads(data))


class Backlog:
    """What has happened, from the loop's thread to the main one.

    Where too much is not taken yet, `pause` is called on the loop's thread, and `resume` once half of it is.
    """

    def __init__(self, most: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._most, self._pause, self._resume = most, pause, resume
        self._all: queue.SimpleQueue[tuple[CellEvent, int]] = queue.SimpleQueue()
        self._put_bytes = self._taken_bytes = 0
        self._paused = False

    def put(self, event: CellEvent, size: int = 0) -> None:
        """Hand something over, on the loop's thread."""
        self._put_bytes += size
        self._all.put((event, size))
        if not self._paused and self._put_bytes - self._taken_bytes >= self._most:
            self._paused = True
            self._pause()

    def take(self, timeout_s: float) -> CellEvent | None:
        """Return what comes next, None if nothing does in time; on the main thread."""
        try:
            event, size = self._all.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self._taken_bytes += size
        return event

    @property
    def has_room(self) -> bool:
        """Tell whether more could come, but is held back."""
        return self._paused and self._put_bytes - self._taken_bytes <= self._most // 2

    def go_on(self) -> None:
        """Let more come, on the loop's thread."""
        if self.has_room:
            self._paused = False
            self._resume()


class _Cell:
    """One run."""

    def __init__(self, kernel: Any, asked: GpuRequest, program: Program) -> None:
        self._asked, self._data = asked, msgspec.msgpack.encode(program)
        self._course = course.Course(asked.hosts, gives_back=bool(asked.back))
        self._happened = Backlog(UNSHOWN_BYTES_MAX, self._pause, self._resume)
        self._closing = False
        self._begun: dict[str, int | None] = {}
        """The rank whose line is not over, by stream."""
        birth = kernel.birth
        self._kernel_id, self._reach = str(birth.spec.kernel_id), birth.reach or Reach()
        self._path = Path(f"{birth.ipc_base}-ranks")
        self._gang = f"{self._kernel_id[:40]}-{secrets.token_hex(8)}"
        self._key = key_of(os.environ)
        self._loop = asyncio.new_event_loop()
        self._thread = own_thread(self._serve, "replkernel-ranks")
        self._thread.start()
        self._known: set[bytes] = set()
        self._socket: PeerSocket | None = None
        self._channel: SchedulerChannel | None = None
        self._wish: wire.GangWish | None = None
        self._leases: tuple[wire.HeldLease, ...] = ()
        self._began = self._was_up = False
        self._told_end = asyncio.Event()

    # -- on the main thread -------------------------------------------------------------------------

    def run(self) -> bytes:
        """Return what came back, once all processes are over."""
        url, token = find_scheduler(os.environ)
        if not url:
            url = self._apart(have_scheduler)
            token = token_for(url, os.environ)
        self._on_loop(self._open(url, token))
        interrupted = False
        while True:
            try:
                effects = self._next()
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                effects = self._course.handle(course.Interrupted(), time.monotonic())
            for effect in effects:
                if isinstance(effect, course.Over):
                    if interrupted:
                        raise KeyboardInterrupt
                    if effect.error:
                        raise RanksFailed(effect.error)
                    return effect.data
                self._perform(effect)

    def close(self) -> None:
        """Give all back, and close what is open."""
        self._closing = True
        with suppress(Exception):
            self._on_loop(self._close())
        if self._channel is None or self._told_end.is_set() or not self._was_up:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
        else:
            asyncio.run_coroutine_threadsafe(self._close_later(), self._loop)

    def _next(self) -> list[course.Effect]:
        """Wait for what happens next, and return what follows from it."""
        due, now = self._course.deadline(), time.monotonic()
        if due is not None and now >= due:
            return self._course.handle(course.TimeCame(), now)
        event = self._happened.take(LOOK_S)
        if self._happened.has_room:
            self._loop.call_soon_threadsafe(self._happened.go_on)
        if event is None:
            return []
        if isinstance(event, Wrote):
            self._show(event)
            return []
        return self._course.handle(event, time.monotonic())

    def _show(self, wrote: Wrote) -> None:
        """Show what a process has written; of others than the first, with the rank before each line.

        A line that is not over is ended where another process writes.
        """
        stream = sys.stdout if wrote.stream == "stdout" else sys.stderr
        begun = self._begun.get(wrote.stream)
        lines = wrote.text.splitlines(keepends=True)
        if wrote.rank:
            goes_on = begun == wrote.rank
            lines = [
                line if goes_on and not place else f"[{wrote.rank}] {line}"
                for place, line in enumerate(lines)
            ]
        text = "".join(lines) if begun in (None, wrote.rank) else "\n" + "".join(lines)
        self._begun[wrote.stream] = None if text.endswith(("\n", "\r")) else wrote.rank
        stream.write(text)  # Not flushed: so many messages as a process has lines would drown a client.

    def _perform(self, effect: course.Effect) -> None:
        match effect:
            case course.Tell(text):
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
            case course.BeginOn(peer, rank, count, world, address, port):
                if not self._began:
                    self._began = True
                    self._loop.call_soon_threadsafe(self._say, wire.GangBegan())
                self._send(peer, Begin(rank, count, world, address, port, self._data))
            case course.StopOn(peer):
                self._send(peer, Stop())

    def _send(self, peer: bytes, message: Begin | Stop) -> None:
        if self._socket is not None:
            self._loop.call_soon_threadsafe(self._socket.send, peer, message)

    def _on_loop(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def _apart(self, what: Any) -> Any:
        """Call what must not be called where an event loop runs."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as apart:
            return apart.submit(what, os.environ).result()

    # -- on the loop's thread -----------------------------------------------------------------------

    async def _open(self, url: str, token: str) -> None:
        self._socket = PeerSocket(
            self._path, FromLauncher, self._heard, lambda *_: None, self._dropped, UNTAKEN_MAX
        )
        endpoint = self._socket.listen_far(self._reach, 0, new_keys())
        directory, asked = os.getcwd(), self._asked
        self._wish = wire.GangWish(
            self._kernel_id,
            asked.gpus // asked.hosts,
            asked.hosts,
            directory,
            endpoint,
            seal_of(self._key, self._gang, directory, endpoint),
            asked.model,
            asked.vram_gb,
            asked.cpu,
            asked.memory_gib,
        )
        self._channel = SchedulerChannel(
            url,
            token,
            wire.Hello(wire.WIRE_VERSION, "gang", self._gang),
            self._told,
            self._welcomed,
            self._without_scheduler,
            lambda: find_scheduler(os.environ),
            lambda url: stranger_at(url, os.environ),
        )
        self._channel.start()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _close(self) -> None:
        if self._channel is not None and (self._says_end() or not self._was_up):
            await self._channel.close()
        if self._socket is not None:
            self._socket.close()
            self._path.unlink(missing_ok=True)

    def _says_end(self) -> bool:
        """Tell the scheduler that the cell is over; return whether it is there to hear it."""
        hosts = tuple([HostName(host) for host in self._course.unsure()])
        if self._say(wire.GangDone(hosts)):
            self._told_end.set()
        return self._told_end.is_set()

    async def _close_later(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LATER_S):
                await self._told_end.wait()
        if self._channel is not None:
            await self._channel.close()
        self._loop.stop()

    def _happens(self, event: course.Event) -> None:
        self._happened.put(event)

    def _pause(self) -> None:
        if self._socket is not None:
            self._socket.pause()

    def _resume(self) -> None:
        if self._socket is not None:
            self._socket.resume()

    def _say(self, message: wire.FromClient) -> bool:
        return self._channel is not None and self._channel.send(message)

    def _welcomed(self) -> None:
        self._was_up = True
        if self._closing:
            self._says_end()
        elif self._wish is not None:
            self._say(msgspec.structs.replace(self._wish, leases=self._leases, began=self._began))

    def _without_scheduler(self, why: str) -> None:
        """Give up a scheduler that was never there; one that was is waited for."""
        self._happens(course.LinkLost(why) if self._was_up else course.Refused(why))

    def _told(self, message: wire.FromScheduler) -> None:
        match message:
            case wire.GangHas(leases):
                hosts = tuple(str(lease.host) for lease in leases)
                self._leases = self._leases or tuple(
                    [wire.HeldLease(lease.lease, lease.fence) for lease in leases]
                )
                names = tuple([lease.lease for lease in leases])
                self._happens(course.Leased(hosts, len(leases[0].gpus), names))
            case wire.GangWaiting(place, has, estimate_s):
                self._happens(course.Waits(place, has, estimate_s))
            case wire.GangEnded(why):
                self._happens(course.Refused(why))
            case wire.Refused(why) if not self._leases and why != wire.SCHEDULER_ENDS:
                self._happens(course.Refused(why))

    def _heard(self, peer: bytes, message: object) -> None:
        match message:
            case Here(gang, host, proof, address, port):
                if gang == self._gang and is_proof(self._key, proof, gang, host) and self._socket is not None:
                    self._known.add(peer)
                    self._socket.watch(peer)
                    self._happens(course.Came(peer, host, address, port))
            case _ if peer not in self._known:
                return
            case Wrote():
                self._happened.put(message, len(message.text) + OVERHEAD_BYTES)
            case Ended(rank, code, error):
                self._happened.put(course.RankEnded(rank, code, error), len(error) + OVERHEAD_BYTES)
            case Emptied():
                self._happens(course.Emptied(peer))
            case Result(data):
                self._happened.put(course.Gave(data), len(data))

    def _dropped(self, peer: bytes) -> None:
        self._happens(course.Gone(peer))
