"""What is evicted from a cache and what is deleted from a store: pure decisions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replkernel.objects.collect import garbage
from replkernel.objects.eviction import UNSAVED_AGE_MAX_S, CachedChunk, victims
from replkernel.records import Digest

NOW = 1_000_000.0

chunks = st.lists(
    st.builds(
        CachedChunk,
        digest=st.uuids().map(str),
        size=st.integers(1, 1000),
        used_at=st.floats(NOW - 2000, NOW) | st.floats(NOW - 3 * UNSAVED_AGE_MAX_S, NOW),
        saved=st.booleans(),
    ),
    max_size=30,
)


@given(chunks=chunks, goal=st.integers(0, 20_000), rest_s=st.floats(0, 1000), data=st.data())
def test_eviction_takes_no_more_than_it_must_and_nothing_it_may_not(
    chunks: list[CachedChunk], goal: int, rest_s: float, data: st.DataObject
) -> None:
    names = [chunk.digest for chunk in chunks]
    protected = data.draw(st.sets(st.sampled_from(names))) if names else set()
    chosen = victims(chunks, protected, goal, NOW, rest_s)
    for chunk in chosen:
        assert chunk.digest not in protected
        assert NOW - chunk.used_at >= rest_s
        assert chunk.saved or NOW - chunk.used_at > UNSAVED_AGE_MAX_S
    left = sum(chunk.size for chunk in chunks) - sum(chunk.size for chunk in chosen)
    if chosen:
        assert left + chosen[-1].size > goal
    if left > goal:
        free = [chunk for chunk in chunks if chunk not in chosen and chunk.digest not in protected]
        assert not [chunk for chunk in free if chunk.saved and NOW - chunk.used_at >= rest_s]


def test_eviction_begins_with_the_least_recently_used() -> None:
    found = [CachedChunk(str(number), 10, NOW - number, saved=True) for number in range(10)]
    assert [chunk.digest for chunk in victims(found, (), 70, NOW, 0)] == ["9", "8", "7"]


ages = st.dictionaries(st.uuids().map(lambda one: Digest(str(one))), st.floats(0, 1000), max_size=30)


@given(stored=ages, grace_s=st.floats(0, 1000), data=st.data())
def test_garbage_is_exactly_the_old_and_unnamed(
    stored: dict[Digest, float], grace_s: float, data: st.DataObject
) -> None:
    named = data.draw(st.sets(st.sampled_from(sorted(stored)))) if stored else set()
    found = garbage(stored, named, grace_s)
    assert set(found) == {name for name, age_s in stored.items() if age_s >= grace_s} - named
    assert [stored[name] for name in found] == sorted((stored[name] for name in found), reverse=True)
