"""Entries keep their keys and limits; a delta survives its way into parts and back."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    HostName,
    Payload,
    ReplicaId,
    Seq,
)
from replkernel.replication import entries
from replkernel.replication.entries import (
    ENTRY_BYTES_MAX,
    PART_BYTES_MAX,
    PARTS_MAX,
    Entry,
    EntryTooLarge,
    EntryUnreadable,
    assemble_delta,
    decode_entry,
    encode_entry,
    split_delta,
)

R1, R2 = ReplicaId("r1"), ReplicaId("r2")


def delta_of(size: int, *, seq: int = 1) -> Delta:
    payload = Payload(head=bytes(size))
    component = ComponentRecord(ComponentId("c"), ("x",), Seq(seq), payload, Digest("d"), size)
    return Delta(Seq(seq), Fence(seq), R1, seq, (component,), order=("x",))


EVERY_ENTRY: list[Entry] = [
    entries.execution_started(Seq(1), R1, Fence(2)),
    *split_delta(delta_of(10)),
    entries.execution_failed(Seq(1), R1, "killed by SIGKILL"),
    entries.lead(Seq(1), R1, Fence(2)),
    entries.yield_(Seq(1), R1, Fence(2)),
    entries.vote(Seq(1), R1, Fence(2), R2),
    entries.replica_joined(R1, HostName("h"), "127.0.0.1:20000"),
    entries.replica_left(R1),
    entries.router_attached(Fence(3)),
]


@pytest.mark.parametrize("entry", EVERY_ENTRY, ids=lambda entry: type(entry).__name__)
def test_an_entry_survives_its_encoding(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_no_two_entries_share_a_key_and_the_same_entry_always_has_it() -> None:
    assert len({entry.key for entry in EVERY_ENTRY}) == len(EVERY_ENTRY)
    assert entries.lead(Seq(1), R1, Fence(2)).key == entries.lead(Seq(1), R1, Fence(2)).key
    assert entries.lead(Seq(1), R1, Fence(2)).key != entries.lead(Seq(1), R2, Fence(2)).key


@given(st.binary(max_size=300))
def test_bytes_that_are_no_entry_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with contextlib.suppress(EntryUnreadable):
        assert encode_entry(decode_entry(data))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", encode_entry(EVERY_ENTRY[0])[:-1]])
def test_an_unreadable_entry_is_said_in_a_sentence(data: bytes) -> None:
    with pytest.raises(EntryUnreadable, match=r"cannot be read: .*\.$"):
        decode_entry(data)


def test_an_entry_above_the_limit_says_which_setting_to_change() -> None:
    with pytest.raises(EntryTooLarge, match="REPLKERNEL_INLINE_BYTES_MAX"):
        encode_entry(entries.execution_failed(Seq(1), R1, "x" * ENTRY_BYTES_MAX))
    with pytest.raises(EntryUnreadable, match="above the limit"):
        decode_entry(bytes(ENTRY_BYTES_MAX + 1))


@given(size=st.integers(0, 4000), part_bytes=st.integers(20, 999))
def test_a_delta_survives_its_way_into_parts_and_back(size: int, part_bytes: int) -> None:
    delta = delta_of(size)
    parts = split_delta(delta, part_bytes)
    assert assemble_delta([part.piece for part in parts]) == delta
    assert [part.part for part in parts] == list(range(len(parts)))
    assert {(part.key, part.parts) for part in parts} == {(parts[0].key, len(parts))}


def test_the_parts_of_a_large_delta_are_all_below_the_limit_of_an_entry() -> None:
    parts = split_delta(delta_of(3 * PART_BYTES_MAX))
    assert len(parts) == 4
    assert all(len(encode_entry(part)) <= ENTRY_BYTES_MAX for part in parts)


def test_a_delta_beyond_all_parts_is_refused() -> None:
    with pytest.raises(EntryTooLarge, match="execution 7"):
        split_delta(delta_of(PARTS_MAX * 64, seq=7), 64)


def test_deltas_that_differ_have_keys_that_differ() -> None:
    one, other = delta_of(10), msgspec.structs.replace(delta_of(10), execution_count=9)
    assert split_delta(one)[0].key != split_delta(other)[0].key


def test_pieces_of_nothing_are_refused() -> None:
    with pytest.raises(EntryUnreadable):
        assemble_delta([b"\xc1"])
