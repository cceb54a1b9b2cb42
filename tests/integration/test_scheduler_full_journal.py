"""A journal that has no room, whatever the system calls that: nothing new is leased, and nothing ends."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from replkernel_scheduler.types import UserName
from replkernel_server.errors import JournalAway, JournalFull
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.settings import ServiceSettings

from replkernel.leasing import wire
from tests.support.live import eventually
from tests.support.scheduler_client import offer
from tests.support.scheduler_service import Service, serving

ALICE = Identity(UserName("alice"))


async def nobody(_: str) -> None:
    return None


def full(*_: object) -> None:
    raise JournalFull("There is no room for the journal.")


def ask(service: Service, request: str) -> tuple[int, object]:
    wish = {"request": request, "kernel_id": f"kernel-{request}", "gpus": 1, "ttl_s": 60.0}
    return service.rest.call("POST", "leases", wish)


def test_a_quota_of_the_disk_that_is_used_up_is_waited_for_as_a_full_disk_is() -> None:
    with serving() as service:
        pid = service.process.pid
        assert service.rest.call("POST", "hosts", {"name": "h", "gpus": ["0", "1", "2"]})[0] == 200
        assert ask(service, "before")[0] == 201
        # Beyond a limit of files' size a write fails as it does beyond a quota: not as one to a full disk.
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        for number in range(3):
            status, said = ask(service, f"meanwhile-{number}")
            assert status == 503 and "no room for the journal" in str(said), said
        assert service.process.poll() is None
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
        # The first one was decided before its write failed: it has a GPU now.
        eventually(lambda: ask(service, "after")[0] == 201, "leases are granted again")


def test_a_journal_that_cannot_be_opened_for_its_disk_is_no_wrong_setting(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    Path(f"{path}-shm").mkdir()  # What SQLite cannot make, as where there is no room for it.
    with pytest.raises(JournalAway, match="cannot be used"):
        Journal(JournalPlace(f"sqlite:///{path}"))
    Path(f"{path}-shm").rmdir()
    Journal(JournalPlace(f"sqlite:///{path}")).close()


class Connected:
    """A connection that takes what it is told."""

    def post(self, message: object) -> None: ...

    def refuse(self, why: str) -> None: ...


async def connected(hosted: Hosted, hello: wire.Hello, *said: wire.FromClient) -> int:
    client = hosted.channel.connected(Connected())
    assert client is not None
    await hosted.channel.joined(client, hello, ALICE)
    for message in said:
        await hosted.channel.said(client, message)
    return client


async def test_a_scheduler_whose_journal_is_full_ends_also_when_something_happened_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = await Hosted.open(ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}"), nobody)
    await connected(hosted, wire.Hello(1, "agent", "a"), offer("a", 2))
    line = await connected(hosted, wire.Hello(1, "jobs", "a"), wire.JobsHere((), ranks=True))
    monkeypatch.setattr(hosted.driver.journal, "append", full)
    before = hosted.driver.number
    hosted.channel.left(line)
    await asyncio.sleep(0.1)
    assert hosted.driver.number > before, "nothing was decided in the background"
    await asyncio.wait_for(hosted.close(), 15)


async def test_a_journal_without_room_at_the_start_is_left_to_who_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    before = await Hosted.open(setup, nobody)
    await connected(before, wire.Hello(1, "agent", "a"), offer("a", 2))
    await before.close()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", lambda *_: full())
        with pytest.raises(JournalFull):
            await Hosted.open(setup, nobody)
    again = await Hosted.open(setup, nobody)
    assert [host.name for host in again.driver.core.view().hosts] == ["a"]
    await again.close()
