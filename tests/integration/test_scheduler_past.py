"""The charts' past lies in the journal: the next scheduler goes on with it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.past import Past
from replkernel_server.scheduling.settings import ServiceSettings


def nobody(*_: object) -> None:
    """Let nobody ask."""


async def of_a_scheduler(path: Path, points: int) -> Past:
    """Return what a scheduler tells that has been there until it had so many points."""
    hosted = await Hosted.open(ServiceSettings(f"sqlite:///{path}"), nobody)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(20):
            while len(await hosted.driver.in_journal(hosted.driver.journal.past)) < points:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return hosted.past.tell()
    finally:
        await hosted.close()


def test_a_scheduler_goes_on_with_the_past_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    (first,) = asyncio.run(of_a_scheduler(path, 1)).points
    told = asyncio.run(asyncio.wait_for(of_a_scheduler(path, 2), 30)).points
    assert told[0] == first and told[1].at >= first.at


def test_a_journal_of_a_release_that_kept_no_past_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    asyncio.run(of_a_scheduler(path, 1))
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE replkernel_past")
    database.close()
    assert len(asyncio.run(of_a_scheduler(path, 1)).points) == 1
