"""Deltas on their way: kept until committed or refused, never without a limit."""

from __future__ import annotations

import pytest

from replkernel.kernel import unacknowledged as subject
from replkernel.kernel.unacknowledged import Unacknowledged
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


def delta(seq: int, size: int = 0) -> Delta:
    record = ComponentRecord(ComponentId("x"), ("x",), Seq(seq), Payload(head=b"." * size), Digest("0"), size)
    return Delta(Seq(seq), Fence(seq), ReplicaId("r1"), seq, (record,))


def seqs(held: Unacknowledged) -> list[int]:
    return [delta.seq for delta in held.deltas()]


def test_a_commit_covers_everything_before_it() -> None:
    held = Unacknowledged()
    for seq in (1, 2, 3):
        held.add(delta(seq))
    held.committed(Mark(Seq(2)))
    assert seqs(held) == [3]


def test_a_refusal_covers_one() -> None:
    held = Unacknowledged()
    for seq in (1, 2, 3):
        held.add(delta(seq))
    held.refused(Seq(2))
    assert seqs(held) == [1, 3]


def test_a_delta_that_is_proposed_again_is_held_once() -> None:
    held = Unacknowledged()
    held.add(delta(1))
    held.add(delta(1))
    assert seqs(held) == [1]


def test_many_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "DELTAS_MAX", 2)
    held = Unacknowledged()
    held.add(delta(1))
    assert not held.full()
    held.add(delta(2))
    assert held.full()
    held.committed(Mark(Seq(1)))
    assert not held.full()


def test_large_ones_are_too_many_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "BYTES_MAX", 10_000)
    held = Unacknowledged()
    held.add(delta(1, 6_000))
    assert not held.full()
    held.add(delta(2, 6_000))
    assert held.full()
