"""The scheduler's journal in PostgreSQL; REPLKERNEL_TEST_POSTGRES names a server to make databases on."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from replkernel_server.scheduling.journal_place import JournalPlace
from sqlalchemy import create_engine, make_url, text

from tests.support.scheduler_service import refused, serving

SERVER = os.environ.get("REPLKERNEL_TEST_POSTGRES", "")
pytestmark = pytest.mark.skipif(
    not SERVER, reason="REPLKERNEL_TEST_POSTGRES names no server (postgresql://user@host/database)"
)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("psycopg")
    name = f"rk_{uuid.uuid4().hex}"
    admin = create_engine(JournalPlace(SERVER).url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    url = make_url(SERVER).set(database=name).render_as_string(hide_password=False)
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", url)
    yield url
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


def test_leases_and_the_queue_survive_a_kill_and_the_accounts_too(database: str) -> None:
    wish = {"kernel_id": "k", "gpus": 1, "ttl_s": 60.0}
    with serving() as before:
        before.rest.call("POST", "hosts", {"name": "a", "gpus": [f"GPU-{number}" for number in range(20)]})
        leases = [
            before.rest.call("POST", "leases", wish | {"request": f"r{number}"})[1]["lease"]
            for number in range(20)
        ]
        assert before.rest.call("POST", "leases", wish | {"request": "waits"})[0] == 202
        said = refused()
        assert "is used by another scheduler" in said and len(said.splitlines()) == 1
        before.kill()
    with serving() as after:
        status = after.rest.get("status")[1]
        assert [lease["fence"] for lease in status["leases"]] == [lease["fence"] for lease in leases]
        one = leases[7]
        assert after.rest.call("DELETE", f"leases/{one['lease']}?fence={one['fence']}")[0] == 200
        status = after.rest.get("status")[1]
        assert status["queue"] == [] and status["leases"][-1]["gpus"] == one["gpus"]
        assert [cell["request"] for cell in after.rest.get("accounting")[1]["cells"]] == ["r7"]
        assert after.end()[0] == 0
    assert "REPLKERNEL_SCHEDULER_DB" in refused("--new-journal")


def test_a_server_that_does_not_answer_is_named_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", "postgresql://me:secret@127.0.0.1:1/scheduler")
    said = refused()
    assert "REPLKERNEL_SCHEDULER_DB" in said and "secret" not in said
    assert len(said.splitlines()) == 1
