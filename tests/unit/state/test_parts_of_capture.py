"""The small pieces below a capture: stream reader, memo read in place, deep runs, paths, class ids."""

from __future__ import annotations

import contextvars
import gc
import io
import pickle
import sys

import pytest

from replkernel.state.capture.memo_table import MemoTable, object_at, readable
from replkernel.state.format.stream import (
    FORMAT_VERSION,
    Head,
    StreamReader,
    join_head,
    reader_of,
    split_head,
)
from replkernel.state.python.class_registry import ClassRegistry
from replkernel.state.python.deep import run_deep
from replkernel.state.python.kinds import type_name


def test_a_head_comes_back() -> None:
    head = Head(FORMAT_VERSION, ("a", "class:b"), False, ((5, 0),), (1,))
    found, stream = split_head(join_head(head, [b"abc", b"def"]))
    assert found == head
    assert bytes(stream) == b"abcdef"


@pytest.mark.parametrize("data", [b"\x01\x00\x00\x00\xff", join_head(Head(99, ("a",)), [])])
def test_a_strange_head_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="payload"):
        split_head(data)


def test_cut_pieces_are_read_at_their_places() -> None:
    head = Head(FORMAT_VERSION, ("a",), True, ((2, 0), (3, 1)))
    assert reader_of(head, memoryview(b"abcd"), b"<", [b"11", b"22"]).read() == b"<ab11c22d"


def test_a_reader_reads_across_pieces() -> None:
    reader = StreamReader([b"ab", b"", b"cde", bytearray(b"f\ng")])
    assert reader.read(3) == b"abc"
    target = bytearray(2)
    assert reader.readinto(target) == 2
    assert bytes(target) == b"de"
    assert reader.readline() == b"f\n"
    assert reader.read(9) == b"g"


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="the layout is CPython's")
def test_a_memo_read_in_place_is_the_memo() -> None:
    assert readable()
    pickler = pickle.Pickler(io.BytesIO(), 5)
    values = [{"k": [index]} for index in range(5000)]
    pickler.dump(values)
    table = MemoTable(pickler)
    copied = pickler.memo.copy()  # type: ignore[attr-defined]
    assert len(table) == len(copied)
    assert table.keys() == set(copied)
    assert all(key in table for key in copied)
    other = [object() for _ in range(1000)]
    assert not any(id(value) in table for value in other)
    assert object_at(id(values)) is values


def test_a_deep_run_has_room_and_the_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("here")

    def down(depth: int) -> int:
        return 0 if not depth else 1 + down(depth - 1)

    limit = sys.getrecursionlimit()
    assert run_deep(lambda: down(50_000)) == 50_000
    assert run_deep(variable.get) == "here"
    assert sys.getrecursionlimit() == limit
    with pytest.raises(ZeroDivisionError):
        run_deep(lambda: 1 // 0)


def test_type_names_are_those_a_user_knows() -> None:
    import collections

    assert type_name(5) == "int"
    assert type_name(collections.OrderedDict()) == "collections.OrderedDict"


def test_class_ids_tell_definitions_apart() -> None:
    registry = ClassRegistry()
    first, second = type("A", (), {}), type("A", (), {})
    ids = {registry.name(first, "r1", 3), registry.name(second, "r1", 3)}
    assert len(ids) == 2
    assert registry.name(first, "r2", 9) in ids
    assert all(class_id.startswith("A@r1.3.") for class_id in ids)


def test_a_class_is_held_weakly() -> None:
    registry = ClassRegistry()
    made = type("A", (), {})
    class_id = registry.name(made, "r1", 1)
    assert registry.find(class_id) is made
    del made
    gc.collect()
    assert registry.find(class_id) is None
    assert registry.living() == []
