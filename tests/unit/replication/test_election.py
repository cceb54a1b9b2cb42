"""The election (NotebookOS §3.2.2): the first committed LEAD wins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replkernel.records import Fence, ReplicaId, Seq
from replkernel.replication import entries
from replkernel.replication.election import ElectionEntry, ElectionRecord, check_record, tally
from replkernel.replication.outcomes import ElectionDecided, Refused, StanceTaken, VoteCounted

R1, R2, R3 = (ReplicaId(name) for name in ("r1", "r2", "r3"))
SEQ, FENCE = Seq(4), Fence(9)


def election() -> ElectionRecord:
    return ElectionRecord(SEQ, FENCE, (R1, R2, R3))


def lead(replica: ReplicaId) -> entries.Lead:
    return entries.lead(SEQ, replica, FENCE)


def yield_(replica: ReplicaId) -> entries.Yield:
    return entries.yield_(SEQ, replica, FENCE)


def vote(replica: ReplicaId, choice: ReplicaId) -> entries.Vote:
    return entries.vote(SEQ, replica, FENCE, choice)


def test_the_first_committed_lead_wins_and_later_ones_are_refused() -> None:
    made = election()
    assert isinstance(tally(made, yield_(R3))[0], StanceTaken)
    assert tally(made, lead(R2)) == [ElectionDecided(lead(R2).key, SEQ, FENCE, R2)]
    assert isinstance(tally(made, lead(R1))[0], Refused)
    assert made.winner == R2
    assert made.decided


def test_when_all_yield_nobody_wins() -> None:
    made = election()
    outcomes = [tally(made, yield_(replica)) for replica in (R1, R2, R3)]
    assert outcomes[-1] == [ElectionDecided(yield_(R3).key, SEQ, FENCE, None)]


def test_a_replica_takes_one_stance() -> None:
    made = election()
    tally(made, yield_(R1))
    assert isinstance(tally(made, lead(R1))[0], Refused)
    assert made.winner is None


def test_votes_confirm_the_winner_once_a_majority_has_cast_them() -> None:
    made = election()
    assert isinstance(tally(made, vote(R1, R2))[0], Refused)
    tally(made, lead(R2))
    assert tally(made, vote(R1, R2)) == [VoteCounted(vote(R1, R2).key, SEQ, R1, R2, False)]
    assert tally(made, vote(R2, R2)) == [VoteCounted(vote(R2, R2).key, SEQ, R2, R2, True)]
    assert isinstance(tally(made, vote(R3, R1))[0], Refused)


def test_entries_of_another_election_or_of_strangers_do_not_count() -> None:
    made = election()
    assert isinstance(tally(made, entries.lead(Seq(5), R1, FENCE))[0], Refused)
    assert isinstance(tally(made, entries.lead(SEQ, R1, Fence(8)))[0], Refused)
    assert isinstance(tally(made, lead(ReplicaId("r9")))[0], Refused)
    assert made.winner is None


replicas = st.sampled_from([R1, R2, R3, ReplicaId("r9")])
events: st.SearchStrategy[ElectionEntry] = st.one_of(
    replicas.map(lead), replicas.map(yield_), st.builds(vote, replicas, replicas)
)


@given(st.lists(events, max_size=30))
def test_an_election_is_decided_at_most_once_whatever_comes(steps: list[ElectionEntry]) -> None:
    made = election()
    decisions: list[ElectionDecided] = []
    for event in steps:
        decisions += [outcome for outcome in tally(made, event) if isinstance(outcome, ElectionDecided)]
        check_record(made)
    assert len(decisions) <= 1
    assert [decision.winner for decision in decisions] == ([made.winner] if made.decided else [])
