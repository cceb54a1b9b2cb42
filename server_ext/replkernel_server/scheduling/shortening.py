"""Keeps the journal short: a snapshot every EVENTS_EVERY events, and then without what two snapshots hold.
One more is made at an orderly stop, so that a release that decides otherwise has nothing to replay.

A process of its own makes the snapshot from the journal, so that nobody waits; here it is written, and what
is older goes, in small transactions between those of events. Law: killed between any two of them, nothing is
lost: a snapshot counts from its last row on, and events go only behind two snapshots.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator

from replkernel.launch.module_command import module_command
from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import JournalFailed
from replkernel_server.scheduling import snapshot_maker, snapshots
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_tables import SnapshotHead
from replkernel_server.scheduling.settings import DATABASE

log = logging.getLogger("replkernel.scheduler")
EVENTS_EVERY = 50_000
SNAPSHOTS_KEPT = 2
USAGE_MAX = 1_000_000
"""The rows of the accounts that are kept, the newest: one a lease. Sums are the core's, for ever."""
LOOK_S = 5.0
AGAIN_S = 600.0
"""The wait after a snapshot could not be made."""
MAKE_S_MAX = 3_600.0
MAKER = "replkernel_server.scheduling.snapshot_maker"
SAID_BYTES_MAX = 4_000


def steps(
    journal: Journal, head: SnapshotHead, data: bytes, usage_max: int = USAGE_MAX, events_kept: int = 0
) -> Iterator[None]:
    """Write a snapshot and take away what it makes needless, but for the last `events_kept` events.

    Each step is one small transaction.
    """
    while journal.drop_part_of_none():
        yield
    if all(head.number != there.number for there in journal.snapshots()):
        for number, part in enumerate(snapshots.parts_of(data)):
            journal.add_part(head.number, number, part)
            yield
        journal.add_snapshot(head)
        yield
    known = journal.snapshots()
    for old in reversed(known[SNAPSHOTS_KEPT:]):
        journal.drop_snapshot(old.number)
        yield
    while journal.drop_part_of_none():
        yield
    if len(known) >= SNAPSHOTS_KEPT:
        while journal.drop_events(min(known[SNAPSHOTS_KEPT - 1].number, head.number - events_kept)):
            yield
    while journal.drop_usage(usage_max):
        yield


class Shortening:
    """Does so for one driver."""

    def __init__(self, driver: SchedulerDriver, every: int = EVENTS_EVERY) -> None:
        """Make a snapshot every `every` events."""
        self._driver, self._every = driver, every

    async def keep(self) -> None:
        """Look from time to time, until cancelled."""
        while not self._driver.failed.is_set():
            wait_s = LOOK_S
            if self.due():
                try:
                    await self.shorten()
                except Exception as error:  # whatever it is, the scheduler goes on without
                    self._driver.journal.failures += 1
                    wait_s = AGAIN_S
                    log.warning(
                        "No snapshot was made: %s All goes on, and the journal grows meanwhile.", error
                    )
            await asyncio.sleep(wait_s)

    def due(self) -> bool:
        """Say whether there are enough events behind the last snapshot."""
        last = self._driver.journal.snapshot
        return self._driver.durable - (0 if last is None else last.number) >= self._every

    async def shorten(self) -> None:
        """Have a snapshot made of what is durable now, write it, and take away what it makes needless."""
        began, journal = time.monotonic(), self._driver.journal
        head, data = snapshot_maker.split(await self._made(self._driver.durable))
        work = steps(journal, head, data)
        while await self._driver.in_journal(_step, work):
            pass
        log.info(
            "Snapshot behind event %d: %d bytes, in %.1f s; the journal begins at event %d.",
            head.number,
            len(data),
            time.monotonic() - began,
            journal.held_from,
        )

    async def last(self) -> None:
        """Write a snapshot of where the scheduler stops, so that the next release has nothing to replay.

        As many events stay as without it. Without a snapshot nothing is lost, but the next start replays.
        """
        journal = self._driver.journal
        try:
            there, head = await self._driver.rest(), await self._driver.in_journal(journal.head)
            last = journal.snapshot
            if there is None or head is None or there.number == (0 if last is None else last.number):
                return
            row, data = snapshot_maker.snapshot_of(head, there)
            work = steps(journal, row, data, events_kept=self._every)
            while await self._driver.in_journal(_step, work):
                pass
        except Exception as error:  # whatever it is, the scheduler stops as it was to
            log.warning("No snapshot was made at the end: %s The next start replays the journal.", error)

    async def _made(self, number: int) -> bytes:
        """Return what the maker writes; it does not outlive this call."""
        url = self._driver.journal.place.url.render_as_string(hide_password=False)
        maker = await asyncio.create_subprocess_exec(
            *module_command(MAKER, str(number)),
            env={**os.environ, DATABASE: url},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(MAKE_S_MAX):
                made, said = await maker.communicate()
        except TimeoutError as error:
            raise JournalFailed(f"It takes longer than {MAKE_S_MAX:.0f} s.") from error
        finally:
            if maker.returncode is None:
                maker.kill()
                await maker.wait()
        if maker.returncode:
            last = said[-SAID_BYTES_MAX:].decode("utf-8", "replace").strip().splitlines()[-1:]
            raise JournalFailed("".join(last) or f"Its maker ended with {maker.returncode}.")
        return made


def _step(work: Iterator[None]) -> bool:
    """Do one step, in the journal's thread; say whether there may be more."""
    return next(work, StopIteration) is not StopIteration
