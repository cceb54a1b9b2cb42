"""The newest whole point: the state is always that after one execution, whoever goes on from it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
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
from replkernel.replication.base import base_of, with_deltas
from replkernel.replication.components import TableState
from replkernel.replication.entries import execution_started, split_delta
from replkernel.replication.machine import KernelMachine
from replkernel.replication.outcomes import (
    DeltaApplied,
    ExecutionSuperseded,
    FellBack,
    Outcome,
    Refused,
)
from tests.support.examples import examples

R1, R2 = ReplicaId("r1"), ReplicaId("r2")
OWED = (Unaudited("model", 1, R1),)
NO_ROOM = Unaudited("model", 1, R1, held=True)


def component(cid: str, names: str, value: bytes, seq: int = 1) -> ComponentRecord:
    bound = tuple(names.split())
    return ComponentRecord(ComponentId(cid), bound, Seq(seq), Payload(head=value), Digest("d"), 1)


def delta(seq: int, *components: ComponentRecord, replica: ReplicaId = R1, **more: Any) -> Delta:
    return Delta(Seq(seq), Fence(seq), replica, seq, components, **more)


class Log:
    """A machine, what it has been given, and what that came to."""

    def __init__(self) -> None:
        self.machine = KernelMachine()
        self.index = 0

    def add(self, made: Delta) -> list[Outcome]:
        """Apply a delta."""
        outcomes: list[Outcome] = []
        for entry in split_delta(made):
            self.index += 1
            outcomes = self.machine.apply(self.index, entry)
            self.machine.check_invariants()
        return outcomes

    def step(self, made: Delta) -> Delta | None:
        """Apply a delta that must count; return the step to the whole point that it makes."""
        applied = self.add(made)[-1]
        assert isinstance(applied, DeltaApplied), applied
        return applied.step

    def claim(
        self, seq: int, replica: ReplicaId = R2, fence: int = 0, *, afresh: bool = True
    ) -> list[Outcome]:
        """Have a replica claim an execution."""
        self.index += 1
        entry = execution_started(Seq(seq), replica, Fence(fence or seq), afresh=afresh)
        outcomes = self.machine.apply(self.index, entry)
        self.machine.check_invariants()
        return outcomes

    def shown(self) -> dict[str, bytes | None]:
        """Return what each name is at the newest whole point."""
        whole = self.machine.full_delta()
        return {name: one.payload.head for one in whole.components for name in one.names}


def training() -> Log:
    """A notebook whose model was whole after cell 1, and has been left to an audit since."""
    log = Log()
    first = component("m", "model", b"0"), component("l", "losses", b"")
    log.step(delta(1, *first, order=("model", "losses")))
    log.step(delta(2, component("l", "losses", b"1", 2), unaudited=OWED))
    log.step(
        delta(3, component("l", "losses", b"12", 3), component("n", "new", b"n", 3), unaudited=OWED,
              order=("model", "losses", "new"))
    )  # fmt: skip
    return log


def test_a_new_process_gets_the_state_after_one_cell() -> None:
    log = training()
    assert log.shown() == {"model": b"0", "losses": b""}
    whole = log.machine.full_delta()
    assert (whole.mark, whole.execution_count, whole.order) == (Mark(Seq(1)), 1, ("model", "losses"))
    assert (log.machine.mark, log.machine.whole_mark) == (Mark(Seq(3)), Mark(Seq(1)))
    assert log.machine.execution_count == 3


def test_an_audit_moves_the_point_to_its_execution_with_one_step_for_all_cells() -> None:
    log = training()
    step = log.step(delta(3, component("m", "model", b"2", 3), audit=1))
    assert step is not None
    assert {one.cid: one.payload.head for one in step.components} == {"l": b"12", "n": b"n", "m": b"2"}
    assert (step.mark, step.order, step.dropped) == (Mark(Seq(3), 1), ("model", "losses", "new"), ())
    assert log.shown() == {"model": b"2", "losses": b"12", "new": b"n"}
    assert log.machine.whole_mark == Mark(Seq(3), 1)


def test_who_goes_on_afresh_drops_what_is_not_whole() -> None:
    log = training()
    fell_back = log.claim(4)[0]
    assert fell_back == FellBack(
        "afresh:4:4:r2", Seq(4), R2, Mark(Seq(1)), 1, R1, (Seq(2), Seq(3)), 3
    )  # fmt: skip
    assert log.shown() == {"model": b"0", "losses": b""}
    assert log.machine.components.keys() == {"m", "l"}
    assert log.machine.order == ("model", "losses")
    assert log.machine.is_dropped(Seq(3))
    assert isinstance(log.add(delta(3, component("m", "model", b"2"), audit=1))[-1], Refused)
    assert log.step(delta(4, component("l", "losses", b"1"), replica=R2)) is not None
    assert log.shown() == {"model": b"0", "losses": b"1"}


def test_an_execution_of_the_lost_process_is_overruled_even_on_its_own_replica() -> None:
    log = training()
    log.claim(4, R1, afresh=False)
    outcomes = log.claim(5, R1)
    assert ExecutionSuperseded("afresh:5:5:r1", Seq(4), R1) in outcomes
    assert isinstance(log.add(delta(4, component("m", "model", b"3")))[-1], Refused)


def test_a_claim_that_is_refused_drops_nothing() -> None:
    log = training()
    (refused,) = log.claim(4, R2, fence=1)
    assert isinstance(refused, Refused)
    assert log.machine.mark == Mark(Seq(3))


def test_numbers_go_on_after_what_was_dropped() -> None:
    log = training()
    log.claim(4)
    assert isinstance(log.claim(3, R1, fence=9, afresh=False)[-1], Refused)
    assert log.machine.newest_seq == 4


def test_a_variable_without_room_holds_the_point_back_unless_never_stored() -> None:
    log = training()
    assert log.step(delta(4, unaudited=(NO_ROOM,))) is None
    assert log.machine.whole_mark == Mark(Seq(1))
    new = msgspec.structs.replace(NO_ROOM, name="huge", cell=0)
    assert log.step(delta(5, component("m", "model", b"4"), unaudited=(new,))) is not None
    assert log.machine.full_delta().unaudited == (new,)


def test_components_that_came_and_went_meanwhile_are_forgotten() -> None:
    log = training()
    for seq in range(4, 200):
        came = component(f"c{seq}", f"x{seq}", b"x")
        log.step(delta(seq, came, dropped=(ComponentId(f"c{seq - 1}"),), unaudited=OWED))
    point = msgspec.msgpack.decode(log.machine.snapshot())["table"]["point"]
    assert len(point["components"]) < 5


def test_all_blobs_of_the_point_stay_named() -> None:
    log = training()
    log.step(delta(4, dropped=(ComponentId("m"),), unaudited=(Unaudited("losses", 3, R1),)))
    heads = [one.payload.head for one in log.machine.named()]
    assert b"0" in heads
    assert b"12" in heads


def test_a_snapshot_carries_the_way_back() -> None:
    log = training()
    other = KernelMachine()
    other.restore(log.machine.snapshot())
    other.apply(log.index + 1, execution_started(Seq(4), R2, Fence(4), afresh=True))
    log.claim(4)
    assert other.snapshot() == log.machine.snapshot()


def test_a_snapshot_of_before_there_were_points_is_taken_for_whole() -> None:
    log = training()
    state = msgspec.msgpack.decode(log.machine.snapshot())
    state["version"] = 1
    del state["table"]["point"]
    state["ledger"].pop("last_audit", None)
    old = KernelMachine()
    old.restore(msgspec.msgpack.encode(state))
    old.check_invariants()
    assert old.whole_mark == Mark(Seq(3))
    assert old.full_delta().unaudited == OWED


def test_a_new_group_starts_from_the_whole_point() -> None:
    log = training()
    based = KernelMachine()
    based.restore(base_of(log.machine.snapshot()))
    based.check_invariants()
    assert (based.mark, based.execution_count, based.unaudited) == (Mark(Seq(1)), 1, ())
    assert based.newest_seq == 3
    audit = delta(3, component("m", "model", b"2", 3), audit=1)
    based.restore(base_of(with_deltas(log.machine.snapshot(), [audit])))
    assert based.mark == Mark(Seq(3), 1)


# -- the law ----------------------------------------------------------------------------------------------

CIDS = ["a", "b", "c"]
NAMES = "u v w x".split()


def value(table: TableState) -> Any:
    """Return what a table says, in whatever order."""
    components = {cid: (one.names, one.payload.head) for cid, one in table.components.items()}
    return components, table.order, table.execution_count, table.pins


changes = st.tuples(
    st.sampled_from(["cell", "audit", "lost"]),
    st.lists(
        st.tuples(st.sampled_from(CIDS), st.lists(st.sampled_from(NAMES), max_size=2, unique=True)),
        max_size=2,
        unique_by=lambda made: made[0],
    ),
    st.lists(st.sampled_from(CIDS), max_size=1),
    st.booleans(),
)


@given(st.lists(changes, max_size=25))
@settings(max_examples=examples(300), deadline=None)
def test_the_state_is_always_that_after_an_execution_at_or_after_the_last_durable_one(
    told: list[tuple[str, list[tuple[str, list[str]]], list[str], bool]],
) -> None:
    """A standby that takes every step has the same state as the machine at its whole point."""
    log, standby, replica = Log(), KernelMachine(), R1
    seq, audit, steps, at = 0, 0, 0, {Mark(Seq(0)): value(TableState())}
    for what, made, dropped, owing in told:
        if what == "lost":
            replica = R2 if replica == R1 else R1
            seq, audit = seq + 1, 0
            before = log.machine.whole_mark
            fell_back = log.claim(seq, replica)[0]
            assert isinstance(fell_back, FellBack)
            assert fell_back.mark == log.machine.mark == log.machine.whole_mark == before
            continue
        seq, audit = (seq + 1, 0) if what == "cell" or not seq else (seq, audit + 1)
        parts = [component(cid, " ".join(names), b"%d.%d" % (seq, audit)) for cid, names in made]
        order = tuple(sorted({name for _, names in made for name in names})) or None
        gone = tuple(map(ComponentId, dropped))
        after = delta(seq, *parts, dropped=gone, order=order, audit=audit, replica=replica,
                      unaudited=OWED if owing else ())  # fmt: skip
        outcome = log.add(after)[-1]
        if isinstance(outcome, DeltaApplied):
            at[log.machine.mark] = value(log.machine._state.table)
            if outcome.step is not None:
                steps += 1
                taken = msgspec.structs.replace(
                    outcome.step, seq=Seq(steps), audit=0, fence=Fence(steps), replica=R1
                )
                for index, entry in enumerate(split_delta(taken)):
                    standby.apply(standby.index + index + 1, entry)
        whole = log.machine._table.whole()
        assert value(whole) == at[log.machine.whole_mark]
        assert value(standby._state.table)[:2] == value(whole)[:2]
