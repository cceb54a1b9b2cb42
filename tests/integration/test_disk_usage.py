"""What large state takes is counted once per inode, and found by the processes of the host."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from replkernel.agent.io import disk_usage
from replkernel.agent.io.disk_usage import DiskUsage
from replkernel.objects import usage
from replkernel.objects.room import SMALL_BYTES, room_of


def test_two_names_of_one_file_count_once(tmp_path: Path) -> None:
    for name in ("cache", "store"):
        (tmp_path / name / "aa").mkdir(parents=True)
    one, two = tmp_path / "cache" / "aa" / "one", tmp_path / "store" / "aa" / "one"
    one.write_bytes(os.urandom(1 << 20))
    os.link(one, two)
    (tmp_path / "store" / "aa" / "other").write_bytes(os.urandom(1 << 20))
    taken = usage.count([str(tmp_path / "cache"), str(tmp_path / "store"), str(tmp_path / "absent")])
    assert 2 << 20 <= taken < 3 << 20


async def test_a_process_learns_what_is_taken_and_says_no_at_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_usage, "COUNT_EVERY_S", 0.01)
    cache, store = tmp_path / "cache", tmp_path / "store"
    for place in (cache, store):
        place.mkdir()
    (store / "chunk").write_bytes(os.urandom(1 << 20))
    counting = DiskUsage(str(cache))
    counting.changed(f"file://{store}")
    for _ in range(200):
        if usage.told(str(cache)):
            break
        await asyncio.sleep(0.01)
    assert 1 << 20 <= usage.told(str(cache)) < 2 << 20
    counting.close()
    usage.tell(str(cache), 1 << 50)
    room = room_of(f"file://{store}", str(cache), 0.5)
    assert "REPLKERNEL_DISK_PERCENT" in room.refuses(SMALL_BYTES + 1)
    assert room.refuses(SMALL_BYTES) == ""
    usage.tell(str(cache), 0)
    assert room.refuses(SMALL_BYTES + 1) == ""


def test_a_figure_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert usage.told(str(tmp_path)) == 0
    (tmp_path / usage.FILE).write_text("?")
    assert usage.told(str(tmp_path)) == 0
