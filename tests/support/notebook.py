"""Two notebooks in one process, with chunks in memory: what unit tests of state capture play on."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from blake3 import blake3
from xxhash import xxh3_128_digest

from replkernel.objects.cutting import CHUNK_BYTES, cut_by_content
from replkernel.records import BlobRef, ChunkRef, Delta, Digest, Fence, ReplicaId, Seq
from replkernel.state.capture.budget import EVERYTHING, Terms
from replkernel.state.restore.rebuild import RebuildReport
from replkernel.state.state_capture import StateCapture


class ChunkMemory:
    """Stands in for the blob cache: chunks in a dictionary, and what was written to it."""

    def __init__(self, chunks: dict[str, bytes]) -> None:
        self.chunks = chunks
        self.written: list[int] = []

    def write_chunks(
        self, data: Any, known: Any, check: Callable[[], None] = lambda: None, *, digests: bytes = b""
    ) -> tuple[BlobRef, list[tuple[bytes, ChunkRef]]]:
        """Write what is not known."""
        view = memoryview(data).cast("B")
        marks = []
        for index, start in enumerate(range(0, len(view), CHUNK_BYTES)):
            check()
            piece = bytes(view[start : start + CHUNK_BYTES])
            local = xxh3_128_digest(piece)
            if known is not None and index < len(known) and known[index][0] == local:
                marks.append((local, known[index][1]))
                continue
            digest = blake3(piece).hexdigest()
            self.chunks[digest] = piece
            self.written.append(len(piece))
            marks.append((local, ChunkRef(Digest(digest), len(piece))))
        return BlobRef(len(view), tuple(chunk for _, chunk in marks)), marks

    def write_changed(
        self, data: Any, digests: bytes, known: Any, check: Callable[[], None] = lambda: None
    ) -> tuple[BlobRef, list[tuple[bytes, ChunkRef]]]:
        """Fetch and write what is not known of bytes that are somewhere else."""
        names = [digests[at : at + 16] for at in range(0, len(digests) - 16, 16)]
        marks = {
            index: known[index]
            for index, local in enumerate(names)
            if known and index < len(known) and known[index][0] == local
        }
        for batch in data.batches([index for index in range(len(names)) if index not in marks]):
            for index, piece in batch:
                check()
                digest = blake3(piece).hexdigest()
                self.chunks[digest] = bytes(piece)
                self.written.append(len(piece))
                marks[index] = names[index], ChunkRef(Digest(digest), len(piece))
        found = [marks[index] for index in range(len(names))]
        return BlobRef(len(data), tuple(chunk for _, chunk in found)), found

    def write_text(self, data: Any, keep: Any = (), check: Callable[[], None] = lambda: None) -> BlobRef:
        """Write what does not begin with the chunks of `keep`, in pieces that depend on the content."""
        view = memoryview(data).cast("B")
        chunks = list(keep)
        for piece in cut_by_content(view, sum(chunk.size for chunk in keep)):
            check()
            digest = Digest(blake3(piece).hexdigest())
            if digest not in self.chunks:
                self.chunks[digest] = bytes(piece)
                self.written.append(len(piece))
            chunks.append(ChunkRef(digest, len(piece)))
        return BlobRef(len(view), tuple(chunks))

    def write_stream(self, parts: Any, known: Any, check: Callable[[], None] = lambda: None) -> Any:
        """Write what is not known of many parts."""
        return self.write_chunks(b"".join(parts), known, check)

    def named(self, blobs: Any) -> None:
        """Take note of what a delta names: nothing is ever withdrawn here."""

    def captured(self, *, cell: bool, whole: bool) -> None:
        """Note the end of a capture: nothing is removed here."""

    def withdraw(self) -> int:
        """Keep what a capture that failed wrote."""
        return 0

    def missing(self, ref: BlobRef) -> list[ChunkRef]:
        """Return the chunks that are not here."""
        return [chunk for chunk in ref.chunks if chunk.digest not in self.chunks]

    def read_blob(self, ref: BlobRef) -> bytearray:
        """Return a blob."""
        return bytearray(b"".join(self.chunks[chunk.digest] for chunk in ref.chunks))

    def fill(self, ref: BlobRef, target: memoryview, own_map: int | None = None) -> None:
        """Fill memory with a blob."""
        target[:] = self.read_blob(ref)


class Notebook:
    """One replica's namespace and its state capture. `chunks` is shared by those who share a store."""

    def __init__(
        self,
        replica: str,
        chunks: dict[str, bytes] | None = None,
        parts: Sequence[Any] = (),
        inline: int = 16 * 1024,
        room: Any = None,
        cache: Any = None,
    ) -> None:
        self.namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self.cache = ChunkMemory({} if chunks is None else chunks) if cache is None else cache
        self.state = StateCapture(
            self.namespace,
            self.cache,
            ReplicaId(replica),
            inline_bytes_max=inline,
            ignore=frozenset(self.namespace),
            parts=parts,
            room=room,
        )

    def __getitem__(self, name: str) -> Any:
        return self.namespace[name]

    def __contains__(self, name: str) -> bool:
        return name in self.namespace

    def run(self, source: str, seq: int, terms: Terms = EVERYTHING) -> Delta:
        """Run a cell and capture what it changed; the delta has been over the wire."""
        exec(source, self.namespace)
        return self.capture(seq, terms)

    def capture(self, seq: int, terms: Terms = EVERYTHING) -> Delta:
        """Capture."""
        delta = self.state.capture(Seq(seq), Fence(seq), seq, terms)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(delta), type=Delta)

    def take(self, *deltas: Delta, everything: bool = True) -> RebuildReport:
        """Receive deltas and rebuild."""
        for delta in deltas:
            self.state.receive(delta)
        return self.state.rebuild(everything=everything, fetch=lambda refs: None)


def pair() -> tuple[Notebook, Notebook]:
    """Return two replicas that share their chunks."""
    chunks: dict[str, bytes] = {}
    return Notebook("r1", chunks), Notebook("r2", chunks)


def changed(delta: Delta) -> list[str]:
    """Return the variables of the components that a delta sets, sorted."""
    return sorted(name for component in delta.components for name in component.names if ":" not in name)


def moved(*cells: str) -> dict[str, object]:
    """Run cells on two replicas by turns; return the namespace in which a next one would run."""
    executor, standby = pair()
    for seq, source in enumerate(cells, start=1):
        delta = executor.run(source, seq)
        assert [pin for component in delta.components for pin in component.pins] == []
        assert standby.take(delta).failed == ()
        executor, standby = standby, executor
    return executor.namespace
