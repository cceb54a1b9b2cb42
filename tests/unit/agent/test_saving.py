"""A record that the disk does not take is written later, and then the newest one."""

from __future__ import annotations

import asyncio

import pytest

from replkernel.agent.io import saving
from replkernel.agent.io.saving import Saving


class Disk:
    """Takes what is written, unless it is full."""

    def __init__(self) -> None:
        self.full = False
        self.newest = 0
        self.written: list[int] = []

    def write(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.written.append(self.newest)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(saving, "SAVE_RETRY_S", 0.0)
    return Disk()


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_newest_record_is_written_once_there_is_room(disk: Disk) -> None:
    made = Saving(disk.write, lambda: "r1")
    disk.full, disk.newest = True, 1
    made.save()
    disk.newest = 2
    await turns()
    assert disk.written == []
    disk.full = False
    await turns()
    assert disk.written == [2]


async def test_nothing_is_written_after_the_end(disk: Disk) -> None:
    made = Saving(disk.write, lambda: "r1")
    disk.full = True
    made.save()
    made.close()
    disk.full = False
    await turns()
    made.save()
    assert disk.written == []
