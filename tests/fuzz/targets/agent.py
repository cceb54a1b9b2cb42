"""What routers and kernel processes send to an agent, and its zygote, at the agent's own listeners."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

from replkernel.agent.io.process_listener import ProcessListener
from replkernel.agent.io.router_listener import RouterListener
from replkernel.agent.io.zygote_link import ZygoteLink
from replkernel.agent.io.zygote_wire import FrameReader, ZygoteReport
from replkernel.protocol.agent_to_router import GroundDescribed, InstallEnded
from replkernel.protocol.message import encode
from replkernel.protocol.process_to_agent import KernelToAgent
from replkernel.protocol.router_to_agent import RouterHello, RouterToAgent
from replkernel.records import KernelId
from tests.fuzz.examples import packed
from tests.fuzz.pieces import cut, joined

KERNEL = KernelId("k")
PEER = b"peer"
ROUTERS, PROCESSES, ZYGOTE = range(3)


class Anything:
    """Stands in for what lies behind a listener: whatever is asked of it is done, and is true."""

    current, ending, keeping, token, kernel_id = True, False, False, "token", KERNEL
    key, pid = b"", 1

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self

    def __getitem__(self, _: object) -> Any:
        return self

    def __contains__(self, _: object) -> bool:
        return True

    def __len__(self) -> int:
        return 2


class Kernels:
    """Stands in for the agent's kernels: there is one."""

    cache_dir = "/nowhere"

    def __init__(self) -> None:
        self.one: Any = Anything()

    def alive(self) -> dict[KernelId, Any]:
        return {KERNEL: self.one}

    def driver(self, kernel_id: KernelId, replica: str) -> Any:
        return self.one if kernel_id == KERNEL else None

    def prepare(self, *_: object) -> str:
        return ""

    def is_ending(self, _: KernelId) -> bool:
        return False

    def find_checkpoint(self, *_: object) -> None:
        """Look for none."""

    forget_stored = end = find_checkpoint


class NoGrounds:
    """Stands in for what runs interpreters and installers: nothing here runs anything."""

    async def describe(self, asked: Any) -> GroundDescribed:
        return GroundDescribed(KERNEL, asked.request)

    async def install(self, asked: Any) -> InstallEnded:
        return InstallEnded(KERNEL, asked.request, "")


class Listeners:
    """An agent's two listeners at sockets of their own; what one of them fails at is raised."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        self.loop = asyncio.new_event_loop()
        self.failed: Exception | None = None
        self.loop.run_until_complete(self._open(Path(tempfile.mkdtemp(prefix="rk-fuzz-"))))

    async def _open(self, directory: Path) -> None:
        kernels: Any = Kernels()
        self.routers: Any = RouterListener(
            "here", "token", directory / "agent", kernels, lambda _: b"{}", lambda: None
        )
        self.processes: Any = ProcessListener("here", directory / "kernels", kernels, lambda _: b"{}")
        self.routers._grounds = NoGrounds()
        self.routers._welcome = lambda *_: None
        for listener in (self.routers, self.processes):
            listener._socket._on_message = self._noting(listener._receive)

    def _noting(self, receive: Any) -> Any:
        def take(identity: bytes, message: object) -> None:
            try:
                receive(identity, message)
            except Exception as error:
                self.failed = error

        return take

    async def say(self, listener: Any, frames: list[bytes]) -> None:
        """Have a peer that proves itself send these."""
        self.failed = None
        for frame in frames:
            listener._socket._take([PEER, frame])
            if self.failed is not None:
                raise self.failed

    def close(self) -> None:
        """Give up the sockets and the loop."""
        self.routers.close()
        self.processes.close()
        self.loop.close()


_listeners: list[Listeners] = []
GREETING = encode(RouterHello("token", KERNEL, "", 0))


def seeds() -> list[bytes]:
    """Return one input for each message."""
    told = [joined(ROUTERS, message) for message in packed(RouterToAgent)]
    told += [joined(PROCESSES, message) for message in packed(KernelToAgent)]
    told += [joined(ZYGOTE, len(report).to_bytes(4, "big") + report) for report in packed(ZygoteReport)]
    return told


def end() -> None:
    """Close what `fuzz` keeps from one input to the next."""
    while _listeners:
        _listeners.pop().close()


def fuzz(data: bytes) -> None:
    """Have a listener take the pieces as messages, from somebody who has proved himself and from nobody."""
    number, pieces = cut(data)
    if number % 3 == ZYGOTE:
        _take_reports(pieces)
        return
    if not _listeners:
        _listeners.append(Listeners())
    listeners = _listeners[0]
    listener = (listeners.routers, listeners.processes)[number % 3]
    first = [GREETING] if number % 3 == ROUTERS else [PROCESS_GREETING]
    listeners.loop.run_until_complete(listeners.say(listener, pieces))
    listeners.loop.run_until_complete(listeners.say(listener, first + pieces))
    if number % 3 == ROUTERS:
        listeners.routers._drop(PEER)


PROCESS_GREETING = next(message for message in packed(KernelToAgent) if b"KernelHello" in message).replace(
    b"\xa5token\xa1k", b"\xa5token\xa5token"
)


def _take_reports(pieces: list[bytes]) -> None:
    """Have the link to a zygote take a stream; it closes itself at what makes no sense."""
    link: Any = ZygoteLink.__new__(ZygoteLink)
    link._reader, link._spawned = FrameReader(), Anything()
    link._children, link._unanswered, link.was_ready = {}, {}, False
    closed: list[bool] = []
    link.close = lambda: closed.append(True)
    for piece in pieces:
        if not closed:
            link.data_received(piece)
