"""The laws of KernelMachine, over random logs: deterministic, exactly once, one holder a name, bounded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    HostName,
    Payload,
    ReplicaId,
    Seq,
)
from replkernel.replication import entries
from replkernel.replication.entries import Entry, decode_entry, encode_entry, split_delta
from replkernel.replication.machine import KernelMachine
from replkernel.replication.outcomes import DeltaApplied, ElectionDecided, ExecutionClaimed, Outcome
from tests.support.examples import examples

seqs = st.integers(1, 8).map(Seq)
fences = st.integers(1, 8).map(Fence)
replicas = st.sampled_from([ReplicaId("r1"), ReplicaId("r2"), ReplicaId("r3")])
names = st.lists(st.sampled_from("uvwxyz"), max_size=3, unique=True).map(tuple)
cids = st.sampled_from(["a", "b", "c", "@environ"]).map(ComponentId)


@st.composite
def components(draw: st.DrawFn, seq: Seq) -> ComponentRecord:
    cid = draw(cids)
    bound = () if cid.startswith("@") else draw(names)
    payload = Payload(head=draw(st.binary(max_size=40)))
    return ComponentRecord(cid, bound, seq, payload, Digest("d"), 1)


@st.composite
def deltas(draw: st.DrawFn) -> list[Entry]:
    seq = draw(seqs)
    made = Delta(
        seq=seq,
        fence=draw(fences),
        replica=draw(replicas),
        execution_count=seq,
        components=tuple(draw(st.lists(components(seq), max_size=3, unique_by=lambda made: made.cid))),
        dropped=tuple(draw(st.lists(cids, max_size=2))),
        order=draw(st.none() | names),
    )
    return [*split_delta(made, draw(st.sampled_from([48, 10_000])))]


single = st.one_of(
    st.builds(entries.execution_started, seqs, replicas, fences),
    st.builds(entries.execution_failed, seqs, replicas, st.just("why")),
    st.builds(entries.lead, seqs, replicas, fences),
    st.builds(entries.yield_, seqs, replicas, fences),
    st.builds(entries.vote, seqs, replicas, fences, replicas),
    st.builds(entries.replica_joined, replicas, st.just(HostName("h")), st.just("127.0.0.1:20000")),
    st.builds(entries.replica_left, replicas),
    st.builds(entries.router_attached, fences),
).map(lambda entry: [entry])


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """A log: groups of entries, some of them proposed again, as a proposer that was told Unknown does."""
    groups: list[list[Entry]] = draw(st.lists(st.one_of(single, deltas()), max_size=25))
    again = draw(st.lists(st.sampled_from(range(len(groups))), max_size=5)) if groups else []
    return [entry for group in [*groups, *(groups[number] for number in again)] for entry in group]


def replay(machine: KernelMachine, log: list[Entry], start: int = 0) -> list[list[Outcome]]:
    return [machine.apply(index + 1, log[index]) for index in range(start, len(log))]


@given(logs())
def test_the_same_log_gives_the_same_outcomes_and_bytes(log: list[Entry]) -> None:
    one, other = KernelMachine(), KernelMachine()
    assert replay(one, log) == replay(other, [decode_entry(encode_entry(entry)) for entry in log])
    assert one.snapshot() == other.snapshot()


@given(logs(), st.data())
def test_a_snapshot_and_the_entries_after_it_give_the_same_bytes(
    log: list[Entry], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(log)))
    whole, half = KernelMachine(), KernelMachine()
    replay(whole, log)
    replay(half, log[:cut])
    resumed = KernelMachine()
    resumed.restore(half.snapshot())
    replay(resumed, log, start=cut)
    assert resumed.snapshot() == whole.snapshot()
    assert resumed.names == whole.names


@given(logs())
@settings(max_examples=examples(200))
def test_the_invariants_hold_after_every_entry_and_every_entry_has_an_outcome(log: list[Entry]) -> None:
    machine = KernelMachine()
    for index, entry in enumerate(log, 1):
        assert machine.apply(index, entry)
        machine.check_invariants()


@given(logs())
@settings(max_examples=examples(200))
def test_an_execution_is_applied_once_by_its_last_claimant_and_fences_only_grow(log: list[Entry]) -> None:
    machine = KernelMachine()
    applied: list[Seq] = []
    claims: dict[Seq, tuple[ReplicaId, Fence]] = {}
    decided: dict[tuple[Seq, Fence], ReplicaId | None] = {}
    for index, entry in enumerate(log, 1):
        before = machine.fence
        for outcome in machine.apply(index, entry):
            if isinstance(outcome, ExecutionClaimed):
                claims[outcome.seq] = (outcome.replica, outcome.fence)
            elif isinstance(outcome, DeltaApplied):
                holder = claims.get(outcome.delta.seq)
                assert holder in (None, (outcome.delta.replica, outcome.delta.fence))
                applied.append(outcome.delta.seq)
            elif isinstance(outcome, ElectionDecided):
                key = (outcome.seq, outcome.fence)
                assert decided.setdefault(key, outcome.winner) == outcome.winner
        assert machine.fence >= before
    assert applied == sorted(set(applied))
    assert machine.last_seq == max(applied, default=0)


@given(logs())
def test_the_full_delta_carries_the_whole_table(log: list[Entry]) -> None:
    machine = KernelMachine()
    replay(machine, log)
    full = machine.full_delta()
    if full.seq == 0:
        return
    other = KernelMachine()
    for index, part in enumerate(split_delta(full), 1):
        other.apply(index, part)
    assert other.components == machine.components
    assert other.names == machine.names
    assert other.order == (full.order or ())
