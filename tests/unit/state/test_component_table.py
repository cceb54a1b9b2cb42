"""The replicated table: who owns which name after a row of deltas."""

from __future__ import annotations

import msgspec

from replkernel.records import ComponentId, ComponentRecord, Delta, Digest, Fence, Payload, ReplicaId, Seq
from replkernel.state.component_table import ComponentTable

B = ComponentId("b")


def record(cid: str, *names: str, size: int = 1) -> ComponentRecord:
    return ComponentRecord(ComponentId(cid), names, Seq(1), Payload(head=b"x"), Digest(""), size)


def delta(
    *records: ComponentRecord, dropped: tuple[str, ...] = (), order: tuple[str, ...] | None = None
) -> Delta:
    gone = tuple(ComponentId(cid) for cid in dropped)
    return Delta(Seq(1), Fence(1), ReplicaId("r1"), 1, records, gone, order=order)


def test_foreign_components_wait_and_own_ones_do_not() -> None:
    table = ComponentTable()
    table.apply(delta(record("a", "a")), own=False)
    table.apply(delta(record("b", "b")), own=True)
    assert [waiting.cid for waiting in table.waiting()] == ["a"]
    assert table.records[ComponentId("b")].payload.head is None


def test_a_taken_name_leaves_its_component() -> None:
    table = ComponentTable()
    table.apply(delta(record("a", "x", "y")), own=False)
    table.apply(delta(record("b", "y")), own=False)
    assert table.records[ComponentId("a")].names == ("x",)
    assert table.owners == {"x": "a", "y": "b"}
    assert table.take_unbound() == []


def test_a_component_without_names_is_gone() -> None:
    table = ComponentTable()
    table.apply(delta(record("a", "x")), own=False)
    table.apply(delta(record("b", "x")), own=False)
    assert list(table.records) == ["b"]
    assert [waiting.cid for waiting in table.waiting()] == ["b"]


def test_dropped_names_are_unbound_once() -> None:
    table = ComponentTable()
    table.apply(delta(record("a", "x", "y"), record("b", "z")), own=False)
    table.apply(delta(record("a", "x"), dropped=("b",)), own=False)
    assert sorted(table.take_unbound()) == ["y", "z"]
    assert table.take_unbound() == []


def test_a_dropped_name_that_comes_back_stays() -> None:
    table = ComponentTable()
    table.apply(delta(record("a", "x")), own=False)
    table.apply(delta(dropped=("a",)), own=False)
    table.apply(delta(record("b", "x")), own=False)
    assert table.take_unbound() == []


def test_what_was_dropped_before_all_state_was_told_anew_is_gone() -> None:
    table = ComponentTable()
    table.apply(delta(record("a", "x"), record("b", "y")), own=False)
    anew = msgspec.structs.replace(delta(record("c", "z"), record("b", "y")), only=(B, ComponentId("c")))
    table.apply(anew, own=False)
    assert sorted(table.records) == ["b", "c"]
    assert table.take_unbound() == ["x"]


def test_process_state_has_no_names() -> None:
    table = ComponentTable()
    table.apply(delta(record("@environ", size=7)), own=False)
    assert table.pending_bytes == table.state_bytes == 7
    table.settle(ComponentId("@environ"))
    assert table.pending_bytes == 0
    assert table.state_bytes == 7
