"""The scheduler that a Jupyter Server hosts: found without a setting, and taken over by the next server."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from replkernel.leasing import wire
from replkernel.leasing.finding import find_scheduler, forget_address, tell_address
from tests.support.lab import Server, running
from tests.support.ports import free_port
from tests.support.scheduler_client import Client, close_all, offer
from tests.support.scheduler_service import refused_process, serving

EXTENSION = "--ServerApp.jpserver_extensions=replkernel_server=True"


@pytest.fixture(autouse=True)
async def _clients_go() -> AsyncIterator[None]:
    yield
    await close_all()


def until(holds: Callable[[], bool], within_s: float = 40.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def found() -> Server:
    """Return the scheduler that agents and routers of this user would find."""
    until(lambda: find_scheduler(os.environ)[0] != "")
    url, token = find_scheduler(os.environ)
    return Server(f"{url}/api/v1/", token, Path())


def served_before() -> str:
    """Have a scheduler of this user served at a port that nobody else gets; return its address."""
    url = f"http://127.0.0.1:{free_port()}"
    tell_address(os.environ, url, "another token")
    forget_address(os.environ)
    return url


def started(stack: ExitStack, directory: Path, name: str, *options: str) -> None:
    (directory / name).mkdir()
    stack.enter_context(running("server", directory / name, EXTENSION, *options))


async def test_leases_outlive_a_server_and_the_next_one_hosts_them_at_the_same_place(tmp_path: Path) -> None:
    place = served_before()
    with ExitStack() as second:
        with ExitStack() as first:
            started(first, tmp_path, "first")
            scheduler = found()
            assert scheduler.url == f"{place}/api/v1/"
            assert scheduler.get("status", token="wrong")[0] == 401
            started(second, tmp_path, "second")
            said = refused_process()
            assert "a Jupyter Server hosts one too" in said and len(said.splitlines()) == 1
            url = scheduler.url.removesuffix("/api/v1/")
            agent = await Client.hello(url, scheduler.token, "agent", "a")
            agent.say(offer("a", 1))
            router = await Client.hello(url, scheduler.token, "router", "k")
            router.say(wire.KernelHere(("a",)), wire.LeaseWish("cell", 1))  # type: ignore[arg-type]
            lease = (await router.hear(wire.Granted)).lease
        assert "The scheduler ends" in await router.refusal()
        until(lambda: found().url == scheduler.url)
        router = await Client.hello(url, scheduler.token, "router", "k")
        held = (wire.HeldLease(lease.lease, lease.fence),)
        router.say(wire.KernelHere(("a",), leases=held))  # type: ignore[arg-type]
        again = (await router.hear(wire.Granted)).lease
        assert (again.lease, again.gpus, again.fence) == (lease.lease, lease.gpus, lease.fence)
    assert find_scheduler(os.environ) == ("", "")


def test_a_server_hosts_none_when_told_so_or_when_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as servers:
        started(servers, tmp_path, "off", "--ReplkernelExtension.scheduler=False")
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", "http://127.0.0.1:1")
        started(servers, tmp_path, "named")
        monkeypatch.delenv("REPLKERNEL_SCHEDULER_URL")
        time.sleep(3.0)
        assert find_scheduler(os.environ) == ("", "")
        with serving() as service:
            assert found().url == f"{service.url}/api/v1/"


def test_a_server_starts_and_ends_though_its_journal_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", "sqlite:////proc/journal.sqlite")
    with running("server", tmp_path, EXTENSION) as server:
        until(lambda: "No GPU scheduler is hosted here" in server.log.read_text())
        assert server.get("replkernel/api/status")[0] == 200
        assert "Traceback" not in server.log.read_text()
