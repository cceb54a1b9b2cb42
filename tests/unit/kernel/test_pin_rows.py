"""The table of what binds a notebook: one row for each thing, by the name that it has now, lost or not."""

from __future__ import annotations

import csv
from typing import Any

import msgspec
import pytest

from replkernel.kernel.pin_rows import LOST_HERE, Doubt, Row, pin_rows, pins_now
from replkernel.records import Pin, ReplicaId, Seq
from replkernel.state.tombstone import HOLDS_STUCK, loss_of, lost

HERE, THERE = ReplicaId("r1"), ReplicaId("r2")


@pytest.fixture(autouse=True)
def _a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replkernel.state.tombstone._STOOD", {})


def pin(name: str, path: str = "", replica: ReplicaId = HERE, seq: int = 3) -> Pin:
    return Pin(name, "generator", replica, Seq(seq), path, "It is in flight.", seq)


def tombstone(of: Pin) -> Any:
    return lost(of.name, of.type_name, of.replica, of.seq, of.cell, of.path, of.reason)


def no_name(name: str) -> bool:
    return False


def rows(*held: Pin, doubts: tuple[Doubt, ...] = (), **namespace: Any) -> list[Row]:
    tombstones = list(namespace.pop("tombstones", ()))
    awaited = namespace.pop("awaited", ())
    lost = {id(one): loss_of(one) for one in tombstones}
    return pin_rows(held, doubts, HERE, namespace, lost, lambda name: name in awaited)


def test_a_pin_that_lives_here_is_told_as_it_was_captured() -> None:
    assert rows(pin("c", "c.s"), c=1) == [Row("c.s", "generator", "r1", "3", "It is in flight.")]


def test_a_pin_of_another_replica_is_lost_here() -> None:
    (row,) = rows(pin("g", replica=THERE))
    assert row.why == LOST_HERE + "It is in flight."


def test_a_pin_of_an_earlier_process_is_lost_wherever_it_lies() -> None:
    plain, deep = pin("g"), pin("c", "c['s']")
    one, two = tombstone(plain), tombstone(deep)
    found = rows(plain, deep, g=one, c={"s": two}, tombstones=[one, two])
    assert [(row.variable, row.why[: len(LOST_HERE)]) for row in found] == [
        ("g", LOST_HERE),
        ("c['s']", LOST_HERE),
    ]


def test_a_loss_goes_by_the_name_that_it_has_now() -> None:
    of = pin("g")
    one = tombstone(of)
    assert [row.variable for row in rows(of, Out=[one], kept=[0, one], tombstones=[one])] == ["kept[1]"]
    assert [row.variable for row in rows(of, tombstones=[one])] == ["g"]


def test_one_thing_has_one_row() -> None:
    of = pin("x", replica=THERE)
    one = tombstone(of)
    doubts = (Doubt(HERE, of), Doubt(ReplicaId("r3"), of))
    assert len(rows(of, doubts=doubts, x=one, tombstones=[one])) == 1
    (row,) = rows(doubts=doubts, x=one, tombstones=[one])
    assert row.why == LOST_HERE + "It is in flight."
    (row,) = rows(doubts=doubts[1:])
    assert row.why == "On replica r3: It is in flight."


def test_a_value_that_was_replaced_is_no_loss() -> None:
    of = pin("c", replica=THERE)
    one = tombstone(of)
    assert rows(of, c=1, tombstones=[one]) == []  # A traceback holds it.
    assert [row.variable for row in rows(of, c=1, Out=[one], tombstones=[one])] == ["Out[0]"]
    assert [row.variable for row in rows(of, c=one, tombstones=[one])] == ["c"]
    del one
    assert rows(of, c=1) == []
    before = pin("c", seq=4)
    tombstone(before)
    assert rows(before, c=1) == []


def test_a_value_that_was_replaced_deep_in_a_variable_is_no_loss() -> None:
    of = pin("c", "c['s']", replica=THERE)
    one = tombstone(of)
    assert rows(of, c={"s": 1}, tombstones=[one]) == []
    assert rows(of, c={}, tombstones=[one]) == []
    assert len(rows(of, c={"s": one}, tombstones=[one])) == 1
    unsaid, within = pin("c", "c[…].s", replica=THERE), pin("c", "c.…", replica=THERE)
    tombstone(unsaid), tombstone(within)
    assert len(rows(unsaid, c={(1, 2): 3})) == 1
    assert [row.variable for row in rows(within, c=csv.reader([]))] == ["c.…"]


def test_a_deleted_variable_is_no_loss_and_one_that_waits_is_one_still() -> None:
    of = pin("g")
    tombstone(of)
    assert rows(of) == []
    (row,) = rows(of, awaited=("g",))
    assert (row.variable, row.why[: len(LOST_HERE)]) == ("g", LOST_HERE)
    (row,) = rows(pin("process", replica=THERE))
    assert row.variable == "process"


def test_a_lost_part_of_an_object_that_is_there_has_a_row() -> None:
    graph = Pin("loss", "tensor with an autograd graph", THERE, Seq(5), "", "Its values were copied.", 5)
    assert [row.variable for row in rows(graph, loss=1.5)] == ["loss"]


def test_a_living_object_binds_whatever_its_variable_has_now() -> None:
    """The capture after the cell tells whether it still does."""
    assert len(rows(pin("c"), c=1)) == 1


def test_two_reasons_of_one_name_have_two_rows() -> None:
    one = pin("process: open files and rare settings")
    other = Pin(one.name, one.type_name, one.replica, one.seq, reason="A function traces.", cell=one.cell)
    assert [row.why for row in rows(one, other, one)] == ["It is in flight.", "A function traces."]


def test_a_holder_and_its_part_with_a_row_are_told_together() -> None:
    cause = "Its class is mapped."
    named = msgspec.structs.replace(pin("Base"), reason=cause)
    holding = [
        msgspec.structs.replace(pin("Run", f"Run.x[{number}]"), reason=f"{HOLDS_STUCK} {cause}")
        for number in range(4)
    ]
    assert [row.variable for row in rows(named, *holding, Base=1, Run=2)] == ["Base", "and 4 more"]
    assert len(rows(named, *holding[1:], Base=1, Run=2)) == 4
    assert len(rows(*holding, Run=2)) == 4, "nothing else says what it is"


def test_a_pin_that_is_no_variable_is_told_in_words() -> None:
    assert [row.variable for row in rows(pin("library json:limits"))] == ["json.limits"]


def test_the_status_has_the_names_that_the_namespace_has_now() -> None:
    plain, deep, replaced, alive = pin("t"), pin("s"), pin("c", replica=THERE), pin("g")
    one, two, _ = tombstone(plain), tombstone(deep), tombstone(replaced)
    lost = {id(tombstone): loss_of(tombstone) for tombstone in (one, two)}
    namespace = {"_4": one, "_3": {"s": two}, "c": 1, "g": 2}
    now = pins_now([plain, deep, replaced, alive], HERE, namespace, lost, no_name)
    assert [pin.name for pin in now] == ["_4", "_3", "g"]
