"""Chunks of a large blob are told in batches, each once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from replkernel.kernel.early_chunks import BATCH_BYTES, EarlyChunks
from replkernel.records import ChunkRef, Digest


def test_full_batches_are_told_and_a_rest_is_not() -> None:
    told: list[Sequence[ChunkRef]] = []
    early = EarlyChunks(told.append)
    chunks = [ChunkRef(Digest(f"{number:064}"), BATCH_BYTES // 4) for number in range(11)]
    for chunk in chunks:
        early(chunk)
    assert [list(batch) for batch in told] == [chunks[:4], chunks[4:8]]


def test_threads_may_tell_at_once() -> None:
    told: list[Sequence[ChunkRef]] = []
    chunks = [ChunkRef(Digest(f"{number:064}"), BATCH_BYTES // 8) for number in range(800)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(EarlyChunks(told.append), chunks))
    batches = [chunk for batch in told for chunk in batch]
    assert len(batches) == len(set(batches)) == 800
