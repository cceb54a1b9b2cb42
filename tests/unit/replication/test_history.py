"""The history: the table at a point is what it was there, within limits, on every replica."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.protocol.timeline import MAIN, NoSuchPoint
from replkernel.records import (
    BlobRef,
    ChunkRef,
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    Limits,
    Mark,
    Note,
    Payload,
    ReplicaId,
    Seq,
    Unaudited,
)
from replkernel.replication.components import TableState
from replkernel.replication.entries import split_delta
from replkernel.replication.history import INLINE_BYTES_MAX
from replkernel.replication.machine import KernelMachine
from replkernel.replication.outcomes import DeltaApplied
from tests.support.examples import examples

R1 = ReplicaId("r1")
MANY = Limits(1000, 1e9, 2**40)


def component(name: str, value: bytes, *, chunk: str = "", also: tuple[str, ...] = ()) -> ComponentRecord:
    blob = BlobRef(1000, (ChunkRef(Digest(chunk), 1000),)) if chunk else None
    payload = Payload(head_blob=blob) if blob else Payload(head=value)
    return ComponentRecord(ComponentId(name), (name, *also), Seq(1), payload, Digest("d"), len(value))


class Notebook:
    """A machine, and what it was after each cell."""

    def __init__(self) -> None:
        self.machine = KernelMachine()
        self.seq = self.index = 0
        self.were: dict[Mark, tuple[dict[ComponentId, ComponentRecord], tuple[str, ...]]] = {}

    def run(
        self, *components: ComponentRecord, drop: str = "", note: Note | None = None, limits: Limits = MANY
    ) -> Mark:
        """Run a cell that sets and drops components; return its point."""
        self.seq += 1
        names = [name for name in self.machine.order if name != drop]
        names += [one.cid for one in components if one.cid not in names]
        dropped = (ComponentId(drop),) if drop else ()
        note = note or Note(at=float(self.seq), limits=limits)
        made = Delta(
            Seq(self.seq), Fence(1), R1, self.seq, components, dropped, order=tuple(names), note=note
        )
        self._apply(made)
        return Mark(Seq(self.seq))

    def go(self, to: Mark) -> None:
        """Go to a point, as a cell does that asks for it."""
        self.run()
        way = self.machine.way_to(to)
        assert way is not None
        note = Note(at=float(self.seq), to=to, limits=MANY)
        self._apply(
            msgspec.structs.replace(way, seq=Seq(self.seq), audit=1, fence=Fence(1), replica=R1, note=note)
        )

    def _apply(self, made: Delta) -> None:
        for entry in split_delta(made):
            self.index += 1
            outcomes = self.machine.apply(self.index, entry)
        assert isinstance(outcomes[-1], DeltaApplied), outcomes
        self.machine.check_invariants()
        self.were[made.mark] = (dict(self.machine.components), self.machine.order)

    def at(self, mark: Mark) -> TableState:
        """Return the table at a point that is kept."""
        table = self.machine.table_at(mark)
        assert table is not None
        return table


CELLS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.binary(max_size=3), st.booleans(), st.integers(0, 20)), max_size=25
)


@settings(max_examples=examples(100))
@given(CELLS)
def test_the_table_at_each_point_is_what_it_was_and_going_there_makes_it_so(
    cells: list[tuple[str, bytes, bool, int]],
) -> None:
    book = Notebook()
    for name, value, drops, back in cells:
        points = book.machine.timeline().points
        if back < len(points) // 2:
            book.go(points[back].mark)
            assert (book.machine.components, book.machine.order) == book.were[points[back].mark]
        elif drops:
            book.run(drop=name)
        else:
            book.run(component(name, value))
    for point in book.machine.timeline().points:
        table = book.at(point.mark)
        assert (table.components, table.order) == book.were[point.mark]
    again = KernelMachine()
    again.restore(book.machine.snapshot())
    assert again.timeline() == book.machine.timeline()
    assert again.snapshot() == book.machine.snapshot()


def test_the_earliest_points_go_beyond_each_limit_and_named_ones_stay() -> None:
    book = Notebook()
    first = book.run(component("a", b"1"))
    book.run(note=Note(at=1.5, named=(("start", None),), limits=MANY))
    for value in range(2, 8):
        book.run(component("a", bytes([value])), limits=Limits(points=3))
    points = [point.mark for point in book.machine.timeline().points]
    assert len(points) == 5
    assert points[0] == first
    assert book.at(first).components[ComponentId("a")].payload.head == b"1"
    book.run(component("a", b"x"), note=Note(at=1e7, limits=Limits(100, 60.0, 2**40)))
    assert [point.mark for point in book.machine.timeline().points[:-1]] == [first]
    book.run(component("a", b"y"), note=Note(at=1e7, unnamed=("start",), limits=Limits(1)))
    assert first not in [point.mark for point in book.machine.timeline().points]
    book.run(note=Note(at=1e7, named=(("end", None),), limits=MANY))
    book.run(component("a", b"z"), note=Note(at=1e7, limits=Limits(0)))
    assert len(book.machine.timeline().points) == 1, "without a history nothing is kept for its name"


def test_a_points_time_is_no_earlier_than_that_of_the_one_before() -> None:
    book = Notebook()
    for value, at in ((b"1", 5.0), (b"2", 3.0), (b"3", 6.0)):  # Another host's clock is behind.
        book.run(component("a", value), note=Note(at=at, limits=MANY))
    assert [point.at for point in book.machine.timeline().points] == [5.0, 5.0, 6.0]


def test_no_point_has_a_branchs_name_and_the_branch_of_now_stays() -> None:
    book = Notebook()
    first = book.run(component("a", b"1"))
    book.run(note=Note(at=2.0, named=((MAIN, first), ("mine", first)), unnamed=(MAIN,), limits=MANY))
    timeline = book.machine.timeline()
    assert (timeline.names, timeline.branches) == ({"mine": first}, {MAIN: first})


def test_bytes_count_what_the_state_of_now_does_without() -> None:
    book = Notebook()
    book.run(component("a", b"1", chunk="c1"), component("b", b"1", chunk="b"))
    book.run(component("a", b"2", chunk="c2"), limits=Limits(100, 1e9, 10_000))
    assert 1000 < book.machine.timeline().kept < 2000
    named = {chunk.digest for one in book.machine.named() for chunk in one.payload.head_blob.chunks}  # type: ignore[union-attr]
    assert named == {"b", "c1", "c2"}
    book.run(component("a", b"3", chunk="c3"), limits=Limits(100, 1e9, 100))
    named = {chunk.digest for one in book.machine.named() for chunk in one.payload.head_blob.chunks}  # type: ignore[union-attr]
    assert named == {"b", "c3"}


def test_without_a_note_there_is_no_history() -> None:
    book = Notebook()
    for seq, value in enumerate((b"1", b"2"), 1):
        book._apply(Delta(Seq(seq), Fence(1), R1, seq, (component("a", value),)))
    assert book.machine.timeline().points == ()


def test_a_branch_begins_where_the_notebook_is_and_each_has_its_end() -> None:
    book = Notebook()
    start = book.run(component("a", b"0"))
    end = book.run(component("a", b"main"))
    book.go(start)
    assert book.machine.timeline().redone(1) == end
    book.run(note=Note(at=9.0, branch="other", begins=True, limits=MANY))
    other = book.run(component("a", b"other"))
    timeline = book.machine.timeline()
    assert timeline.branches == {"main": end, "other": other}
    assert timeline.branch == "other"
    assert timeline.undone(1) == start
    assert [each.name for each in book.machine.differences(end, other)] == ["a"]


def test_small_values_in_the_table_have_a_bound_of_their_own() -> None:
    book = Notebook()
    for number in range(100):
        book.run(*(component(f"v{place}", bytes([number]) * 16_000) for place in range(64)))
    points = book.machine.timeline().points
    assert 2 < len(points) < 12
    assert len(book.machine.snapshot()) < INLINE_BYTES_MAX + 3 * 2**20
    table = book.at(points[0].mark)
    assert (table.components, table.order) == book.were[points[0].mark]
    many = Notebook()
    for number in range(100):
        many.run(component("large", bytes([number]), chunk=f"{number:064x}"))
    assert len(many.machine.timeline().points) == 100


def test_a_result_that_was_only_shown_makes_no_point_and_goes_with_the_one_before() -> None:
    book = Notebook()
    book.run(component("a", b"1"))
    second = book.run(component("a", b"2"))
    was = book.were[book.machine.timeline().points[0].mark]
    book.run(component("_3", b"2"))
    timeline = book.machine.timeline()
    assert [point.mark for point in timeline.points][-1] == second
    assert timeline.undone(1) == timeline.points[0].mark
    back = book.at(timeline.points[0].mark)
    assert (back.components, back.order) == was, "the result goes with what is undone"
    book.go(timeline.points[0].mark)
    book.run(component("library sys:last_value", b"e"))
    assert book.machine.timeline().redone(1) == second, "an error takes no redo away"
    book.go(second)
    assert book.machine.components[ComponentId("a")].payload.head == b"2"
    book.machine.check_invariants()
    again = KernelMachine()
    again.restore(book.machine.snapshot())
    assert again.timeline() == book.machine.timeline()


def test_a_variable_that_was_only_looked_at_makes_no_point() -> None:
    book = Notebook()
    book.run(component("df", b"1"))
    second = book.run(component("df", b"2"))
    looked = Note(at=0.0, looks=True, limits=MANY)
    book.run(component("df", b"2 twice", also=("_replkernel_out_3",)), note=looked)
    timeline = book.machine.timeline()
    assert timeline.points[-1].mark == second
    book.go(timeline.points[0].mark)
    assert book.machine.components[ComponentId("df")].payload.head == b"1"
    book.go(second)
    book.run(component("lines", b"abc"))
    consumed = book.run(component("lines", b"c"), note=looked)
    assert book.machine.timeline().points[-1].mark == consumed, "it changed"
    made = book.run(component("other", b"1"), note=looked)
    assert book.machine.timeline().points[-1].mark == made
    book.machine.check_invariants()


def test_a_change_that_is_checked_behind_a_look_is_a_step() -> None:
    book = Notebook()
    first = book.run(component("df", b"1"))
    book.seq += 1
    left = (Unaudited("df", 0, R1),)
    book._apply(
        Delta(Seq(book.seq), Fence(1), R1, book.seq, order=("df",), unaudited=left, note=Note(at=2.0))
    )
    looked = Note(at=3.0, looks=True, limits=MANY)
    changed = book.run(component("df", b"2", also=("_replkernel_out_3",)), note=looked)
    assert [point.mark for point in book.machine.timeline().points] == [first, changed]


def test_a_cells_number_is_refused_where_it_is_one_step_with_the_cells_behind_it() -> None:
    book = Notebook()
    first = book.run(component("df", b"1"))
    book.seq += 1
    left = (Unaudited("df", 0, R1),)
    book._apply(Delta(Seq(2), Fence(1), R1, 2, order=("df",), unaudited=left, note=Note(at=2.0)))
    book.seq += 1
    book._apply(Delta(Seq(3), Fence(1), R1, 3, order=("df",), unaudited=left, note=Note(at=3.0)))
    step = book.run(component("df", b"2"))
    timeline = book.machine.timeline()
    assert (timeline.find("1"), timeline.find("4")) == (first, step)
    for within in ("2", "3"):
        with pytest.raises(NoSuchPoint):
            timeline.find(within)


def test_a_cells_number_is_refused_where_its_point_is_not_kept_any_more() -> None:
    book = Notebook()
    first = book.run(component("a", b"1"), note=Note(at=0.0, named=(("first", None),), limits=MANY))
    for value in range(2, 9):
        last = book.run(component("a", bytes([value])), limits=Limits(points=2))
    timeline = book.machine.timeline()
    assert (timeline.find("1"), timeline.find("8")) == (first, last)
    for gone in ("2", "5", "9"):
        with pytest.raises(NoSuchPoint):
            timeline.find(gone)
