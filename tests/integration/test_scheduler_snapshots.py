"""A journal that was shortened gives the state that the whole one gives, also after a kill in between."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.events import HostUp, LeaseAsked, LeaseReleased
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    LeaseId,
    LeaseRequest,
    RequestId,
)
from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import JournalFailed, JournalRefused
from replkernel_server.scheduling import hosting, shortening, snapshot_maker
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.recovery import Recovered, recover
from replkernel_server.scheduling.settings import ServiceSettings
from replkernel_server.scheduling.shortening import Shortening, steps

from tests.integration.test_scheduler_journal import PHASES, SETS, Journalled
from tests.unit.scheduler.stories import Step

encode = msgspec.msgpack.encode


def state(recovered: Recovered) -> bytes:
    """Return all that decisions depend on, and where the journal stands."""
    stands = (recovered.number, recovered.at, recovered.proof, recovered.wall)
    return encode((recovered.core.image(), recovered.core.view(), recovered.dice.getstate(), stands))


def read_back(path: Path, policies: dict[str, str] | None = None) -> tuple[bytes, int]:
    """Return the state that a journal gives, and from which event on it was replayed."""
    setup = ServiceSettings(f"sqlite:///{path}", policies=policies or {"set": "notebook"})
    journal = Journal(JournalPlace(setup.database))
    try:
        recovered = recover(journal, setup)
        recovered.core.check_invariants()
        return state(recovered), 0 if journal.snapshot is None else journal.snapshot.number
    finally:
        journal.close()


def shorten(journal: Journal, number: int, usage_max: int = 1_000_000) -> None:
    head, data = snapshot_maker.make(journal, number)
    for _ in steps(journal, head, data, usage_max):
        pass


def copy(path: Path, to: Path) -> Path:
    to.mkdir()
    for ending in ("", "-wal", "-shm"):
        if Path(f"{path}{ending}").exists():
            shutil.copy(f"{path}{ending}", to / f"{path.name}{ending}")
    return to / path.name


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(PHASES, st.sampled_from(SETS))
def test_snapshots_and_what_came_after_give_what_the_whole_journal_gives(
    phases: list[list[Step]], policies: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        short = Journalled(Path(directory) / "short.sqlite", policies)
        cuts = []
        try:
            for phase in phases:
                for step in phase:
                    short.play(step)
                short.loop.run_until_complete(short.driver.in_journal(lambda: None))
                if short.driver.number:
                    whole = copy(Path(directory) / "short.sqlite", Path(directory) / str(len(cuts)))
                    if not cuts:  # Until here nothing is missing; from here on what came after is added.
                        kept = whole
                    cuts.append(short.driver.number)
                    shorten(short.driver.journal, short.driver.number)
                short.stop()
                if cuts:
                    add_missing(Path(directory) / "short.sqlite", kept)
                    told = read_back(Path(directory) / "short.sqlite", policies)
                    assert told[1] == cuts[-1]
                    assert read_back(kept, policies) == (told[0], 0)
                short.start()
        finally:
            short.stop()
            short.loop.close()


def add_missing(shortened: Path, whole: Path) -> None:
    """Give the whole journal the events that only the shortened one has."""
    database = sqlite3.connect(whole)
    with database:
        database.execute("ATTACH ? AS other", (str(shortened),))
        database.execute("INSERT OR IGNORE INTO replkernel_event SELECT * FROM other.replkernel_event")
        (count, last) = database.execute("SELECT count(*), max(number) FROM replkernel_event").fetchone()
    database.close()
    assert count == last


# -- a journal of some length ------------------------------------------------------------------------


def events(count: int) -> list[object]:
    host = HostUp(HostName("a"), tuple(Gpu(GpuUuid(f"GPU-{number}"), "H100", 80.0) for number in range(8)))
    asks = [
        LeaseAsked(LeaseRequest(RequestId(f"r{number}"), KernelId(f"k{number % 20}"), 1, 1000.0))
        for number in range(count)
    ]
    return [host, *asks]


async def lived(path: Path, count: int = 60) -> None:
    """Have a scheduler live on this journal: leases are granted, wait, and are given back."""
    setup = ServiceSettings(f"sqlite:///{path}")
    journal = Journal(JournalPlace(setup.database))
    driver = SchedulerDriver(recover(journal, setup), journal)
    for event in events(count):
        await driver.apply(event)  # type: ignore[arg-type]
    for lease in [entry.lease for entry in driver.core.view().leases]:
        await driver.apply(LeaseReleased(lease.lease, lease.fence))
    await driver.close()


@pytest.fixture
def journal_file(tmp_path: Path) -> Path:
    path = tmp_path / "journal.sqlite"
    asyncio.run(lived(path))
    return path


def opened(path: Path) -> Journal:
    return Journal(JournalPlace(f"sqlite:///{path}"))


def numbers(path: Path) -> list[int]:
    database = sqlite3.connect(path)
    found = [row[0] for row in database.execute("SELECT number FROM replkernel_event ORDER BY number")]
    database.close()
    return found


def test_events_go_behind_two_snapshots_and_the_accounts_stay(journal_file: Path) -> None:
    whole, begin = read_back(journal_file)
    last = numbers(journal_file)[-1]
    assert begin == 0
    journal = opened(journal_file)
    rows = journal.usage(0.0, (0, -1))
    assert len(rows) >= 8
    shorten(journal, last - 30)
    assert len(numbers(journal_file)) == last, "one snapshot alone takes nothing away"
    shorten(journal, last - 10)
    assert numbers(journal_file) == list(range(last - 29, last + 1))
    assert [head.number for head in journal.snapshots()] == [last - 10, last - 30]
    shorten(journal, last)
    assert [head.number for head in journal.snapshots()] == [last, last - 10]
    assert journal.usage(0.0, (0, -1)) == rows
    journal.close()
    assert read_back(journal_file) == (whole, last)


def test_of_the_accounts_the_newest_rows_stay(journal_file: Path) -> None:
    journal = opened(journal_file)
    rows = journal.usage(0.0, (0, -1))
    shorten(journal, 20, usage_max=5)
    assert journal.usage(0.0, (0, -1)) == rows[-5:]
    journal.close()


KILLED = """
import itertools, os, signal, sys
from pathlib import Path
from replkernel_server.scheduling import snapshots
snapshots.PART_BYTES = 1000
from tests.integration.test_scheduler_snapshots import copy, opened, snapshot_maker, steps
import replkernel_server.scheduling.journal as journals
journals.PAGE = 20

def shortened(path, behind, last_step):
    journal = opened(path)
    head, data = snapshot_maker.make(journal, behind)
    for number, _ in enumerate(steps(journal, head, data, 5)):
        if number == last_step:
            os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)

for step in itertools.count():
    killed = copy(Path(sys.argv[1]), Path(sys.argv[2]) / str(step))
    pid = os.fork()
    if pid == 0:
        shortened(killed, int(sys.argv[3]), step)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != -signal.SIGKILL:
        break
print(step, code)
"""
"""Copies a journal for each step, and has a process shorten the copy that is killed behind this step."""


def test_killed_between_any_two_steps_nothing_is_lost(journal_file: Path, tmp_path: Path) -> None:
    whole, _ = read_back(journal_file)
    last = numbers(journal_file)[-1]
    journal = opened(journal_file)
    shorten(journal, last - 40)
    journal.close()
    given = [sys.executable, "-c", KILLED, str(journal_file), str(tmp_path), str(last - 5)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=110, check=True)
    steps_done, code = map(int, done.stdout.split())
    assert code == 0, done.stderr
    assert steps_done > 8, "pieces, the snapshot, old events and old rows are steps of their own"
    for step in range(steps_done + 1):  # The last one was not killed.
        killed = tmp_path / str(step) / journal_file.name
        assert read_back(killed)[0] == whole, f"killed behind step {step}"
        if step == steps_done:
            break
        again = opened(killed)  # and the next one does what is left
        shorten(again, last)
        assert len(again.snapshots()) == 2
        assert not again.drop_part_of_none()
        again.close()
        assert read_back(killed) == (whole, last)


def damage(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path)
    with database:
        for statement in statements:
            database.execute(statement)
    database.close()


NEWEST = "number = (SELECT max(number) FROM replkernel_snapshot)"
DAMAGES = [
    f"UPDATE replkernel_snapshot_part SET data = zeroblob(10) WHERE {NEWEST}",
    f"UPDATE replkernel_snapshot SET at = at + 1 WHERE {NEWEST}",
    f"UPDATE replkernel_snapshot SET proof = proof + 1 WHERE {NEWEST}",
    f"UPDATE replkernel_snapshot SET format = 99 WHERE {NEWEST}",
    f"UPDATE replkernel_snapshot SET parts = -1 WHERE {NEWEST}",
    f"DELETE FROM replkernel_snapshot_part WHERE {NEWEST}",
]


@pytest.mark.parametrize("statement", DAMAGES)
def test_a_damaged_snapshot_is_as_good_as_none_while_there_is_another_way(
    journal_file: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole, _ = read_back(journal_file)
    last = numbers(journal_file)[-1]
    journal = opened(journal_file)
    for number in (last - 40, last - 20):
        shorten(journal, number)
    journal.close()
    damage(journal_file, statement)
    with caplog.at_level(logging.WARNING):
        assert read_back(journal_file) == (whole, last - 40)
    assert f"its snapshot behind event {last - 20}" in caplog.text
    assert read_back(journal_file) == (whole, last - 40), "and it is not there any more"
    damage(journal_file, statement)
    with pytest.raises(JournalRefused, match=f"damaged: its snapshot behind event {last - 40}") as caught:
        read_back(journal_file)
    assert "--new-journal" in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_the_only_snapshot_may_be_damaged_while_all_events_are_there(journal_file: Path) -> None:
    whole, _ = read_back(journal_file)
    journal = opened(journal_file)
    shorten(journal, 30)
    journal.close()
    damage(journal_file, DAMAGES[0])
    assert read_back(journal_file) == (whole, 0)


@pytest.mark.parametrize("gone", [-19, -5])
def test_an_event_that_is_missing_behind_the_snapshots_is_named(journal_file: Path, gone: int) -> None:
    last = numbers(journal_file)[-1]
    journal = opened(journal_file)
    for number in (last - 40, last - 20):
        shorten(journal, number)
    journal.close()
    damage(journal_file, f"DELETE FROM replkernel_event WHERE number = {last + gone}")
    with pytest.raises(JournalRefused, match=f"event {last + gone} is missing"):
        read_back(journal_file)


def test_a_journal_from_before_snapshots_is_taken_over(journal_file: Path) -> None:
    whole, _ = read_back(journal_file)
    damage(
        journal_file,
        "DROP TABLE replkernel_snapshot",
        "DROP TABLE replkernel_snapshot_part",
        "UPDATE replkernel_head SET version = 1",
    )
    assert read_back(journal_file) == (whole, 0)
    database = sqlite3.connect(journal_file)
    assert database.execute("SELECT version FROM replkernel_head").fetchall() == [(2,)]
    database.close()


# -- while it serves -----------------------------------------------------------------------------------


async def test_a_scheduler_shortens_its_journal_while_it_decides(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    setup = ServiceSettings(f"sqlite:///{path}")
    journal = Journal(JournalPlace(setup.database))
    recovered = recover(journal, setup)
    driver = SchedulerDriver(recovered, journal)
    short = Shortening(driver, every=40)
    assert not short.due()
    for event in events(50):
        await driver.apply(event)  # type: ignore[arg-type]
    assert short.due()
    for turn in range(3):
        work = asyncio.ensure_future(short.shorten())
        number = 0
        while not work.done():
            number += 1
            await driver.apply(LeaseReleased(LeaseId(f"none-{turn}-{number}"), Fence(1)))
            await asyncio.sleep(0.01)
        await work
    assert journal.snapshot is not None and journal.snapshot.number > 50
    assert journal.held_from == numbers(path)[0] > 1
    before = encode((driver.core.image(), recovered.dice.getstate()))
    number = driver.number
    await driver.close()
    again = opened(path)
    back = recover(again, setup)
    assert (encode((back.core.image(), back.dice.getstate())), back.number) == (before, number)
    again.close()


async def test_a_snapshot_that_cannot_be_made_is_told_and_the_scheduler_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.sqlite"
    setup = ServiceSettings(f"sqlite:///{path}")
    journal = Journal(JournalPlace(setup.database))
    driver = SchedulerDriver(recover(journal, setup), journal)
    for event in events(10):
        await driver.apply(event)  # type: ignore[arg-type]
    damage(path, "UPDATE replkernel_event SET event = '{' WHERE number = 3")
    monkeypatch.setattr(shortening, "LOOK_S", 0.01)
    short = Shortening(driver, every=5)
    keeping = asyncio.ensure_future(short.keep())
    with caplog.at_level(logging.WARNING):
        while not journal.failures:  # noqa: ASYNC110 - nobody else wants to be told
            await asyncio.sleep(0.05)
    keeping.cancel()
    assert "No snapshot was made" in caplog.text and "event 3 does not fit" in caplog.text
    assert await driver.apply(LeaseReleased(LeaseId("none"), Fence(1)))
    assert not driver.failed.is_set() and journal.snapshots() == []
    await driver.close()


def test_the_maker_reads_only(journal_file: Path) -> None:
    before = numbers(journal_file)
    done = subprocess.run(
        [sys.executable, "-m", "replkernel_server.scheduling.snapshot_maker", "20"],
        env={**os.environ, "REPLKERNEL_SCHEDULER_DB": f"sqlite:///{journal_file}"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    head, data = snapshot_maker.split(done.stdout)
    assert head.number == 20 and len(data) > 100
    assert numbers(journal_file) == before


async def test_a_service_shortens_its_journal_by_itself_and_tells_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "Shortening", partial(Shortening, every=20))
    monkeypatch.setattr(shortening, "LOOK_S", 0.05)
    setup = ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    hosted = await Hosted.open(setup, nobody)
    for event in events(50):
        await hosted.driver.apply(event)  # type: ignore[arg-type]
    while (made := hosted.driver.journal.snapshot) is None:  # noqa: ASYNC110 - nobody else wants to be told
        await asyncio.sleep(0.05)
    await hosted.close()
    again = await Hosted.open(setup, nobody)
    assert made.number >= 20 and made in again.driver.journal.snapshots()
    assert len(again.driver.core.view().waiting) == 42
    await again.close()


# -- an orderly stop -----------------------------------------------------------------------------------


async def nobody(_: str) -> None:
    return None


async def stopped(path: Path, *told: object) -> int:
    """Have a service live, and stop it in an orderly way; return the number of its last event."""
    hosted = await Hosted.open(ServiceSettings(f"sqlite:///{path}"), nobody)
    for event in told:
        await hosted.driver.apply(event)  # type: ignore[arg-type]
    await hosted.close()
    return hosted.driver.number


async def test_after_an_orderly_stop_a_release_that_decides_otherwise_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    number = await stopped(path, *events(12))
    before = opened(path)
    left = state(recover(before, ServiceSettings(f"sqlite:///{path}")))
    before.close()
    damage(path, "UPDATE replkernel_event SET proof = proof + 1")  # As if others had been decided.
    again = opened(path)
    assert state(recover(again, ServiceSettings(f"sqlite:///{path}"))) == left
    again.close()
    assert numbers(path)[0] == 1 and numbers(path)[-1] == number, "events are not thrown away at a stop"


async def test_many_stops_leave_two_snapshots_and_no_more_events_than_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "Shortening", partial(Shortening, every=10))
    path = tmp_path / "journal.sqlite"
    for turn in range(5):
        number = await stopped(path, *(events(4) if turn == 0 else events(4)[:1]))
    journal = opened(path)
    assert [snapshot.number for snapshot in journal.snapshots()] == [number, number - 2]
    journal.close()
    assert len(numbers(path)) <= 13


async def test_an_event_that_could_not_be_journalled_is_in_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.sqlite"
    hosted = await Hosted.open(ServiceSettings(f"sqlite:///{path}"), nobody)
    await hosted.driver.apply(events(0)[0])  # type: ignore[arg-type]
    monkeypatch.setattr(hosted.driver.journal, "append", lambda *_: 1 / 0)
    with pytest.raises(JournalFailed):
        await hosted.driver.apply(events(1)[1])  # type: ignore[arg-type]
    await hosted.close()
    journal = opened(path)
    assert journal.snapshots() == []
    journal.close()
