"""The scheduler's service is killed and started again: whatever it answered is still so."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.breadth import each_fifth, each_nth
from tests.support.scheduler_service import (
    Service,
    no_gpu_was_ever_leased_twice,
    refused,
    refused_process,
    scheduler_files,
    serving,
)

HOSTS, GPUS = 5, 4


def ask(service: Service, request: str, **more: object) -> tuple[int, Any]:
    wish = {"request": request, "kernel_id": f"kernel-{request}", "gpus": 1, "ttl_s": 60.0} | more
    return service.rest.call("POST", "leases", wish)


def fill(service: Service) -> dict[str, Any]:
    """Bring the hosts up and lease all of their GPUs; return the leases by request."""
    for number in range(HOSTS):
        gpus = [f"GPU-{number}-{gpu}" for gpu in range(GPUS)]
        assert service.rest.call("POST", "hosts", {"name": f"h{number}", "gpus": gpus})[0] == 200
    granted = [ask(service, f"r{number}") for number in range(HOSTS * GPUS)]
    assert {status for status, _ in granted} == {201}
    return {said["lease"]["request"]: said["lease"] for _, said in granted}


def give_back(service: Service, lease: dict[str, Any]) -> int:
    return service.rest.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")[0]


def status(service: Service) -> Any:
    return service.rest.get("status")[1]


def in_line(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return who waits, and where, without for how long, which goes on, and what is found out anew."""
    places = [each | {"why": each["why"].partition(";")[0]} for each in found["queue"]]
    return [{name: said for name, said in each.items() if name != "waited_s"} for each in places]


def nothing_in(found: dict[str, Any]) -> bool:
    return not (found["hosts"] or found["leases"] or found["queue"])


def identity(lease: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(lease[name] for name in ("lease", "request", "kernel_id", "host", "gpus", "fence", "ttl_s"))


def test_killed_during_twenty_leases_none_is_lost_none_doubled_and_who_waits_goes_on() -> None:
    with serving() as before:
        leases = fill(before)
        for number in range(6):
            assert ask(before, f"w{number}") == (202, {"position": number + 1, "estimate_s": None})
        queue = in_line(status(before))
        before.kill()
    with serving() as after:
        found = status(after)
        assert {lease["request"]: identity(lease) for lease in found["leases"]} == {
            request: identity(lease) for request, lease in leases.items()
        }
        assert in_line(found) == queue
        assert ask(after, "r3")[1]["lease"]["lease"] == leases["r3"]["lease"], "asked again it is the same"
        status_of_renewal, renewed = after.rest.call(
            "POST", f"leases/{leases['r3']['lease']}/renewal", {"fence": leases["r3"]["fence"]}
        )
        assert status_of_renewal == 201 and renewed["lease"]["gpus"] == leases["r3"]["gpus"]
        for number in range(6):
            assert give_back(after, leases[f"r{number}"]) == 200
        granted = {lease["request"]: lease for lease in status(after)["leases"]}
        assert {f"w{number}" for number in range(6)} <= set(granted)
        assert min(granted[f"w{number}"]["fence"] for number in range(6)) > max(
            lease["fence"] for lease in leases.values()
        )
        assert status(after)["queue"] == []
        assert after.end()[0] == 0
    assert no_gpu_was_ever_leased_twice() == 26


@pytest.mark.slow
def test_killed_in_a_storm_of_requests_every_answer_that_was_given_holds() -> None:
    given: dict[str, dict[str, Any]] = {}
    back: set[str] = set()
    uncertain: set[str] = set()

    def storm(service: Service, name: str) -> None:
        for number in range(10_000):
            request = f"{name}-{number}"
            uncertain.add(request)
            try:
                code, said = ask(service, request)
                if code == 201:
                    given[request] = said["lease"]
                    if number % 3 == 0:
                        back.add(request)
                        give_back(service, said["lease"])
            except OSError:
                return
            uncertain.discard(request)

    with serving() as before:
        fill(before)
        for lease in status(before)["leases"]:
            give_back(before, lease)
        threads = [threading.Thread(target=storm, args=(before, f"t{number}")) for number in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 30
        while len(given) < 12 and time.monotonic() < deadline:
            time.sleep(0.005)
        before.kill()
        for thread in threads:
            thread.join()
    with serving() as after:
        found = {lease["request"]: identity(lease) for lease in status(after)["leases"]}
        for request, lease in given.items():
            if request not in back:
                assert found[request] == identity(lease)
        assert set(back) - uncertain <= set(given) - set(found), "what was given back came back"
    assert no_gpu_was_ever_leased_twice() >= 12


def test_a_holder_has_time_to_renew_a_lease_that_would_have_ended_while_nobody_scheduled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ttl_s, grace_s = 5.0, 20.0
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_GRACE_S", f"{grace_s:g}")
    with serving() as before:
        before.rest.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})
        lease = ask(before, "one", ttl_s=ttl_s)[1]["lease"]
        assert ask(before, "two")[0] == 202
        before.kill()
    time.sleep(ttl_s + 0.2)
    with serving() as after:
        held = f"leases/{lease['lease']}/renewal"
        assert ttl_s < status(after)["leases"][0]["left_s"] <= grace_s, "not what was left of it"
        assert after.rest.call("POST", held, {"fence": lease["fence"]})[0] == 201
        deadline = time.monotonic() + 60
        while status(after)["queue"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [entry["request"] for entry in status(after)["leases"]] == ["two"]
        assert after.rest.call("POST", held, {"fence": lease["fence"]})[0] == 410


def test_the_journal_is_private_and_its_place_too() -> None:
    with serving() as service:
        ask(service, "one")
        files = sorted(path.name for path in scheduler_files().iterdir())
        assert "journal.sqlite" in files
        for path in scheduler_files().iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_second_scheduler_on_the_same_journal_is_refused_in_one_sentence() -> None:
    with serving() as first:
        said = refused_process()
        assert "is used by another scheduler that runs" in said
        assert "REPLKERNEL_SCHEDULER_DB" in said
        assert len(said.splitlines()) == 1
        assert first.rest.get("status")[0] == 200


def change(statement: str) -> None:
    database = sqlite3.connect(scheduler_files() / "journal.sqlite")
    with database:
        database.execute(statement)
    database.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of a scheduler that was killed with leases, for tests to take copies of."""
    directory = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(directory))
        with serving() as service:
            fill(service)
            service.kill()
        return scheduler_files()


DAMAGES = {
    "UPDATE replkernel_head SET version = 99": "of version 99",
    "UPDATE replkernel_head SET document = '{}'": "damaged: its head",
    "DELETE FROM replkernel_head": "damaged: its head is missing",
    "DELETE FROM replkernel_event WHERE number = 2": "event 2 is missing",
    "UPDATE replkernel_event SET event = '{' WHERE number = 2": "event 2 does not fit",
    "UPDATE replkernel_event SET at = at + 0.1 WHERE number = 2": "damaged at event 2",
    "UPDATE replkernel_event SET event = replace(event, 'r0', 'r9')": "damaged at event",
    "DROP TABLE replkernel_event": "damaged",
}


@pytest.mark.parametrize("statement", each_nth(DAMAGES, 4))
def test_a_journal_that_is_damaged_or_of_another_version_is_refused_by_name(
    filled: Path, statement: str
) -> None:
    shutil.copytree(filled, scheduler_files())
    change(statement)
    said = refused()
    assert DAMAGES[statement] in said and "--new-journal" in said and "REPLKERNEL_SCHEDULER_DB" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("statement", each_fifth(DAMAGES))
def test_a_journal_that_was_refused_is_set_aside_for_a_new_one(filled: Path, statement: str) -> None:
    shutil.copytree(filled, scheduler_files())
    change(statement)
    with serving("--new-journal") as service:
        assert nothing_in(status(service))
    assert any(path.name.startswith("journal.sqlite.2") for path in scheduler_files().iterdir())


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    each_nth(
        [
            ("REPLKERNEL_SCHEDULER_DB", "mysql://u:secret@h/d", "neither a file of SQLite"),
            ("REPLKERNEL_SCHEDULER_DB", "no url", "is not a database URL"),
            ("REPLKERNEL_SCHEDULER_DB", "sqlite://", "neither a file of SQLite"),
            ("REPLKERNEL_SCHEDULER_DB", "postgresql+nodriver://u:secret@h/d", "not installed"),
            ("REPLKERNEL_SCHEDULER_DB", "sqlite:////proc/journal.sqlite", "cannot be used"),
            ("REPLKERNEL_SCHEDULER_GRACE_S", "-1", "set REPLKERNEL_SCHEDULER_GRACE_S=30"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "notebook reservation", "names more than one set"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "notebook placement=nowhere", "'nowhere'"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "notebook colour=red", "'colour'"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "notebook scaling=buffered", "scaling=none"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "large-pool", "runs each cell in a process of its own"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "notebook prewarm=minimum", "prewarm=none"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "harvest", "nobody submits or drives jobs here"),
            ("REPLKERNEL_SCHEDULER_POLICIES", "fcfs-batch", "executor=last-then-idle"),
            ("REPLKERNEL_SCHEDULER_AWAY_S", "0", "set REPLKERNEL_SCHEDULER_AWAY_S=60"),
        ],
        4,
    ),
)
def test_a_setting_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    said = refused()
    assert expected in said and variable in said and "secret" not in said
    assert len(said.splitlines()) == 1


def test_a_file_that_is_no_journal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler_files().mkdir(parents=True)
    other = scheduler_files() / "other.sqlite"
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", f"sqlite:///{other}")
    other.write_bytes(b"words, not tables\n" * 100)
    other.chmod(0o644)
    assert f"chmod 600 {other}" in refused()
    other.chmod(0o600)
    assert "damaged" in refused()
    other.unlink()
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE photos (name TEXT)")
    database.close()
    other.chmod(0o600)
    assert "no scheduler's journal" in refused()


def test_policies_are_the_journals() -> None:
    os.environ["REPLKERNEL_SCHEDULER_POLICIES"] = "notebook placement=bin-pack"
    try:
        with serving() as service:
            for host in "ab":
                service.rest.call(
                    "POST", "hosts", {"name": host, "gpus": [f"GPU-{host}-{n}" for n in range(4)]}
                )
            hosts = {ask(service, f"r{number}")[1]["lease"]["host"] for number in range(4)}
            assert len(hosts) == 1, "packed"
    finally:
        del os.environ["REPLKERNEL_SCHEDULER_POLICIES"]
    said = refused()
    assert "REPLKERNEL_SCHEDULER_POLICIES='notebook placement=bin-pack'" in said


def test_once_the_journal_cannot_be_written_nothing_is_answered_and_it_ends_with_a_sentence() -> None:
    with serving() as service:
        assert ask(service, "one")[0] == 409
        change("ALTER TABLE replkernel_event RENAME TO gone")
        code, said = ask(service, "two")
        assert code == 503 and "cannot be written" in said["why"]
        assert service.process.wait(30) == 1
        assert service.process.stderr is not None
        said = service.process.stderr.read()
        assert "cannot be written" in said.splitlines()[-1] and "Traceback" not in said
