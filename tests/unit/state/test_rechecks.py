"""What the C pickler may have written wrongly is searched for in a stream, not in the contents of arrays."""

from __future__ import annotations

import io
import pickle
import pickletools
from itertools import combinations

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from replkernel.state.capture.rechecks import LONG_BYTES, may_have, without_long_bytes
from replkernel.state.format.nans import NAN

SIZES = (LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 7, 3 * LONG_BYTES)
ANNOUNCED = [pickle.BINBYTES + size.to_bytes(4, "little") for size in SIZES]
FRAGMENTS = st.lists(
    st.sampled_from([*ANNOUNCED, NAN, b"\0", pickle.MEMOIZE, pickle.FROZENSET, b"\x8a\x06"]),
    min_size=1,
    max_size=4,
).map(b"".join)
CONTENTS = st.lists(st.tuples(FRAGMENTS, st.sampled_from(SIZES)), min_size=1, max_size=3)


def _dumped(value: object) -> tuple[bytes, dict[int, tuple[int, object]]]:
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, 5)
    pickler.dump(value)
    return sink.getvalue(), pickler.memo.copy()  # type: ignore[attr-defined]


def _contents_in(stream: bytes) -> list[tuple[int, int]]:
    """Return where long bytes have their contents, as whoever reads all opcodes finds them."""
    told = [(at + 5, arg) for opcode, arg, at in pickletools.genops(stream) if opcode.name == "BINBYTES"]
    return [(start, start + len(arg)) for start, arg in told if len(arg) >= LONG_BYTES]


def _without(stream: bytes, ranges: list[tuple[int, int]]) -> bytes:
    for start, end in sorted(ranges, reverse=True):
        stream = stream[:start] + stream[end:]
    return stream


@given(CONTENTS, st.booleans())
@example([(ANNOUNCED[1], SIZES[1])], True)
@example([(ANNOUNCED[2] + ANNOUNCED[1], SIZES[2]), (ANNOUNCED[1], SIZES[1])], False)
def test_nothing_but_the_contents_of_bytes_is_ever_left_out(
    contents: list[tuple[bytes, int]], nan: bool
) -> None:
    held = [(pattern * size)[:size] for pattern, size in contents]
    stream, memo = _dumped([*held, float("nan"), held[0]] if nan else [held, "text", held])
    whole = _contents_in(stream)
    allowed = [_without(stream, list(some)) for n in range(len(whole) + 1) for some in combinations(whole, n)]
    left = without_long_bytes(stream, memo)
    assert left in allowed
    assert (NAN in left) or not nan


@pytest.mark.parametrize("pattern", [NAN, b"\x8a\x06", pickle.FROZENSET])
def test_an_arrays_own_bytes_are_not_found(pattern: bytes) -> None:
    stream, memo = _dumped(("array", pattern * LONG_BYTES, (3, 4)))
    assert may_have(stream)
    assert not may_have(without_long_bytes(stream, memo))


def test_bytes_made_to_be_found_too_early_are_left_alone() -> None:
    text, announced = b"tail", ANNOUNCED[1]
    early = announced + text
    late = ((text + pickle.MEMOIZE + announced) * LONG_BYTES)[: SIZES[1]]
    stream, memo = _dumped([early.rjust(300, b"."), late, float("nan")])
    assert without_long_bytes(stream, memo) in (stream, _without(stream, _contents_in(stream)))
