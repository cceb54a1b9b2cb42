"""What binds a notebook to a replica is told with the cell that made it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from replkernel.kernel.bindings import Bindings
from replkernel.records import Delta, Fence, Pin, ReplicaId, Seq

HERE = ReplicaId("r1")


def pin(name: str, seq: int, replica: ReplicaId = HERE) -> Pin:
    """Return a pin of the process as it is found after an execution."""
    return Pin(name, "threading.Thread", replica, Seq(seq))


def noted(*pins: Pin) -> Bindings:
    """Return the bindings of a replica that has noted a delta with these pins."""
    state: Any = SimpleNamespace(replica=HERE, unfaithful=())
    bindings = Bindings(state)
    bindings.note(Delta(Seq(9), Fence(1), HERE, 4, pins=pins))
    return bindings


def test_a_pin_of_the_process_keeps_the_cell_after_which_it_was_found_first() -> None:
    bindings = noted()
    first = bindings.since([pin("thread a", 9)], 4)
    bindings.note(Delta(Seq(9), Fence(1), HERE, 4, pins=first))
    later = bindings.since([pin("thread a", 12), pin("thread b", 12)], 5)
    assert [(found.name, found.seq, found.shown_cell) for found in later] == [
        ("thread a", 12, 4),
        ("thread b", 12, 5),
    ]


def test_a_pin_of_another_replica_says_nothing_of_this_one() -> None:
    bindings = noted(*noted().since([pin("thread a", 9, ReplicaId("r2"))], 4))
    assert [found.shown_cell for found in bindings.since([pin("thread a", 12)], 5)] == [5]
