"""A keeper that may hold: standbys get deltas in one go, and nothing waits longer than it may."""

from __future__ import annotations

import random

from replkernel.agent.core import events as fact
from replkernel.agent.core.bundle import BUNDLE_BYTES_MAX, bundle, place, unbundle
from replkernel.agent.core.held_back import HAND_OVER_LIMIT_S, HAND_OVER_MAX, HAND_OVER_QUIET_S
from replkernel.agent.core.keeper import Keeper
from replkernel.agent.core.outbox import CLAIM_HOLD_S, DELTA_HOLD_S
from replkernel.records import Fence, HostName, ReplicaId, Seq
from tests.unit.agent.transcript import Story, delta, hello, logged

R1, R2 = ReplicaId("r1"), ReplicaId("r2")


class HoldingStory(Story):
    """A keeper that holds, whose process and group are up."""

    def __init__(self) -> None:
        super().__init__()
        self.keeper = Keeper(R1, HostName("hosta"), "a:1", "/log", holds=True, sticky=True)
        self.live()
        self.now = 1.0

    def logged(self, seq: int, replica: str, *, more: bool = False) -> list[str]:
        return self.tell(logged(delta(seq, replica=replica), more=more))


def test_a_short_cell_is_one_entry_of_the_log() -> None:
    story = HoldingStory()
    assert story.tell(fact.ExecutionClaimed(Seq(1), Fence(1))) == []
    assert story.tell(fact.DeltaArrived(delta(1))) == []
    assert story.wait() == ["propose delta-1-1"]
    assert story.now == 1.0 + DELTA_HOLD_S
    assert story.logged(1, "r1") == ["process < delta committed 1", "router  < committed 1"]
    assert story.keeper.deadline() is None, "an idle keeper wakes nobody"


def test_a_longer_cell_is_claimed_while_it_runs() -> None:
    story = HoldingStory()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    assert story.wait() == ["propose claim-1-1"]
    assert story.now == 1.0 + CLAIM_HOLD_S
    assert story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1)) == ["quicken"]


def test_a_process_that_dies_before_its_claim_was_proposed_fails_its_execution() -> None:
    story = HoldingStory()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    assert "propose failure-1-1" in story.tell(fact.ProcessEnded(1, "killed by SIGKILL"))
    story.tell(fact.FailureLogged(Seq(1), R1))
    story.tell(fact.ProcessForked(2, 101))
    story.tell(fact.ProcessGreeted(2, hello(pid=101)))
    assert story.keeper.deadline() is None


def test_deltas_that_are_logged_together_are_told_once() -> None:
    story = HoldingStory()
    for seq in (1, 2):
        story.tell(fact.ExecutionClaimed(Seq(seq), Fence(seq)))
        story.tell(fact.DeltaArrived(delta(seq)))
    assert story.wait() == ["propose delta-1-1"]
    assert story.logged(1, "r1", more=True) == []
    assert story.logged(2, "r1") == ["process < delta committed 2", "router  < committed 2"]


def test_a_standby_gets_deltas_once_no_more_come() -> None:
    story = HoldingStory()
    assert [story.logged(seq, "r2") for seq in (1, 2, 3)] == [[], [], []]
    assert story.wait() == ["process < apply 1", "process < apply 2", "process < apply 3"]
    assert story.now == 1.0 + HAND_OVER_QUIET_S
    assert story.wait() == ["lead at a:2"]
    assert story.keeper.deadline() is None


def test_a_standby_does_not_wait_for_ever_while_more_come() -> None:
    story = HoldingStory()
    told: list[str] = []
    for seq in range(1, 9):
        told += story.logged(seq, "r2")
        story.now += HAND_OVER_QUIET_S * 0.9
        due = story.keeper.deadline()
        if due is not None and due <= story.now:
            told += story.tell(fact.TimeCame())
    assert "process < apply 1" in told
    assert story.now < 1.0 + 2 * HAND_OVER_LIMIT_S


def test_many_deltas_are_handed_over_at_once() -> None:
    story = HoldingStory()
    told = [text for seq in range(1, HAND_OVER_MAX + 1) for text in story.logged(seq, "r2")]
    assert told == [f"process < apply {seq}" for seq in range(1, HAND_OVER_MAX + 1)]


def test_an_election_does_not_find_a_standby_behind_what_its_keeper_holds() -> None:
    story = HoldingStory()
    story.logged(1, "r2")
    assert story.tell(fact.ElectionAsked(Seq(2), Fence(2))) == ["process < apply 1", "propose vote-2-2"]


def test_a_delta_that_a_process_got_in_another_way_is_not_sent_again() -> None:
    story = HoldingStory()
    story.logged(1, "r2")
    story.tell(fact.StateSent(Seq(1)))
    assert story.wait() == []


def test_a_new_router_learns_the_address_of_a_group_that_was_never_started() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    story.tell(fact.ProcessForked(1, 100))
    story.tell(fact.ProcessGreeted(1, hello()))
    assert story.tell(fact.RouterCame()) == ["router  < prepared a:1", "router  < ready pid=100 applied=0"]


def test_bundles_keep_order_and_fit_the_log() -> None:
    chance = random.Random(1)
    entries = [b"\x80" + chance.randbytes(chance.choice((1, 100, 100_000))) for _ in range(60)]
    bundles = bundle(entries)
    assert [entry for data in bundles for entry in unbundle(data)] == entries
    assert len(bundles) < len(entries)
    assert all(len(data) <= BUNDLE_BYTES_MAX + 8 for data in bundles)
    assert bundle([b"\x80"]) == [b"\x80"]
    assert place(1, 0) < place(1, 1) < place(2, 0)
