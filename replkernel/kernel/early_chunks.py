"""Tells the agent of a large blob's chunks while later ones are still written, so that storing can begin.

Law: only a hint. The delta that names the chunks follows, and is what the agent stores everything for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from replkernel.records import ChunkRef

BATCH_BYTES = 16 << 20
"""Chunks are told in batches of so many bytes; what is less goes with the delta, which comes soon enough."""


class EarlyChunks:
    """Collects chunks from the threads that write them and hands each full batch to `tell`."""

    def __init__(self, tell: Callable[[Sequence[ChunkRef]], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._batch: list[ChunkRef] = []
        self._bytes = 0

    def __call__(self, chunk: ChunkRef) -> None:
        """Take a chunk that the cache holds."""
        with self._lock:
            self._batch.append(chunk)
            self._bytes += chunk.size
            if self._bytes < BATCH_BYTES:
                return
            full, self._batch, self._bytes = self._batch, [], 0
        self._tell(full)
