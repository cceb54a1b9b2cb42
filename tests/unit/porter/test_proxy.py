"""What a notebook's proxy does about its kernel when the front end goes, or the kernel's router."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from replkernel.launch.notebook_link import NotebookLink, Opener, link_file, read_link, write_link
from replkernel.porter.proxy import Proxy
from replkernel.router.core.wire import Signer
from replkernel.router.io.connection import ConnectionFile
from tests.support.ports import free_port

CHANNELS = ("hb", "control", "shell", "stdin", "iopub")


class Host:
    """Kernels without processes; all of them die at once."""

    def __init__(self) -> None:
        self.starts: asyncio.Queue[str] = asyncio.Queue()
        self.deaths_seen: asyncio.Queue[str] = asyncio.Queue()
        self.lives_seen: asyncio.Queue[str] = asyncio.Queue()
        self.proxy: Any = None
        self.dead = False
        self.may_end = asyncio.Event()
        """Unset by who wants the ends of kernels to take a while."""
        self.may_end.set()

    def kernel(self, proxy: Proxy, kernel_id: str) -> Kernel:
        self.proxy = proxy
        return Kernel(kernel_id, self)


class Kernel:
    """One of them, as a proxy sees it."""

    def __init__(self, kernel_id: str, host: Host) -> None:
        self.kernel_id = kernel_id
        self.sockets: dict[str, Any] = {}
        self.signer = Signer(b"", "hmac-sha256")
        self._host = host

    async def start(self) -> None:
        self._host.dead = False
        self._host.starts.put_nowait(self.kernel_id)

    async def lives(self) -> bool:
        seen = self._host.deaths_seen if self._host.dead else self._host.lives_seen
        seen.put_nowait(self.kernel_id)
        return not self._host.dead

    def is_known(self) -> bool:
        return True

    async def end(self) -> None:
        await self._host.may_end.wait()
        self._host.dead = True

    def close(self) -> None:
        pass


Play = Callable[[Host, asyncio.Event], Awaitable[None]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Play], None]:
    """Serve a notebook while a play goes on, until it sets the event that the front end has closed it."""
    monkeypatch.setattr("replkernel.porter.proxy.LOOK_S", 0.01)
    monkeypatch.setattr("replkernel.porter.proxy.start_heartbeat", lambda socket: socket.context.destroy())

    async def serve(play: Play) -> None:
        host, closed = Host(), asyncio.Event()
        monkeypatch.setattr(Proxy, "_kernel", lambda proxy, kernel_id: host.kernel(proxy, kernel_id))
        ports = {f"{name}_port": free_port() for name in CHANNELS}
        file = ConnectionFile(tmp_path / "kernel-v3.json", "tcp", "127.0.0.1", b"key", "hmac-sha256", ports)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            env = {"JUPYTER_DATA_DIR": str(tmp_path)}
            tasks.create_task(Proxy(file, Opener(1, 0), 0.0, env).serve(closed))
            await play(host, closed)

    return lambda play: asyncio.run(serve(play))


def test_a_router_that_dies_is_started_again_as_the_same_kernel(served: Callable[[Play], None]) -> None:
    async def play(host: Host, closed: asyncio.Event) -> None:
        first = await host.starts.get()
        host.dead = True
        assert await host.starts.get() == first
        closed.set()

    served(play)


def test_a_kernel_that_ends_with_its_front_end_is_not_started_again(served: Callable[[Play], None]) -> None:
    hosts = []

    async def play(host: Host, closed: asyncio.Event) -> None:
        hosts.append(host)
        await host.starts.get()
        host.dead = True
        await host.deaths_seen.get()  # Before it is heard that the front end has gone.
        closed.set()

    served(play)
    assert hosts[0].starts.empty()


def test_a_notebooks_own_kernel_that_comes_meanwhile_is_left_alone(served: Callable[[Play], None]) -> None:
    starts = []

    async def play(host: Host, closed: asyncio.Event) -> None:
        await host.starts.get()
        host.dead = True
        await host.deaths_seen.get()
        await host.proxy._close()
        await host.proxy._open(host.kernel(host.proxy, "former"))
        while await host.lives_seen.get() != "former":
            pass
        closed.set()
        starts.extend(host.starts.get_nowait() for _ in range(host.starts.qsize()))

    served(play)
    assert starts == ["former"]


def locked(place: Path) -> bool:
    """Tell whether a proxy has a notebook."""
    with place.with_suffix(".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.parametrize("shut_down", [False, True])
def test_a_closed_notebook_is_the_next_proxys_while_kernels_are_still_being_ended(
    served: Callable[[Play], None], tmp_path: Path, shut_down: bool
) -> None:
    notebook = tmp_path / "one.ipynb"
    notebook.write_text("{}")
    place = link_file(str(notebook), {"JUPYTER_DATA_DIR": str(tmp_path)})

    async def play(host: Host, closed: asyncio.Event) -> None:
        write_link(place, NotebookLink(str(notebook), "former", Opener(2, 0)))
        await host.starts.get()
        host.may_end.clear()
        await host.proxy._named(str(notebook))
        assert locked(place)
        host.proxy._ended = shut_down
        closed.set()
        while locked(place):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
        link = read_link(place)
        assert (None if link is None else link.kernel_id) == (None if shut_down else "former")
        assert not host.dead
        host.may_end.set()

    served(play)


@pytest.mark.parametrize(
    ("meanwhile", "ends"),
    [("nothing", False), ("unreadable", False), ("another's", False), ("removed", True), ("shut down", True)],
)
def test_a_closed_notebooks_kernel_is_ended_only_where_its_link_was_removed_or_the_front_end_says_so(
    served: Callable[[Play], None], tmp_path: Path, meanwhile: str, ends: bool
) -> None:
    """`%replkernel fresh` removes the link; `replkernel import --notebook` writes another one."""
    notebook = tmp_path / "one.ipynb"
    notebook.write_text("{}")
    place = link_file(str(notebook), {"JUPYTER_DATA_DIR": str(tmp_path)})
    hosts = []

    async def play(host: Host, closed: asyncio.Event) -> None:
        hosts.append(host)
        await host.starts.get()
        await host.proxy._named(str(notebook))
        if meanwhile in ("unreadable", "removed"):
            place.unlink()
        if meanwhile == "unreadable":
            place.mkdir()
        if meanwhile == "another's":
            write_link(place, NotebookLink(str(notebook), "imported", Opener(0, 0)))
        host.proxy._ended = meanwhile == "shut down"
        closed.set()

    served(play)
    assert hosts[0].dead == ends
    link = read_link(place)
    if meanwhile == "another's":
        assert link == NotebookLink(str(notebook), "imported", Opener(0, 0))
    else:
        assert (link is not None) == (meanwhile == "nothing")
