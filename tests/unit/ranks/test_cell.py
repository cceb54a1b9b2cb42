"""What a cell on several hosts makes of the scheduler's words, and says again on each connection."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from replkernel.leasing import wire
from replkernel.leasing.channel import SchedulerChannel
from replkernel.leasing.request import GpuRequest
from replkernel.ranks import course
from replkernel.ranks.cell import _Cell
from replkernel.ranks.words import Program
from replkernel.records import HostName

WISH = wire.GangWish("k", 2, 2, "/work", "curve://h:1/aa", "seal")
HAS = wire.GangHas(
    (
        wire.GrantedLease("l1", "r1", HostName("a"), ("g1", "g2"), 1, 60.0),
        wire.GrantedLease("l2", "r2", HostName("b"), ("g3", "g4"), 2, 60.0),
    )
)


class Link:
    """A channel that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[wire.FromClient] = []
        self.up = True

    def send(self, message: wire.FromClient) -> bool:
        if self.up:
            self.said.append(message)
        return self.up

    async def close(self) -> None:
        pass


class Played:
    """A cell with its link, and what it hands to its course."""

    def __init__(self) -> None:
        birth = SimpleNamespace(spec=SimpleNamespace(kernel_id="k"), reach=None, ipc_base="/tmp/none")
        self.cell = _Cell(SimpleNamespace(birth=birth), GpuRequest(4, hosts=2), Program("", {}, {}, (), ()))
        self.link = Link()
        self.cell._channel = cast("SchedulerChannel", self.link)
        self.cell._wish = WISH

    def hears(self, *messages: wire.FromScheduler) -> list[object]:
        """Return what follows for the course."""
        for message in messages:
            self.cell._told(message)
        return self.happened()

    def happened(self) -> list[object]:
        found: list[object] = []
        while True:
            try:
                found.append(self.cell._happened.get_nowait())
            except queue.Empty:
                return found


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr("replkernel.ranks.cell.key_of", lambda env: b"k" * 32)
    made = Played()
    yield made
    made.cell.close()


@pytest.mark.parametrize("why", [wire.SCHEDULER_ENDS, "Your token is not valid any more: connect anew."])
def test_a_cell_that_has_its_gpus_is_ended_by_no_refusal(played: Played, why: str) -> None:
    played.cell._welcomed()
    assert isinstance(played.hears(HAS)[0], course.Leased)
    assert played.hears(wire.Refused(why)) == []
    assert played.hears(wire.GangEnded("The lease on host a is over.")) == [
        course.Refused("The lease on host a is over.")
    ]


def test_a_cell_that_waits_is_ended_by_a_refusal_but_not_by_a_scheduler_that_ends(played: Played) -> None:
    played.cell._welcomed()
    played.hears(wire.GangWaiting(1))
    assert played.hears(wire.Refused(wire.SCHEDULER_ENDS)) == []
    assert played.hears(wire.Refused("The journal is full.")) == [course.Refused("The journal is full.")]


def test_only_a_scheduler_that_was_never_there_is_given_up(played: Played) -> None:
    played.cell._without_scheduler("It does not answer.")
    assert played.happened() == [course.Refused("It does not answer.")]
    played.cell._welcomed()
    played.cell._without_scheduler("It does not answer.")
    assert played.happened() == [course.LinkLost("It does not answer.")]


def test_a_cell_says_on_each_connection_what_it_has_and_whether_it_has_begun(played: Played) -> None:
    played.cell._welcomed()
    played.hears(HAS)
    played.cell._perform(course.BeginOn(b"a", 0, 2, 4, "10.0.0.1", 2001))
    played.cell._welcomed()
    first, again = [said for said in played.link.said if isinstance(said, wire.GangWish)]
    assert first == WISH
    assert again.leases == (wire.HeldLease("l1", 1), wire.HeldLease("l2", 2)) and again.began


def test_a_cell_says_on_which_hosts_it_has_not_seen_its_processes_end(played: Played) -> None:
    here = [course.Came(name.encode(), name, "10.0.0.1", 1) for name in "ab"]
    for event in (course.Leased(("a", "b"), 2), *here, course.Interrupted(), course.Emptied(b"a")):
        played.cell._course.handle(event, 0.0)
    played.cell.close()
    assert played.link.said[-1] == wire.GangDone((HostName("b"),))
    played.cell = Played().cell


def test_a_scheduler_that_is_away_when_the_cell_ends_is_told_later(played: Played) -> None:
    cell, link = played.cell, played.link
    cell._welcomed()
    link.said.clear()
    link.up = False
    cell.close()
    assert link.said == []
    link.up = True
    cell._loop.call_soon_threadsafe(cell._welcomed)
    cell._thread.join()
    assert link.said == [wire.GangDone()]
    played.cell = Played().cell
