"""A disk that somebody fills does not end the scheduler: it says so, leases nothing new, and goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scheduler_service import Service, serving
from tests.support.small_disk import fill, small_disk

PATIENCE_S = 20.0
EVENTS_MAX = 2_000
"""What is asked at most before the journal needs room that is not there."""


def wish(name: str) -> dict[str, object]:
    return {"request": name, "kernel_id": "k", "gpus": 1, "ttl_s": 600.0}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mebibytes=2) as found:
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", f"sqlite:///{found / 'journal.sqlite'}")
        yield found


def ask_until_full(service: Service) -> str:
    """Ask for leases until that is refused; return what is said."""
    for number in range(EVENTS_MAX):
        status, said = service.rest.call("POST", "leases", wish(f"w{number}"))
        if status != 202:
            assert status == 503, said
            return str(said["why"])
    raise AssertionError("the disk was never full")


def until(service: Service, status: int) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while service.rest.get("status")[0] != status:
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.1)


def test_a_full_disk_is_told_and_borne(disk: Path) -> None:
    with serving() as service:
        assert service.rest.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})[0] == 200
        status, granted = service.rest.call("POST", "leases", wish("one"))
        assert status == 201
        fill(disk / "filler")
        why = ask_until_full(service)
        assert "journal.sqlite" in why and "no room" in why
        assert service.process.poll() is None
        assert service.rest.get("status") == (503, {"why": why})
        (disk / "filler").unlink()
        until(service, 200)
        assert service.rest.call("POST", "leases", wish("later"))[0] == 202
        lease, fence = granted["lease"]["lease"], granted["lease"]["fence"]
        assert service.rest.call("POST", f"leases/{lease}/renewal", {"fence": fence})[0] == 201
        assert service.end()[0] == 0
    with serving() as service:
        assert [held["lease"] for held in service.rest.get("status")[1]["leases"]] == [lease]
        assert "later" in {waiting["request"] for waiting in service.rest.get("status")[1]["queue"]}
        assert service.end()[0] == 0


def test_a_scheduler_with_a_full_disk_can_be_ended(disk: Path) -> None:
    with serving() as service:
        service.rest.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})
        service.rest.call("POST", "leases", wish("one"))
        fill(disk / "filler")
        ask_until_full(service)
        began_at = time.monotonic()
        assert "no room" in service.end()[1]
        assert time.monotonic() - began_at < PATIENCE_S
