"""The proxy itself: the ports that the front end chose, and behind them the kernel of the notebook.

Law: a message passes when its sender's key vouches for it, in its channel's order; one proxy at a time has
the kernel of a notebook.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq
import zmq.asyncio

from replkernel.launch.notebook_link import (
    NotebookLink,
    Opener,
    how_it_starts,
    is_removed,
    link_file,
    read_link,
    write_link,
)
from replkernel.porter.crossing import across, kind_of, notebook_in
from replkernel.router.core.wire import Signer
from replkernel.router.io.connection import FRAME_BYTES_MAX, ConnectionFile
from replkernel.router.io.heartbeat import start_heartbeat

if TYPE_CHECKING:
    from replkernel.porter.inner import Inner

LOOK_S = 1.0
SETTLE_S = 0.2
"""So long a router's death may be heard of before the front end's, where both go together."""
LOCK_S = 5.0
"""So long a proxy waits for the one before, which has just been told to end, to let go of the notebook."""
_KINDS = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB}


class Proxy:
    """Serves one start of one notebook."""

    def __init__(self, file: ConnectionFile, opener: Opener, began: float, env: Mapping[str, str]) -> None:
        """Bind the ports of the front end, which `began` then; raises zmq.ZMQError when one is taken."""
        self._began = began
        self._opener = opener
        self._env = env
        self._outer = Signer(file.key, file.signature_scheme)
        heartbeat: zmq.Socket[bytes] = zmq.Context().socket(zmq.ROUTER)
        heartbeat.maxmsgsize = FRAME_BYTES_MAX["hb_port"]
        heartbeat.bind(f"tcp://{file.ip}:{file.ports['hb_port']}")
        start_heartbeat(heartbeat)
        context = zmq.asyncio.Context.instance()
        self._sockets: dict[str, Any] = {}
        for channel, kind in _KINDS.items():
            socket = context.socket(kind)
            socket.linger = 1000
            socket.maxmsgsize = FRAME_BYTES_MAX.get(f"{channel}_port", -1)
            socket.bind(f"tcp://{file.ip}:{file.ports[f'{channel}_port']}")
            self._sockets[channel] = socket
        self._inner = self._kernel(str(uuid.uuid4()))
        self._there = asyncio.Event()
        """Set while a kernel is behind the proxy."""
        self._up: list[asyncio.Task[None]] = []
        self._endings: list[asyncio.Task[None]] = []
        """Kernels that are being ended."""
        self._interrupts: set[bytes] = set()
        """Who interrupts on shell, and has the answers there."""
        self._place: Path | None = None
        self._linked = ""
        """The kernel that the notebook's link told of when this proxy had written it."""
        self._lock = -1
        self._ended = False

    def _kernel(self, kernel_id: str) -> Inner:
        from replkernel.porter.inner import Inner  # The ports are bound before Jupyter is imported.

        return Inner(kernel_id, self._env)

    async def serve(self, closed: asyncio.Event) -> None:
        """Pass messages until the front end has `closed` the proxy, or the kernel has ended."""
        tasks = [asyncio.create_task(self._down(channel)) for channel in ("shell", "control", "stdin")]
        tasks += [asyncio.create_task(self._keep(closed)), asyncio.create_task(self._wait(closed))]
        try:
            await self._open(self._inner)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in [*tasks, *self._up]:
                task.cancel()
            await self._leave()

    async def _wait(self, closed: asyncio.Event) -> None:
        await closed.wait()

    # -- the kernel behind it -----------------------------------------------------------------------

    async def _open(self, inner: Inner) -> None:
        await inner.start()
        self._inner = inner
        self._up = [asyncio.create_task(self._from_inner(channel)) for channel in inner.sockets]
        self._there.set()

    async def _close(self) -> None:
        self._there.clear()
        for task in self._up:
            task.cancel()
        await asyncio.gather(*self._up, return_exceptions=True)

    async def _keep(self, closed: asyncio.Event) -> None:
        """Bring back a router that has died; a kernel that has ended for good ends the proxy."""
        while not await _comes(closed, LOOK_S):
            inner = self._inner
            if not self._there.is_set() or await inner.lives() or inner is not self._inner:
                continue
            if self._ended or not inner.is_known():
                return
            self._there.clear()  # What is said meanwhile is for the next one.
            if await _comes(closed, SETTLE_S):
                return  # What is begun now, nobody would use or end.
            if inner is not self._inner:
                continue
            await self._close()
            self._inner.close()
            await self._open(self._kernel(self._inner.kernel_id))

    # -- whose it is --------------------------------------------------------------------------------

    async def _named(self, path: str) -> None:
        """Put the notebook's own kernel behind the proxy, if it has one; else it has this one from now on."""
        if self._place is not None or not os.path.isfile(path):  # noqa: ASYNC240 - a moment
            return
        place = link_file(path, self._env)
        if not await self._locks(place):
            said = "is open elsewhere; what is opened now has a kernel of its own, which ends with it"
            sys.stderr.write(f"replkernel: {path} {said}.\n")
            sys.stderr.flush()
            return
        self._place = place
        link = read_link(place)
        start = how_it_starts(link, self._opener, self._began)
        if link is not None:
            former = self._kernel(link.kernel_id)
            if start == "restart" and former.is_known():
                await former.start()
                self._end(former)
            elif former.is_known():
                nameless = self._inner
                await self._close()
                await self._open(former)
                self._end(nameless)
        write_link(place, NotebookLink(path, self._inner.kernel_id, self._opener))
        self._linked = self._inner.kernel_id

    def _end(self, kernel: Inner) -> None:
        """End a kernel for good, while messages pass to another one."""
        self._endings.append(asyncio.create_task(kernel.end()))

    async def _locks(self, place: Path) -> bool:
        """Keep the notebook's kernel to this proxy; another one meanwhile has a kernel of its own."""
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    self._unlock()
                    return False
                await asyncio.sleep(0.05)

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _leave(self) -> None:
        """Leave the notebook's kernel to the next proxy; end one that nobody would find again.

        Where its link tells of another one by now, or cannot be read, somebody may find it yet: it rests.
        The next may have the notebook before kernels are ended that are not its own, which takes seconds.
        """
        link = None if self._place is None else read_link(self._place)
        own = link is not None and link.kernel_id == self._inner.kernel_id
        if self._place is not None and link is not None and own:
            with contextlib.suppress(OSError):
                if self._ended:
                    self._place.unlink()
                else:
                    left = NotebookLink(link.path, link.kernel_id, self._opener, time.time())
                    write_link(self._place, left)
        self._unlock()
        if (own or self._is_linked()) and not self._ended:
            self._inner.close()
        else:
            self._end(self._inner)
        await asyncio.gather(*self._endings, return_exceptions=True)
        for socket in self._sockets.values():
            socket.close()

    def _is_linked(self) -> bool:
        """Tell whether the kernel had become the notebook's, and nobody has removed its link."""
        if self._place is None or self._linked != self._inner.kernel_id:
            return False
        return not is_removed(self._place)

    # -- messages -----------------------------------------------------------------------------------

    async def _down(self, channel: str) -> None:
        while True:
            frames = await self._sockets[channel].recv_multipart()
            if across(frames, self._outer, self._outer) is None:
                continue
            await self._there.wait()
            path = notebook_in(frames) if channel == "shell" else ""
            if path:
                await self._named(path)
            target = self._way_in(channel, frames)
            sealed = across(frames, self._outer, self._inner.signer)
            assert sealed is not None
            await self._inner.sockets[target].send_multipart(sealed)

    def _way_in(self, channel: str, frames: list[bytes]) -> str:
        """Return the channel on which the kernel is told; VS Code interrupts on shell, behind the cell."""
        kind = kind_of(frames)
        if kind == "shutdown_request":
            self._ended = True
        if channel == "shell" and kind == "interrupt_request":
            self._interrupts.add(frames[0])
            return "control"
        return channel

    async def _from_inner(self, channel: str) -> None:
        source = self._inner.sockets[channel]
        while True:
            frames = await source.recv_multipart()
            sealed = across(frames, self._inner.signer, self._outer)
            if sealed is None:
                continue
            on_shell = channel == "control" and frames[0] in self._interrupts
            way = "shell" if on_shell and kind_of(frames) == "interrupt_reply" else channel
            await self._sockets[way].send_multipart(sealed)


async def _comes(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event comes, so long at most; tell whether it has."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
