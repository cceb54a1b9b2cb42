"""State of any size reaches a new process in messages that fit."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from replkernel.agent.core.catch_up import RECENT_MAX, RecentDeltas, split_state
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
)

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3000)), max_size=30)


def whole_state(sizes: list[tuple[int, int]]) -> Delta:
    components = tuple(
        ComponentRecord(
            ComponentId(f"c{n}"), (f"c{n}",), Seq(seq), Payload(head=bytes(size)), Digest("0" * 64), size
        )
        for n, (seq, size) in enumerate(sizes)
    )
    order = tuple(component.cid for component in components)
    return Delta(Seq(9), Fence(9), ReplicaId("r1"), 9, components, order=order)


@given(SIZES)
def test_the_parts_are_the_whole_and_only_the_last_is_up_to_date(sizes: list[tuple[int, int]]) -> None:
    whole = whole_state(sizes)
    parts = split_state(whole, 4000)
    together = {component.cid: component for part in parts for component in part.components}
    assert together == {component.cid: component for component in whole.components}
    assert [part.seq for part in parts] == sorted({part.seq for part in parts})
    assert parts[-1].order == whole.order
    assert all(part.order is None for part in parts[:-1])


def test_a_process_that_missed_a_little_gets_exactly_that() -> None:
    recent = RecentDeltas()
    for seq in range(1, 5):
        recent.add(msgspec.structs.replace(whole_state([(seq, 10)]), seq=Seq(seq)))
    missed = recent.after(Mark(Seq(2)))
    assert missed is not None
    assert [delta.seq for delta in missed] == [3, 4]


def test_the_past_that_is_kept_has_a_bound() -> None:
    recent = RecentDeltas()
    for seq in range(1, RECENT_MAX + 11):
        recent.add(msgspec.structs.replace(whole_state([]), seq=Seq(seq)))
    assert recent.after(Mark(Seq(9))) is None
    kept = recent.after(Mark(Seq(10)))
    assert kept is not None
    assert len(kept) == RECENT_MAX
    recent.restart(Mark(Seq(500)))
    assert recent.after(Mark(Seq(499))) is None
    assert recent.after(Mark(Seq(500))) == []


def test_small_state_is_one_message() -> None:
    whole = whole_state([(1, 10), (2, 10)])
    assert split_state(whole, 4000) == [whole]


def test_large_state_is_cut() -> None:
    parts = split_state(whole_state([(seq, 3000) for seq in range(1, 10)]), 8000)
    assert [len(part.components) for part in parts] == [2, 2, 2, 2, 1]
    assert [part.seq for part in parts] == [2, 4, 6, 8, 9]
