"""Checkpoint documents: what was cut, changed or misnamed is refused, and a newer group's come first."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replkernel.objects.collect import is_mark
from replkernel.records import Digest, Fence, KernelId, ReplicaId, Seq
from replkernel.replication.checkpoint import (
    CHECKPOINT,
    CHECKPOINT_VERSION,
    CHUNKS_KEPT,
    MARK,
    CheckpointDamaged,
    CheckpointHeader,
    Place,
    costly,
    decode_checkpoint,
    document_name,
    encode_checkpoint,
    founded,
    founding_mark,
    newest_first,
    outdated,
    seal_key,
)

KERNEL = KernelId("k")
BODY = b"the state"
KEY = seal_key(b"the key of the kernel")


def header(generation: int = 1, index: int = 7, version: int = CHECKPOINT_VERSION) -> CheckpointHeader:
    return CheckpointHeader(
        version=version,
        kernel_id=KERNEL,
        incarnation="one-two",
        generation=generation,
        index=index,
        seq=Seq(3),
        newest_seq=Seq(4),
        fence=Fence(5),
        execution_count=3,
        executor=ReplicaId("r1"),
        created=1.0,
    )


def name(generation: int = 1, index: int = 7) -> str:
    return document_name(CHECKPOINT, KERNEL, "one-two", Place(generation, index))


def test_a_written_checkpoint_is_read() -> None:
    document = encode_checkpoint(header(), BODY, KEY)
    assert decode_checkpoint(document, name(), KEY) == (header(), BODY)


@given(st.data())
def test_any_changed_or_missing_byte_is_noticed(data: st.DataObject) -> None:
    document = encode_checkpoint(header(), BODY, KEY)
    at = data.draw(st.integers(0, len(document) - 1))
    changed = bytearray(document)
    changed[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), document[:at], document + b"x"):
        with pytest.raises(CheckpointDamaged):
            decode_checkpoint(damaged, name(), KEY)


@pytest.mark.parametrize(
    ("document", "stored_as", "why"),
    [
        (encode_checkpoint(header(version=9), BODY, KEY), name(), "version 9"),
        (encode_checkpoint(header(), BODY, KEY), name(index=8), "somebody else wrote or changed"),
        (b"", name(), "cut short"),
        (encode_checkpoint(header(), BODY, KEY)[:-1], name(), "not those that were written"),
    ],
)
def test_why_it_is_refused_is_said(document: bytes, stored_as: str, why: str) -> None:
    with pytest.raises(CheckpointDamaged, match=why):
        decode_checkpoint(document, stored_as, KEY)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 10**9)), unique=True, max_size=8))
def test_a_late_leaders_checkpoint_never_comes_before_a_newer_groups(places: list[tuple[int, int]]) -> None:
    names = [name(*place) for place in places] + ["k/mark", "k/checkpoint-other-000009-0000000000000001"]
    found = newest_first(names, CHECKPOINT, KERNEL, "one-two")
    assert found == sorted((Place(*place) for place in places), reverse=True)
    kept = set(found) - set(outdated(found))
    assert kept == set(found[:3])


def test_older_ones_that_keep_much_for_themselves_are_costly() -> None:
    chunks = [Digest(f"{number:064}") for number in range(4 * CHUNKS_KEPT)]
    newest, small, large = set(chunks[:10]), set(chunks[:20]), set(chunks)
    second, third = Place(1, 8), Place(1, 7)
    assert costly(newest, [(second, newest), (third, small)]) == []
    assert costly(newest, [(second, small), (third, large)]) == [third]
    assert costly(newest, [(second, large), (third, newest)]) == [second, third]
    halves = set(chunks[: CHUNKS_KEPT - 1]), set(chunks[CHUNKS_KEPT : 2 * CHUNKS_KEPT - 1])
    assert costly(set(), list(zip((second, third), halves, strict=True))) == [third], "they add up"


def test_marks_of_foundings_that_have_served_are_found_and_are_no_checkpoints() -> None:
    marks = [founding_mark(KERNEL, "one", generation) for generation in (2, 3, 12)]
    names = [*marks, "k/mark-one", "k/mark-one-000002-0000000000000001", "k/mark-one-shared-host"]
    assert founded(names, KERNEL, "one", 3) == marks[:2]
    assert all(is_mark(mark) for mark in marks)
    assert newest_first(marks, MARK, KERNEL, "one") == []


def test_a_document_names_no_secret() -> None:
    fields = {field.name for field in msgspec.structs.fields(CheckpointHeader)}
    assert not fields & {"key", "secret", "token", "env", "connection"}
