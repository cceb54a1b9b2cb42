"""KernelMachine: claims, fences, deltas, elections and members, as the log alone decides them."""

from __future__ import annotations

import pytest

from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    HostName,
    Payload,
    Pin,
    ReplicaId,
    Seq,
)
from replkernel.replication import entries, executions
from replkernel.replication.entries import Entry, encode_entry, split_delta
from replkernel.replication.executions import EXECUTIONS_KEPT
from replkernel.replication.machine import HELD_DELTAS_MAX, KEYS_REMEMBERED, KernelMachine
from replkernel.replication.outcomes import (
    DeltaApplied,
    DeltaPartHeld,
    Duplicate,
    ElectionDecided,
    ExecutionClaimed,
    ExecutionMarkedFailed,
    ExecutionSuperseded,
    FenceRaised,
    MemberJoined,
    MemberLeft,
    Outcome,
    Refused,
    VoteCounted,
)
from replkernel.replication.snapshot import SnapshotUnreadable

R1, R2, R3 = (ReplicaId(name) for name in ("r1", "r2", "r3"))


def component(cid: str, *names: str, seq: int = 1, pins: tuple[Pin, ...] = ()) -> ComponentRecord:
    payload = Payload(head=f"{cid}@{seq}".encode())
    return ComponentRecord(ComponentId(cid), names, Seq(seq), payload, Digest(cid), 10, pins=pins)


def delta(
    seq: int,
    *components: ComponentRecord,
    replica: ReplicaId = R1,
    fence: int | None = None,
    dropped: tuple[str, ...] = (),
    order: tuple[str, ...] | None = None,
    pins: tuple[Pin, ...] = (),
) -> Delta:
    return Delta(
        seq=Seq(seq),
        fence=Fence(seq if fence is None else fence),
        replica=replica,
        execution_count=seq,
        components=components,
        dropped=tuple(ComponentId(cid) for cid in dropped),
        pins=pins,
        order=order,
    )


class Log:
    """A machine and the log that drives it."""

    def __init__(self) -> None:
        self.machine = KernelMachine()
        self.entries: list[Entry] = []

    def add(self, *added: Entry) -> list[Outcome]:
        """Append entries and return the outcomes of the last."""
        outcomes: list[Outcome] = []
        for entry in added:
            self.entries.append(entry)
            outcomes = self.machine.apply(len(self.entries), entry)
            self.machine.check_invariants()
        return outcomes

    def claim(self, seq: int, replica: ReplicaId = R1, fence: int | None = None) -> list[Outcome]:
        return self.add(entries.execution_started(Seq(seq), replica, Fence(seq if fence is None else fence)))

    def commit(self, made: Delta, part_bytes: int = 10_000) -> list[Outcome]:
        return self.add(*split_delta(made, part_bytes))

    def run(self, seq: int, *components: ComponentRecord, replica: ReplicaId = R1) -> None:
        self.claim(seq, replica)
        outcomes = self.commit(delta(seq, *components, replica=replica))
        assert isinstance(outcomes[-1], DeltaApplied), outcomes


@pytest.fixture
def log() -> Log:
    return Log()


def refusal(outcomes: list[Outcome]) -> str:
    assert isinstance(outcomes[-1], Refused), outcomes
    return outcomes[-1].why


# -- claims and fences --


def test_a_claim_holds_and_names_the_executor(log: Log) -> None:
    assert log.claim(1) == [ExecutionClaimed(log.entries[0].key, Seq(1), R1, Fence(1))]
    assert (log.machine.executor, log.machine.fence, log.machine.busy) == (R1, 1, True)


def test_a_second_claim_with_an_older_or_equal_fence_is_refused(log: Log) -> None:
    log.claim(1, R1, fence=5)
    assert "5 is already in force" in refusal(log.claim(1, R2, fence=4))
    assert "r1 holds fence 5" in refusal(log.claim(1, R2, fence=5))
    assert log.machine.executor == R1


def test_a_newer_fence_takes_over_and_the_old_delta_is_refused(log: Log) -> None:
    log.claim(1, R1, fence=5)
    assert [type(outcome) for outcome in log.claim(1, R2, fence=6)] == [ExecutionSuperseded, ExecutionClaimed]
    assert "belongs to r2" in refusal(log.commit(delta(1, component("a", "x"), fence=5)))
    assert isinstance(log.commit(delta(1, component("a", "x"), replica=R2, fence=6))[-1], DeltaApplied)


def test_another_replica_s_next_execution_supersedes_what_is_open(log: Log) -> None:
    log.claim(1, R1)
    assert log.claim(2, R2)[0] == ExecutionSuperseded(log.entries[-1].key, Seq(1), R1)
    assert "superseded" in refusal(log.commit(delta(1, component("a", "x"))))


def test_the_same_replica_goes_on_while_its_delta_is_on_the_way(log: Log) -> None:
    log.claim(1)
    log.claim(2)
    assert [seq for seq, _, _ in log.machine.open_executions()] == [1, 2]
    assert isinstance(log.commit(delta(1, component("a", "x")))[-1], DeltaApplied)
    assert isinstance(log.commit(delta(2, component("a", "x", seq=2)))[-1], DeltaApplied)
    assert not log.machine.busy


def test_a_delta_does_not_overtake_the_one_before_it(log: Log) -> None:
    log.claim(1)
    log.claim(2)
    later = delta(2, component("a", "x", seq=2))
    (refused,) = log.commit(later)
    assert isinstance(refused, Refused)
    assert refused.again
    log.commit(delta(1, component("a", "x")))
    assert isinstance(log.commit(later)[-1], DeltaApplied)
    assert log.machine.components[ComponentId("a")].seq == 2


def test_an_execution_that_completed_is_never_claimed_again(log: Log) -> None:
    log.run(1, component("a", "x"))
    assert "already been applied" in refusal(log.claim(1, R2, fence=9))


def test_a_failed_execution_takes_no_delta_and_no_claim(log: Log) -> None:
    log.claim(1)
    failed = entries.execution_failed(Seq(1), R1, "killed by SIGKILL")
    assert log.add(failed) == [ExecutionMarkedFailed(failed.key, Seq(1), R1, "killed by SIGKILL")]
    assert "already been failed" in refusal(log.commit(delta(1, component("a", "x"))))
    assert "already been failed" in refusal(log.claim(1, R2, fence=9))
    assert log.machine.last_seq == 0
    assert log.machine.newest_seq == 1


def test_a_failure_that_precedes_its_claim_holds(log: Log) -> None:
    log.add(entries.execution_failed(Seq(1), R1, "the host was lost"))
    assert "already been failed" in refusal(log.claim(1))


def test_a_completed_execution_cannot_fail(log: Log) -> None:
    log.run(1)
    assert "already been applied" in refusal(log.add(entries.execution_failed(Seq(1), R1, "late")))
    assert "belongs to r1" in refusal(
        (log.claim(2), log.add(entries.execution_failed(Seq(2), R2, "not mine")))[1]
    )


def test_a_delta_without_a_claim_claims(log: Log) -> None:
    outcomes = log.commit(delta(1, component("a", "x")))
    assert isinstance(outcomes[-1], DeltaApplied)
    assert log.machine.executor == R1


def test_a_router_s_fence_refuses_older_claims(log: Log) -> None:
    attached = entries.router_attached(Fence(7))
    assert log.add(attached) == [FenceRaised(attached.key, Fence(7))]
    assert "7 is already in force" in refusal(log.claim(1, fence=6))
    assert "already in force" in refusal(log.add(entries.router_attached(Fence(6))))
    assert isinstance(log.claim(1, fence=7)[-1], ExecutionClaimed)


def test_under_a_new_routers_fence_any_replica_may_claim(log: Log) -> None:
    log.claim(1)
    log.add(entries.router_attached(Fence(7)))
    assert log.claim(2, R2, fence=7)[-1] == ExecutionClaimed("started:2:7:r2", Seq(2), R2, Fence(7))


def test_a_router_that_attaches_leaves_the_running_execution_alone(log: Log) -> None:
    log.claim(1)
    log.add(entries.router_attached(Fence(7)))
    assert isinstance(log.commit(delta(1, component("a", "x")))[-1], DeltaApplied)


def test_old_executions_are_forgotten_and_stay_over(log: Log) -> None:
    for seq in range(1, EXECUTIONS_KEPT + 20):
        log.run(seq)
    assert "is over" in refusal(log.claim(3, R2, fence=999))
    assert "is over" in refusal(log.add(entries.execution_failed(Seq(3), R1, "late")))


def test_failed_executions_are_forgotten_and_stay_over(log: Log) -> None:
    for seq in range(1, EXECUTIONS_KEPT + 20):
        log.claim(seq)
        log.add(entries.execution_failed(Seq(seq), R1, "lost"))
    assert "is over" in refusal(log.claim(3, R2, fence=999))


def test_executions_that_wait_for_their_store_are_not_forgotten(log: Log) -> None:
    count = EXECUTIONS_KEPT * 3
    for seq in range(1, count + 1):
        log.claim(seq)
    for seq in range(1, count + 1):
        assert isinstance(log.commit(delta(seq, component("a", "x", seq=seq)))[-1], DeltaApplied)


def test_a_claim_beyond_what_may_wait_is_refused_until_an_earlier_one_has_ended(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "OPEN_MAX", 3)
    for seq in range(1, 4):
        assert isinstance(log.claim(seq)[-1], ExecutionClaimed)
    (refused,) = log.claim(4)
    assert isinstance(refused, Refused)
    assert refused.again
    assert "3 executions wait" in refused.why
    log.commit(delta(1))
    again = entries.execution_started(Seq(5), R1, Fence(5))
    assert isinstance(log.add(again)[-1], ExecutionClaimed)


# -- deltas --


def test_a_delta_takes_effect_with_its_last_part_and_not_before(log: Log) -> None:
    made = delta(1, component("a", "x"), component("b", "y"))
    *first, last = split_delta(made, 50)
    for number, part in enumerate(first):
        held = log.add(part)[-1]
        assert isinstance(held, DeltaPartHeld)
        assert held.missing == len(first) - number
        assert not log.machine.components
    assert log.add(last)[-1] == DeltaApplied(last.key, made, len(log.entries), made)
    assert set(log.machine.names) == {"x", "y"}


def test_parts_may_come_twice_and_in_any_order(log: Log) -> None:
    made = delta(1, component("a", "x"))
    parts = split_delta(made, 20)
    assert len(parts) > 3
    outcomes = log.add(parts[2], parts[0], parts[0], parts[2], *reversed(parts[3:]), parts[1])
    assert isinstance(outcomes[-1], DeltaApplied)
    assert log.add(parts[0]) == [Duplicate(parts[0].key)]


def test_an_entry_proposed_twice_takes_effect_once(log: Log) -> None:
    log.claim(1)
    assert log.claim(1) == [Duplicate(log.entries[0].key)]
    made = delta(1, component("a", "x"))
    log.commit(made)
    log.run(2, component("a", "x", seq=2))
    assert isinstance(log.commit(made)[-1], Duplicate)
    assert log.machine.components[ComponentId("a")].seq == 2


def test_a_duplicate_is_told_apart_even_when_its_key_is_forgotten(log: Log) -> None:
    made = delta(1, component("a", "x"))
    log.commit(made)
    for number in range(KEYS_REMEMBERED + 1):
        log.add(entries.router_attached(Fence(10 + number)))
    refusal(log.commit(made))
    assert log.machine.components[ComponentId("a")].seq == 1


def test_a_name_belongs_to_the_component_that_listed_it_last(log: Log) -> None:
    log.run(1, component("a", "x", "y"), component("b", "z"))
    log.run(2, component("c", "y", "z", seq=2))
    assert log.machine.names == {"x": "a", "y": "c", "z": "c"}
    assert log.machine.components[ComponentId("a")].names == ("x",)
    assert ComponentId("b") not in log.machine.components


def test_dropped_components_take_their_names_along(log: Log) -> None:
    log.run(1, component("a", "x"), component("b", "y"))
    log.claim(2)
    log.commit(delta(2, dropped=("a", "never there"), order=("y",)))
    assert log.machine.names == {"y": "b"}
    assert log.machine.order == ("y",)


def test_process_components_stay_without_names(log: Log) -> None:
    log.run(1, component("@environ"), component("a", "x"), component("nameless"))
    assert set(log.machine.components) == {"@environ", "a"}
    log.run(2, component("@environ", seq=2))
    assert log.machine.components[ComponentId("@environ")].seq == 2


def test_pins_are_those_of_the_last_delta_and_of_the_components(log: Log) -> None:
    thread = Pin("worker", "Thread", R1, Seq(1))
    socket = Pin("s", "socket", R1, Seq(1))
    log.claim(1)
    log.commit(delta(1, component("a", "s", pins=(socket,)), pins=(thread,)))
    assert log.machine.pins == (thread, socket)
    log.run(2)
    assert log.machine.pins == (socket,)


def test_the_full_delta_builds_the_same_table_elsewhere(log: Log) -> None:
    log.run(1, component("a", "x"), component("@cwd"))
    log.run(2, component("b", "y", seq=2))
    log.claim(3)
    log.commit(delta(3, order=("y", "x"), pins=(Pin("t", "Thread", R1, Seq(3)),)))
    full = log.machine.full_delta()
    other = Log()
    other.commit(full)
    assert other.machine.full_delta() == full
    assert (full.seq, full.execution_count, full.order) == (3, 3, ("y", "x"))
    assert log.machine.state_bytes == 30


def test_a_delta_that_lies_about_itself_is_refused(log: Log) -> None:
    (honest,) = split_delta(delta(1, component("a", "x")))
    (other,) = split_delta(delta(2, component("a", "x")))
    lying = entries.StateDelta("k", honest.seq, honest.replica, honest.fence, 0, 1, other.piece)
    assert "speaks of execution 2" in refusal(log.add(lying))
    broken = entries.StateDelta("k2", honest.seq, honest.replica, honest.fence, 0, 1, b"\xc1")
    assert "cannot be read" in refusal(log.add(broken))
    for part, parts in ((0, 0), (1, 1), (-1, 2), (0, 10**6)):
        odd = entries.StateDelta("k3", honest.seq, honest.replica, honest.fence, part, parts, b"")
        assert "not a part" in refusal(log.add(odd))


def test_incomplete_deltas_are_held_within_a_limit(log: Log) -> None:
    for number in range(HELD_DELTAS_MAX + 5):
        log.add(entries.StateDelta(f"k{number}", Seq(1), R1, Fence(1), 0, 2, b"half"))


def test_bytes_that_are_no_entry_are_refused(log: Log) -> None:
    assert "cannot be read" in refusal(log.machine.apply_bytes(1, b"\xc1"))
    good = encode_entry(entries.router_attached(Fence(1)))
    assert isinstance(log.machine.apply_bytes(2, good)[-1], FenceRaised)
    assert log.machine.index == 2


# -- elections and members --


def test_the_log_elects(log: Log) -> None:
    for number, replica in enumerate((R1, R2, R3)):
        joined = entries.replica_joined(replica, HostName(f"h{number}"), f"127.0.0.1:{20000 + number}")
        assert isinstance(log.add(joined)[-1], MemberJoined)
    log.add(entries.yield_(Seq(1), R1, Fence(1)))
    decided = log.add(entries.lead(Seq(1), R3, Fence(1)))
    assert decided == [ElectionDecided("lead:1:1:r3", Seq(1), Fence(1), R3)]
    refusal(log.add(entries.lead(Seq(1), R2, Fence(1))))
    log.add(entries.vote(Seq(1), R1, Fence(1), R3))
    counted = log.add(entries.vote(Seq(1), R3, Fence(1), R3))
    assert counted == [VoteCounted("vote:1:1:r3", Seq(1), R3, R3, True)]


def test_half_of_the_votes_confirm_nobody(log: Log) -> None:
    for number, replica in enumerate((R1, R2)):
        log.add(entries.replica_joined(replica, HostName(f"h{number}"), f"127.0.0.1:{20000 + number}"))
    log.add(entries.lead(Seq(1), R1, Fence(1)))
    for replica, confirmed in ((R1, False), (R2, True)):
        (counted,) = log.add(entries.vote(Seq(1), replica, Fence(1), R1))
        assert isinstance(counted, VoteCounted)
        assert counted.confirmed is confirmed


def test_a_newer_fence_elects_anew_and_an_older_one_not_at_all(log: Log) -> None:
    log.add(entries.lead(Seq(1), R1, Fence(1)))
    assert log.add(entries.lead(Seq(1), R2, Fence(2)))[-1] == ElectionDecided(
        "lead:1:2:r2", Seq(1), Fence(2), R2
    )
    assert "runs under fence 2" in refusal(log.add(entries.vote(Seq(1), R3, Fence(1), R1)))
    log.claim(1, R2, fence=2)
    assert "is over" in refusal(log.add(entries.lead(Seq(1), R3, Fence(1))))


def test_members_come_and_go_and_names_are_not_reused_while_remembered(log: Log) -> None:
    joined = entries.replica_joined(R1, HostName("h"), "127.0.0.1:20000")
    log.add(joined)
    assert log.add(joined) == [Duplicate(joined.key)]
    assert log.add(entries.replica_left(R1)) == [MemberLeft("left:r1", R1)]
    assert log.add(joined) == [Duplicate(joined.key)]
    assert not log.machine.members


# -- snapshots --


def test_a_snapshot_holds_everything_half_a_delta_included(log: Log) -> None:
    log.run(1, component("a", "x", "y"))
    log.add(entries.lead(Seq(2), R1, Fence(2)))
    log.claim(2)
    *first, last = split_delta(delta(2, component("b", "y", seq=2)), 40)
    log.add(*first)
    other = KernelMachine()
    other.restore(log.machine.snapshot())
    other.check_invariants()
    assert other.apply(other.index + 1, last) == log.add(last)
    assert other.snapshot() == log.machine.snapshot()
    assert other.names == log.machine.names


def test_a_log_replayed_over_a_snapshot_changes_nothing(log: Log) -> None:
    log.run(1, component("a", "x"))
    before = log.machine.snapshot()
    for index, entry in enumerate(log.entries, 1):
        assert log.machine.apply(index, entry) == [Duplicate(entry.key)]
    assert log.machine.snapshot() == before


def test_a_broken_or_foreign_snapshot_is_refused_and_the_state_stays(log: Log) -> None:
    log.run(1, component("a", "x"))
    before = log.machine.snapshot()
    with pytest.raises(SnapshotUnreadable):
        log.machine.restore(b"\xc1")
    with pytest.raises(SnapshotUnreadable, match="same release"):
        log.machine.restore(before.replace(b"\xa7version\x03", b"\xa7version\x63"))
    assert log.machine.snapshot() == before


def test_a_member_that_leaves_before_its_joining_comes_stays_out(log: Log) -> None:
    assert log.add(entries.replica_left(R1)) == [MemberLeft("left:r1", R1)]
    (refused,) = log.add(entries.replica_joined(R1, HostName("h1"), "127.0.0.1:1"))
    assert isinstance(refused, Refused)
    assert R1 in log.machine.departed
