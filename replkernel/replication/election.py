"""The election of an execution's executor: the first committed LEAD wins (NotebookOS §3.2.2).

Pure. `tally` counts the log's LEAD, YIELD and VOTE entries, so every replica decides alike. A keeper tells
its router when the time is up (`agent/core/keeper.py`): the log does not know that. Law: a decided election
never changes its winner.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replkernel.records import Fence, ReplicaId, Seq
from replkernel.replication.entries import Lead, Vote, Yield
from replkernel.replication.outcomes import ElectionDecided, Refused, StanceTaken, VoteCounted

ELECTION_LIMIT_S = 3.0
"""An election that the log has not decided after this long ends without a winner."""

ElectionEntry: TypeAlias = Lead | Yield | Vote
ElectionOutcome: TypeAlias = StanceTaken | ElectionDecided | VoteCounted | Refused


class ElectionRecord(msgspec.Struct, omit_defaults=True):
    """One election as of the log: who may speak, who led or yielded, who voted for whom."""

    seq: Seq
    fence: Fence
    members: tuple[ReplicaId, ...]
    stances: dict[ReplicaId, bool] = {}
    votes: dict[ReplicaId, ReplicaId] = {}
    winner: ReplicaId | None = None
    decided: bool = False


def tally(record: ElectionRecord, entry: ElectionEntry) -> list[ElectionOutcome]:
    """Count `entry`, changing `record`, and return what it came to."""
    if entry.seq != record.seq or entry.fence != record.fence:
        why = f"The election of execution {record.seq} runs under fence {record.fence}."
        return [Refused(entry.key, why)]
    if record.members and entry.replica not in record.members:
        return [Refused(entry.key, f"{entry.replica} is not among the members that elect.")]
    if isinstance(entry, Vote):
        return [_count_vote(record, entry)]
    return [_count_stance(record, entry)]


def _count_stance(record: ElectionRecord, entry: Lead | Yield) -> ElectionOutcome:
    if record.decided:
        return Refused(entry.key, f"The election of execution {record.seq} is over.")
    if entry.replica in record.stances:
        return Refused(entry.key, f"{entry.replica} has already taken its stance on execution {record.seq}.")
    leads = isinstance(entry, Lead)
    record.stances[entry.replica] = leads
    if leads:
        record.winner = entry.replica
    record.decided = leads or (bool(record.members) and len(record.stances) == len(record.members))
    if record.decided:
        return ElectionDecided(entry.key, record.seq, record.fence, record.winner)
    return StanceTaken(entry.key, record.seq, entry.replica, leads)


def _count_vote(record: ElectionRecord, entry: Vote) -> ElectionOutcome:
    if record.winner is None or entry.choice != record.winner:
        why = f"{entry.choice} has not won the election of execution {record.seq}."
        return Refused(entry.key, why)
    record.votes[entry.replica] = entry.choice
    confirmed = 2 * len(record.votes) > len(record.members)
    return VoteCounted(entry.key, record.seq, entry.replica, entry.choice, confirmed)


def check_record(record: ElectionRecord) -> None:
    """Raise AssertionError when a law of elections does not hold."""
    leaders = [replica for replica, leads in record.stances.items() if leads]
    assert len(leaders) <= 1, f"two LEADs were counted: {leaders}"
    assert record.winner == (leaders[0] if leaders else None), "the winner is not the first LEAD"
    assert not record.members or set(record.stances) <= set(record.members), "a stranger took a stance"
    assert all(choice == record.winner for choice in record.votes.values()), "a vote for a loser counts"
    if record.winner is not None:
        assert record.decided, "there is a winner but no decision"
