"""The election (NotebookOS §3.2.2): the first committed LEAD wins, and a deadline ends it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replkernel.records import Fence, ReplicaId, Seq
from replkernel.replication import entries
from replkernel.replication.election import ELECTION_LIMIT_S, DeadlinePassed, Election, ElectionEvent
from replkernel.replication.outcomes import ElectionDecided, Refused, StanceTaken, VoteCounted

R1, R2, R3 = (ReplicaId(name) for name in ("r1", "r2", "r3"))
SEQ, FENCE = Seq(4), Fence(9)


def election() -> Election:
    return Election(SEQ, FENCE, (R1, R2, R3), now=100.0)


def lead(replica: ReplicaId) -> entries.Lead:
    return entries.lead(SEQ, replica, FENCE)


def yield_(replica: ReplicaId) -> entries.Yield:
    return entries.yield_(SEQ, replica, FENCE)


def vote(replica: ReplicaId, choice: ReplicaId) -> entries.Vote:
    return entries.vote(SEQ, replica, FENCE, choice)


def test_the_first_committed_lead_wins_and_later_ones_are_refused() -> None:
    made = election()
    assert isinstance(made.handle(yield_(R3), 100.1)[0], StanceTaken)
    assert made.handle(lead(R2), 100.2) == [ElectionDecided(lead(R2).key, SEQ, FENCE, R2)]
    assert isinstance(made.handle(lead(R1), 100.3)[0], Refused)
    assert made.winner == R2
    assert made.deadline() is None


def test_when_all_yield_nobody_wins() -> None:
    made = election()
    outcomes = [made.handle(yield_(replica), 100.0) for replica in (R1, R2, R3)]
    assert outcomes[-1] == [ElectionDecided(yield_(R3).key, SEQ, FENCE, None)]


def test_a_replica_takes_one_stance() -> None:
    made = election()
    made.handle(yield_(R1), 100.0)
    assert isinstance(made.handle(lead(R1), 100.0)[0], Refused)
    assert made.winner is None


def test_votes_confirm_the_winner_once_a_majority_has_cast_them() -> None:
    made = election()
    assert isinstance(made.handle(vote(R1, R2), 100.0)[0], Refused)
    made.handle(lead(R2), 100.0)
    assert made.handle(vote(R1, R2), 100.0) == [VoteCounted(vote(R1, R2).key, SEQ, R1, R2, False)]
    assert made.handle(vote(R2, R2), 100.0) == [VoteCounted(vote(R2, R2).key, SEQ, R2, R2, True)]
    assert isinstance(made.handle(vote(R3, R1), 100.0)[0], Refused)


def test_the_deadline_ends_it_without_a_winner_and_not_before() -> None:
    made = election()
    assert made.deadline() == 100.0 + ELECTION_LIMIT_S
    assert made.handle(DeadlinePassed(), 102.9) == []
    assert made.handle(DeadlinePassed(), 103.0) == [ElectionDecided("", SEQ, FENCE, None)]
    assert made.handle(DeadlinePassed(), 104.0) == []
    assert isinstance(made.handle(lead(R1), 104.0)[0], Refused)
    assert made.winner is None


def test_entries_of_another_election_or_of_strangers_do_not_count() -> None:
    made = election()
    assert isinstance(made.handle(entries.lead(Seq(5), R1, FENCE), 100.0)[0], Refused)
    assert isinstance(made.handle(entries.lead(SEQ, R1, Fence(8)), 100.0)[0], Refused)
    assert isinstance(made.handle(lead(ReplicaId("r9")), 100.0)[0], Refused)
    assert made.winner is None


replicas = st.sampled_from([R1, R2, R3, ReplicaId("r9")])
events: st.SearchStrategy[ElectionEvent] = st.one_of(
    replicas.map(lead), replicas.map(yield_), st.builds(vote, replicas, replicas), st.just(DeadlinePassed())
)


@given(st.lists(st.tuples(events, st.floats(0, 1)), max_size=30))
def test_an_election_is_decided_at_most_once_whatever_comes(steps: list[tuple[ElectionEvent, float]]) -> None:
    made, now = election(), 100.0
    decisions: list[ElectionDecided] = []
    for event, passed in steps:
        now += passed
        decisions += [outcome for outcome in made.handle(event, now) if isinstance(outcome, ElectionDecided)]
        made.check_invariants()
    assert len(decisions) <= 1
    assert [decision.winner for decision in decisions] == ([made.winner] if made.over else [])
