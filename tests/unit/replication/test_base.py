"""What a new group starts from: the state of an older one, without what was that group's own."""

from __future__ import annotations

import pytest

from replkernel.records import Fence, HostName, Pin, Seq
from replkernel.replication.base import base_of, with_deltas
from replkernel.replication.entries import execution_started, lead, replica_joined, split_delta
from replkernel.replication.machine import KernelMachine
from replkernel.replication.outcomes import ExecutionClaimed, Refused
from replkernel.replication.snapshot import SnapshotUnreadable
from tests.unit.replication.test_machine import R1, R2, component, delta


def machine() -> KernelMachine:
    """Return a state with a member, two applied executions, an open one, an election and a pinned thread."""
    made = KernelMachine()
    entries = [replica_joined(R1, HostName("a"), "a:1")]
    for seq, name in ((1, "x"), (2, "y")):
        entries.append(execution_started(Seq(seq), R1, Fence(seq)))
        pin = Pin("t", "Thread", R1, Seq(seq))
        entries += split_delta(delta(seq, component(name, name, seq=seq), order=("x", "y"), pins=(pin,)))
    entries.append(execution_started(Seq(3), R1, Fence(3)))
    entries.append(lead(Seq(4), R1, Fence(4)))
    for index, entry in enumerate(entries, start=1):
        made.apply(index, entry)
    return made


def test_the_table_and_the_numbers_go_on_and_the_old_group_does_not() -> None:
    old = machine()
    new = KernelMachine()
    new.restore(base_of(old.snapshot()))
    new.check_invariants()
    assert new.components == old.components
    assert new.order == old.order
    assert (new.last_seq, new.newest_seq, new.fence) == (old.last_seq, Seq(3), old.fence)
    assert new.execution_count == old.execution_count
    assert new.index == 0
    assert not new.members
    assert not new.open_executions()
    assert new.pins == (), "a thread of a process that is gone pins nobody"


def test_the_same_snapshot_gives_the_same_bytes() -> None:
    assert base_of(machine().snapshot()) == base_of(machine().snapshot())


def test_an_entry_that_the_old_group_left_open_cannot_come_late() -> None:
    new = KernelMachine()
    new.restore(base_of(machine().snapshot()))
    late = new.apply(1, split_delta(delta(3, component("z", "z", seq=3), fence=3))[0])
    assert isinstance(late[-1], Refused)
    stale = new.apply(2, execution_started(Seq(9), R2, Fence(2)))
    assert isinstance(stale[-1], Refused), "an older fence"
    fresh = new.apply(3, execution_started(Seq(4), R2, Fence(4)))
    assert isinstance(fresh[-1], ExecutionClaimed)


def test_a_survivors_deltas_found_the_next_group() -> None:
    old = machine()
    pending = [delta(3, component("z", "z", seq=3), fence=3), delta(4, component("w", "w", seq=4), fence=4)]
    new = KernelMachine()
    new.restore(with_deltas(old.snapshot(), pending))
    new.check_invariants()
    assert set(new.names) == {"x", "y", "z", "w"}
    assert new.last_seq == 4


def test_nonsense_is_refused() -> None:
    with pytest.raises(SnapshotUnreadable):
        base_of(b"nonsense")
