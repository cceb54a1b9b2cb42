"""The scheduler's journal in PostgreSQL: all that SQLite's does, also when either of the two is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from replkernel_scheduler.events import LeaseReleased
from replkernel_scheduler.types import Fence, LeaseId
from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import JournalFailed, JournalInUse, JournalRefused
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.recovery import recover
from replkernel_server.scheduling.settings import ServiceSettings
from replkernel_server.scheduling.shortening import Shortening
from sqlalchemy import text

from tests.integration.test_scheduler_snapshots import events
from tests.support.postgres_server import PostgresServer, new_database, postgres, why_not
from tests.support.scheduler_service import Service, refused, serving

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is a server")
GPUS = 20


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, PostgresServer | None]]:
    with postgres() as there:
        yield there


@pytest.fixture
def database(server: tuple[str, PostgresServer | None], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with new_database(server[0]) as url:
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", url)
        yield url


WISH = {"kernel_id": "k", "gpus": 1, "ttl_s": 60.0}


def fill(service: Service) -> list[dict[str, object]]:
    """Lease every GPU of a host; return the leases."""
    gpus = [f"GPU-{number}" for number in range(GPUS)]
    service.rest.call("POST", "hosts", {"name": "a", "gpus": gpus})
    asked = [service.rest.call("POST", "leases", WISH | {"request": f"r{number}"}) for number in range(GPUS)]
    assert service.rest.call("POST", "leases", WISH | {"request": "waits"})[0] == 202
    return [said["lease"] for _, said in asked]


def goes_on(service: Service, leases: list[dict[str, object]]) -> None:
    """Check that no lease is lost, and that whoever waits gets what is given back."""
    status = service.rest.get("status")[1]
    assert [lease["fence"] for lease in status["leases"]] == [lease["fence"] for lease in leases]
    one = leases[7]
    assert service.rest.call("DELETE", f"leases/{one['lease']}?fence={one['fence']}")[0] == 200
    status = service.rest.get("status")[1]
    assert status["queue"] == [] and status["leases"][-1]["gpus"] == one["gpus"]
    assert [cell["request"] for cell in service.rest.get("accounting")[1]["cells"]] == ["r7"]


@pytest.mark.usefixtures("database")
def test_leases_and_the_queue_survive_a_kill_and_the_accounts_too() -> None:
    with serving() as before:
        leases = fill(before)
        said = refused()
        assert "is used by another scheduler" in said and len(said.splitlines()) == 1
        before.kill()
    with serving() as after:
        goes_on(after, leases)
        assert after.end()[0] == 0
    assert "REPLKERNEL_SCHEDULER_DB" in refused("--new-journal")


@pytest.mark.usefixtures("database")
def test_the_database_is_killed_and_nothing_that_was_answered_is_lost(
    server: tuple[str, PostgresServer | None],
) -> None:
    own = server[1]
    if own is None:
        pytest.skip("the server that REPLKERNEL_TEST_POSTGRES names is not ours to kill")
    with serving() as before:
        leases = fill(before)
        own.kill()
        code, said = before.rest.call("POST", "leases", WISH | {"request": "late"})
        assert code == 503 and "cannot be written" in said["why"]
        assert before.process.wait(30) == 1
        assert before.process.stderr is not None
        told = before.process.stderr.read()
        assert "cannot be written" in told.splitlines()[-1] and "Traceback" not in told
    own.start()
    with serving() as after:
        goes_on(after, leases)


async def test_a_journal_in_postgresql_is_kept_short_and_read_back(database: str) -> None:
    setup = ServiceSettings(database)
    journal = Journal(JournalPlace(database))
    recovered = recover(journal, setup)
    driver = SchedulerDriver(recovered, journal)
    short = Shortening(driver, every=30)
    for event in events(60):
        await driver.apply(event)  # type: ignore[arg-type]
    for turn in range(3):
        work = asyncio.ensure_future(short.shorten())
        number = 0
        while not work.done():
            number += 1
            await driver.apply(LeaseReleased(LeaseId(f"none-{turn}-{number}"), Fence(1)))
            await asyncio.sleep(0.02)
        await work
    assert journal.held_from > 60 and len(journal.snapshots()) == 2
    before = msgspec.msgpack.encode((driver.core.image(), driver.core.view(), recovered.dice.getstate()))
    number = driver.number
    await driver.close()
    again = Journal(JournalPlace(database))
    back = recover(again, setup)
    assert msgspec.msgpack.encode((back.core.image(), back.core.view(), back.dice.getstate())) == before
    assert back.number == number and again.snapshot is not None
    damaged = "UPDATE replkernel_snapshot_part SET data = '\\x00'"
    again._connection.execute(text(damaged))
    again._connection.commit()
    again.close()
    last = Journal(JournalPlace(database))
    with pytest.raises(JournalRefused, match="damaged: its snapshot"):
        recover(last, setup)
    last.close()


async def test_who_lost_the_connection_writes_nothing_any_more(database: str) -> None:
    """PostgreSQL's lock goes with the connection, so another scheduler may have the journal by then."""
    setup = ServiceSettings(database)
    journal = Journal(JournalPlace(database))
    driver = SchedulerDriver(recover(journal, setup), journal)
    with pytest.raises(JournalInUse):
        Journal(JournalPlace(database))
    engine = JournalPlace(database).engine()
    with engine.connect() as other:
        mine = "pid <> pg_backend_pid() AND datname = current_database()"
        other.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}"))
    engine.dispose()
    with pytest.raises(JournalRefused):
        journal.first()  # It notices; what is written after that must not go by another connection.
    for _ in range(2):
        with pytest.raises(JournalFailed):
            await driver.apply(LeaseReleased(LeaseId("none"), Fence(1)))
    other_journal = Journal(JournalPlace(database))
    assert other_journal.first() is None
    other_journal.close()
    await driver.close()


def test_a_server_that_does_not_answer_is_named_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", "postgresql://me:secret@127.0.0.1:1/scheduler")
    said = refused()
    assert "REPLKERNEL_SCHEDULER_DB" in said and "secret" not in said
    assert len(said.splitlines()) == 1
