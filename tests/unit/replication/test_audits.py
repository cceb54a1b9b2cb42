"""What audits add to the last execution: taken in order from its executor, until another replica goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    Mark,
    Payload,
    ReplicaId,
    Seq,
    Unaudited,
)
from replkernel.replication import entries
from replkernel.replication.entries import Entry, split_delta
from replkernel.replication.machine import KernelMachine
from replkernel.replication.outcomes import DeltaApplied, Duplicate, Outcome, Refused

R1, R2 = ReplicaId("r1"), ReplicaId("r2")
BIG = (Unaudited("big", 1, R1),)


def delta(
    seq: int,
    audit: int = 0,
    *,
    value: bytes = b"",
    unaudited: tuple[Unaudited, ...] = (),
    replica: ReplicaId = R1,
) -> Delta:
    component = ComponentRecord(ComponentId("big"), ("big",), Seq(seq), Payload(head=value), Digest("d"), 1)
    components = (component,) if value else ()
    return Delta(
        Seq(seq), Fence(seq), replica, seq, components, order=("big",), audit=audit, unaudited=unaudited
    )


class Log:
    """A machine and the entries that it has been given."""

    def __init__(self) -> None:
        self.machine = KernelMachine()
        self.index = 0

    def take(self, *log: Entry) -> Outcome:
        for entry in log:
            self.index += 1
            outcome = self.machine.apply(self.index, entry)[-1]
            self.machine.check_invariants()
        return outcome

    def add(self, made: Delta, part_bytes: int = 10_000) -> Outcome:
        return self.take(*split_delta(made, part_bytes))


@pytest.fixture
def log() -> Log:
    made = Log()
    made.add(delta(1, value=b"one"))
    made.add(delta(2, unaudited=BIG))
    return made


def test_an_unaudited_variable_is_kept_with_the_state_and_in_snapshots(log: Log) -> None:
    assert log.machine.unaudited == BIG
    other = KernelMachine()
    other.restore(log.machine.snapshot())
    assert (other.unaudited, other.mark) == (BIG, Mark(Seq(2)))


def test_an_audit_completes_its_execution(log: Log) -> None:
    assert isinstance(log.add(delta(2, 1, value=b"two" * 40), part_bytes=48), DeltaApplied)
    assert (log.machine.unaudited, log.machine.mark) == ((), Mark(Seq(2), 1))
    assert log.machine.components[ComponentId("big")].payload.head == b"two" * 40
    assert log.machine.full_delta().mark == Mark(Seq(2), 1)


def test_an_audit_is_applied_once_and_in_order(log: Log) -> None:
    log.add(delta(2, 2, value=b"two"))
    assert isinstance(log.add(delta(2, 2, value=b"two")), Duplicate)
    assert isinstance(log.add(delta(2, 1, value=b"old")), Refused)
    assert isinstance(log.add(delta(1, 1, value=b"old")), Refused)
    assert log.machine.components[ComponentId("big")].payload.head == b"two"


def test_an_audit_may_come_after_the_next_claim_of_its_executor(log: Log) -> None:
    log.take(entries.execution_started(Seq(3), R1, Fence(3)))
    assert isinstance(log.add(delta(2, 1, value=b"two")), DeltaApplied)
    assert isinstance(log.add(delta(3)), DeltaApplied)


def test_an_audit_comes_too_late_once_another_replica_goes_on(log: Log) -> None:
    log.take(entries.execution_started(Seq(3), R2, Fence(3)))
    assert isinstance(log.add(delta(2, 1, value=b"two")), Refused)
    assert log.machine.components[ComponentId("big")].payload.head == b"one"
    assert log.machine.unaudited == BIG


def test_an_audit_comes_too_late_once_an_election_is_held(log: Log) -> None:
    log.take(entries.lead(Seq(3), R2, Fence(3)))
    assert isinstance(log.add(delta(2, 1, value=b"two")), Refused)


def test_nobody_audits_for_another(log: Log) -> None:
    made = delta(2, 1, value=b"two", replica=R2)
    assert isinstance(log.add(made), Refused)


def test_an_audit_of_what_was_never_applied_is_refused() -> None:
    log = Log()
    log.take(entries.execution_started(Seq(1), R1, Fence(1)))
    assert isinstance(log.add(delta(1, 1, value=b"one")), Refused)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("cell"), st.sampled_from([R1, R2]), st.booleans()),
        st.tuples(st.just("audit"), st.sampled_from([R1, R2]), st.booleans()),
        st.tuples(st.just("claim"), st.sampled_from([R1, R2]), st.booleans()),
        st.tuples(st.just("elect"), st.sampled_from([R1, R2]), st.booleans()),
    ),
    max_size=20,
)


@given(steps)
def test_marks_only_grow_and_the_state_is_what_the_last_delta_says(
    told: list[tuple[str, ReplicaId, bool]],
) -> None:
    log, seq, audit = Log(), 0, 0
    last: Delta | None = None
    for what, replica, owing in told:
        before = log.machine.mark
        unaudited = BIG if owing else ()
        if what == "claim":
            log.take(entries.execution_started(Seq(seq + 1), replica, Fence(seq + 1)))
        elif what == "elect":
            log.take(entries.lead(Seq(seq + 1), replica, Fence(seq + 1)))
        else:
            seq, audit = (seq + 1, 0) if what == "cell" else (seq, audit + 1)
            made = delta(seq, audit, value=b"%d.%d" % (seq, audit), unaudited=unaudited, replica=replica)
            if seq and isinstance(log.add(made), DeltaApplied):
                assert made.mark > before
                last = made
        assert log.machine.mark >= before
    if last is not None:
        assert log.machine.mark == last.mark
        assert log.machine.unaudited == last.unaudited
        assert log.machine.components[ComponentId("big")] == last.components[0]
