"""The replicated state that an earlier release wrote: this one goes on from it, and keeps a history then.

`snapshots/2.msgpack` was written by the last release that had none: two replicas, three cells, and a
variable of the last one that was still to be checked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    Mark,
    Note,
    Payload,
    ReplicaId,
    Seq,
)
from replkernel.replication.base import base_of
from replkernel.replication.entries import split_delta
from replkernel.replication.machine import KernelMachine
from replkernel.replication.snapshot import SNAPSHOT_VERSION, decode_state

BEFORE_HISTORY = Path(__file__).with_name("snapshots") / "2.msgpack"
R1 = ReplicaId("r1")


@pytest.fixture
def machine() -> KernelMachine:
    made = KernelMachine()
    made.restore(BEFORE_HISTORY.read_bytes())
    return made


def heads(machine: KernelMachine) -> dict[str, bytes | None]:
    return {cid: one.payload.head for cid, one in machine.components.items() if not cid.startswith("@")}


def run(machine: KernelMachine, seq: int, value: bytes, audit: int = 0) -> None:
    one = ComponentRecord(ComponentId("a"), ("a",), Seq(seq), Payload(head=value), Digest("d"), len(value))
    delta = Delta(Seq(seq), Fence(1), R1, seq, (one,), audit=audit, note=Note(at=float(seq)))
    for entry in split_delta(delta):
        machine.apply(machine.index + 1, entry)
    machine.check_invariants()


def test_a_snapshot_is_read_as_it_was_written(machine: KernelMachine) -> None:
    machine.check_invariants()
    assert heads(machine) == {"a": b"three", "large": b"head", "door": b"lost"}
    assert (machine.mark, machine.whole_mark) == (Mark(Seq(3)), Mark(Seq(2)))
    assert set(machine.members) == {"r1", "r2"}
    assert [pin.name for pin in machine.pins] == ["door"]
    assert machine.timeline().points == ()
    assert decode_state(machine.snapshot()).version == SNAPSHOT_VERSION


def test_the_history_begins_with_the_next_cells(machine: KernelMachine) -> None:
    run(machine, 3, b"three", audit=1)
    run(machine, 4, b"four")
    first, second = machine.timeline().points
    assert (first.mark, second.mark) == (Mark(Seq(3), 1), Mark(Seq(4)))
    table = machine.table_at(first.mark)
    assert table is not None
    assert table.components[ComponentId("a")].payload.head == b"three"
    again = KernelMachine()
    again.restore(machine.snapshot())
    assert again.timeline() == machine.timeline()


def test_a_new_group_is_founded_from_its_whole_point(machine: KernelMachine) -> None:
    founded = KernelMachine()
    founded.restore(base_of(BEFORE_HISTORY.read_bytes()))
    assert heads(founded) == {"a": b"two", "large": b"head", "door": b"lost"}
    run(founded, 4, b"four")
    assert [point.number for point in founded.timeline().points] == [4]
