"""The notebook's side of a cell on several hosts without a scheduler, and launchers in the test's hands."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import zmq

from replkernel.hosts.far_sockets import connect
from replkernel.jobs.words import key_of
from replkernel.leasing import wire
from replkernel.leasing.request import GpuRequest
from replkernel.protocol.message import Message, decoder, encode
from replkernel.ranks import cell
from replkernel.ranks.words import Begin, Here, Program, ToLauncher, proof_of
from replkernel.records import HostName
from tests.support.live import eventually

WAIT_MS = 60_000


class Channel:
    """What a cell takes for its connection to the scheduler."""

    made: ClassVar[list[Channel]] = []

    def __init__(self, _url: str, _token: str, hello: wire.Hello, told: Any, welcomed: Any, *_: Any) -> None:
        self.gang, self._told, self._welcomed = str(hello.name), told, welcomed
        self.said: list[Any] = []
        Channel.made.append(self)

    def start(self) -> None:
        """Be there."""
        self._welcomed()

    def send(self, message: Any) -> bool:
        """Hear the cell."""
        self.said.append(message)
        return True

    async def close(self) -> None:
        """End."""


class Gate(io.StringIO):
    """Standard output that takes nothing while it is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()

    def write(self, text: str) -> int:
        """Write, as soon as it is open."""
        self.open.wait(WAIT_MS / 1000)
        return super().write(text)


class Launcher:
    """Somebody at a cell's port."""

    def __init__(self, endpoint: str) -> None:
        self.socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        for option in (zmq.SNDHWM, zmq.RCVHWM):
            self.socket.setsockopt(option, 16)
        self.socket.setsockopt(zmq.LINGER, 0)
        connect(self.socket, endpoint, beats=True)
        self._decoder = decoder(ToLauncher)

    def come(self, gang: str, host: str, *, key: bytes | None = None) -> None:
        """Show the proof of a key: the user's own, if none is given."""
        proof = proof_of(key_of(os.environ) if key is None else key, gang, host)
        self.send(Here(gang, host, proof, "127.0.0.1", 2001))

    def send(self, message: Message) -> None:
        """Tell the cell something."""
        self.socket.send(encode(message))

    def hear(self) -> object:
        """Return what the cell says next."""
        assert self.socket.poll(WAIT_MS)
        return self._decoder.decode(self.socket.recv())


class Running:
    """A cell on two hosts that has its leases."""

    def __init__(self, out: Gate, place: Path, back: tuple[str, ...]) -> None:
        Channel.made.clear()
        spec = SimpleNamespace(kernel_id="k")
        birth = SimpleNamespace(spec=spec, reach=None, ipc_base=str(place / "k"))
        asked = GpuRequest(2, hosts=2, back=back)
        program = Program("", {}, {}, back, (), ())
        self.out, self.cell = out, cell._Cell(SimpleNamespace(birth=birth), asked, program)
        self.over: Future[bytes] = Future()
        threading.Thread(target=self._run, daemon=True).start()
        eventually(lambda: bool(Channel.made and Channel.made[0].said), "that the cell has said its wish")
        self.channel = Channel.made[0]
        (self.wish,) = self.channel.said
        leases = tuple(
            SimpleNamespace(host=HostName(host), gpus=("GPU-1",), lease=f"l-{host}", fence=1)
            for host in ("a", "b")
        )
        self.launchers: list[Launcher] = []
        self.cell._loop.call_soon_threadsafe(self.cell._told, wire.GangHas(leases))  # type: ignore[arg-type]

    def _run(self) -> None:
        try:
            self.over.set_result(self.cell.run())
        except BaseException as error:
            self.over.set_exception(error)

    def launcher(self) -> Launcher:
        """Return somebody new at the port."""
        self.launchers.append(Launcher(self.wish.endpoint))
        return self.launchers[-1]

    def begin(self) -> tuple[Launcher, Launcher]:
        """Return the two launchers that it wants, once it has told them to begin."""
        made = self.launcher(), self.launcher()
        for host, each in zip("ab", made, strict=True):
            each.come(self.channel.gang, host)
        for each in made:
            assert isinstance(each.hear(), Begin)
        return made

    def close(self) -> None:
        """End all."""
        self.out.open.set()
        self.cell.close()
        for each in self.launchers:
            each.socket.close()


@contextlib.contextmanager
def running(monkeypatch: pytest.MonkeyPatch, place: Path, back: tuple[str, ...] = ()) -> Iterator[Running]:
    """A cell that runs."""
    out = Gate()
    monkeypatch.setattr(cell, "SchedulerChannel", Channel)
    monkeypatch.setattr(cell, "find_scheduler", lambda _: ("http://nobody", "token"))
    monkeypatch.setattr(cell, "sys", SimpleNamespace(stdout=out, stderr=out))
    made = Running(out, place, back)
    try:
        yield made
    finally:
        made.close()
