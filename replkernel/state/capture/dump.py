"""One unit as dumped: its stream and buffers, its fingerprint, and what the survey must know of it.

A fingerprint is made of local digests: of the stream, and of the buffers chunk by chunk. Law: it says
"unchanged" in the process that made it and is never compared with another's.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from xxhash import xxh3_128_digest

from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.state.capture.budget import OPEN_GATE, Gate
from replkernel.state.capture.memo_table import MemoTable
from replkernel.state.format.stream import FORMAT_VERSION, Head
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.tombstone import Loss


class Mode(msgspec.Struct, frozen=True, array_like=True):
    """How a unit is dumped: replacing what fails, and on the large stack."""

    careful: bool = False
    deep: bool = False


FAST = Mode()


class Identity(int):
    """An identity that is no object's id, as a storage's, where such are compared across units."""

    __slots__ = ()


class Dump(msgspec.Struct):
    """One unit. `memo` maps the ids of its objects to them and keeps them alive until dropped.

    A large unit has no copy of its memo but the `table` of the pickler that dumped it and nothing else.
    `ranges` are the addresses of its buffers; `links` are objects (or an `Identity`) that stuck objects hold;
    `unlinked` are ids that join nobody; `classes` are the notebook's classes that it refers to;
    `codes` are the code objects of its functions, None for a builtin that may reach every name;
    `keys` are the buffers' (address, bytes), as far as they have one;
    `seconds` is what the dump took; `gpus` is on how many GPUs its tensors lie.
    """

    roots: tuple[str, ...]
    single: bool
    mode: Mode
    parts: list[bytes]
    fingerprint: bytes
    memo: dict[int, tuple[int, Any]]
    table: MemoTable | None = None
    cuts: Sequence[tuple[int, int]] = ()
    digests: Sequence[bytes] = ()
    buffers: Sequence[Any] = ()
    keys: Sequence[tuple[int, int] | None] = ()
    native: Sequence[int] = ()
    losses: Sequence[Loss] = ()
    classes: AbstractSet[str] = frozenset()
    modules: AbstractSet[str] = frozenset()
    ranges: Sequence[tuple[int, int]] = ()
    links: Sequence[Any] = ()
    unlinked: AbstractSet[int] = frozenset()
    own_classes: tuple[str, ...] = ()
    codes: Sequence[Any] = ()
    seconds: float = 0.0
    gpus: int = 0

    def objects(self) -> int:
        """Return how many objects the unit has."""
        return len(self.memo) if self.table is None else len(self.table)

    def size(self) -> int:
        """Return how many bytes the unit has in its stream and its buffers."""
        return sum(len(part) for part in self.parts) + sum(len(buffer) for buffer in self.buffers)

    def head(self) -> Head:
        """Return the head that goes in front of the stream."""
        return Head(FORMAT_VERSION, self.roots, self.single, tuple(self.cuts), tuple(self.native))


def hash_buffers(dump: Dump, digests: BufferDigests) -> None:
    """Add to a dump's fingerprint, which is that of its stream, those of its buffers."""
    dump.digests = [digests.of(*pair) for pair in zip(dump.buffers, dump.keys, strict=True)]
    dump.fingerprint += b"".join(dump.digests)


def roots_of(dump: Dump) -> tuple[str, ...]:
    """Return the roots of a unit: its names, then its classes."""
    if not dump.own_classes:
        return dump.roots
    return (*dump.roots, *(ROOT_PREFIX + class_id for class_id in dump.own_classes))


# The digests of buffers.

DIGEST_BYTES = 16
SHARED_BYTES = 8 << 20
"""A buffer of so many bytes is worth a second thread, which costs as much as hashing 2 MB."""


class BufferDigests:
    """The digests of the buffers met in one capture: a buffer in two dumps is hashed once."""

    def __init__(self, gate: Gate = OPEN_GATE) -> None:
        self._known: dict[tuple[int, int], bytes] = {}
        self._gate = gate
        self._begun = Chunks((), gate)

    def begin(self, views: Sequence[Any]) -> None:
        """Have the buffers of `views` hashed from now on, while this thread does something else.

        It takes part when it is to `finish`, or asks for one of them. Whoever begins ends with `end`,
        whatever happens.
        """
        self.end()
        plain = [view for view in views if isinstance(view, memoryview) and len(view) > CHUNK_BYTES]
        self._begun = Chunks(plain, self._gate)

    def finish(self) -> None:
        """Hash all that was begun; raises GiveWay when somebody waits for this thread.

        What else it meets is met again by whoever asks for that buffer.
        """
        try:
            self._begun.finish()
        except Exception:
            self.end()

    def end(self) -> None:
        """Hash nothing any more of what was begun."""
        self._begun.end()
        self._begun = Chunks((), self._gate)

    def seconds(self, view: object) -> float:
        """Return about what it took to hash a view, if it was begun with."""
        return self._begun.seconds(view) if view in self._begun else 0.0

    def of(self, view: Any, key: tuple[int, int] | None) -> bytes:
        """Return the digests of the buffer's chunks, one after the other; `key` is (address, bytes).

        A buffer on a device hashes itself there.
        """
        if key is not None:
            known = self._known.get(key)
            if known is not None:
                return known
        if not isinstance(view, memoryview) and hasattr(view, "digest"):
            return bytes(view.digest())
        size = len(view)
        digests = bytes(xxh3_128_digest(view)) if size <= CHUNK_BYTES else self._of_chunks(view)
        digests += size_mark(size)
        if key is not None:
            self._known[key] = digests
        return digests

    def _of_chunks(self, view: object) -> bytes:
        chunks = self._begun if view in self._begun else Chunks((view,), self._gate)
        return chunks.of(view)


class Chunks:
    """The chunks of some views, hashed by whoever asks for them and by a second thread, for memory feeds two.

    Each takes the next chunk that nobody has taken, so that neither waits for the other, whenever the system
    lets the second one begin. User code that lists threads does not meet that one.
    Law: it has let go of the views before anybody is told of any, or `end` returns.
    """

    def __init__(self, views: Sequence[Any], gate: Gate) -> None:
        self._views = views
        self._number = {id(view): number for number, view in enumerate(views)}
        self._gate = gate
        # The next of a list is one step, whatever thread asks.
        self._left = iter(
            [(n, at) for n, view in enumerate(views) for at in range(0, len(view), CHUNK_BYTES)]
        )
        self._digests: dict[tuple[int, int], bytes] = {}
        self._rate = 0.0
        self._helper: _Helper | None = None
        if sum(map(len, views)) >= SHARED_BYTES:
            with contextlib.suppress(RuntimeError):  # The system has no thread to give.
                self._helper = _Helper(views, self._left, self._digests)

    def __contains__(self, view: object) -> bool:
        """Tell whether this view is among them."""
        return id(view) in self._number

    def of(self, view: Any) -> bytes:
        """Return the digests of one view's chunks, one after the other, when those of all are made."""
        self.finish()
        number = self._number[id(view)]
        return b"".join([self._digests[number, at] for at in range(0, len(view), CHUNK_BYTES)])

    def finish(self) -> None:
        """Take part until nothing is left.

        Raises what the second thread met, and GiveWay when somebody waits for this one.
        """
        began = time.perf_counter()
        try:
            taken = _take_chunks(self._views, self._left, self._digests, self._gate)
        finally:
            self.end()
        if self._helper is not None and self._helper.error is not None:
            raise self._helper.error
        if taken:
            self._rate = (time.perf_counter() - began) / taken

    def seconds(self, view: Any) -> float:
        """Return how long both threads hash a view, by what this one took for its chunks."""
        return self._rate * len(view) / CHUNK_BYTES / (1 if self._helper is None else 2)

    def end(self) -> None:
        """Take no more of them."""
        collections.deque(self._left, maxlen=0)
        if self._helper is not None:
            self._helper.end()


class _Helper:
    """The second thread."""

    def __init__(
        self, views: Sequence[Any], left: Iterator[tuple[int, int]], digests: dict[tuple[int, int], bytes]
    ) -> None:
        """Begin to take chunks; raises RuntimeError when the system has no thread to give."""
        self._views: Sequence[Any] = views
        self._left = left
        self._digests = digests
        self._began = False
        self.error: Exception | None = None
        """What it met."""
        self._done = _thread.allocate_lock()
        self._done.acquire()
        _thread.start_new_thread(self._work, ())

    def _work(self) -> None:
        self._began = True
        views, self._views = self._views, ()
        try:
            if views:
                _take_chunks(views, self._left, self._digests, OPEN_GATE)
        except Exception as error:  # of whoever asked for the digests
            self.error = error
        finally:
            views = ()
            self._done.release()

    def end(self) -> None:
        """Wait until it has let go of the views. One that has not begun never will."""
        self._views = ()
        if self._began:
            with self._done:
                pass


def _take_chunks(
    views: Sequence[Any],
    left: Iterator[tuple[int, int]],
    digests: dict[tuple[int, int], bytes],
    gate: Gate,
) -> int:
    """Hash what is left; return how many chunks that were."""
    taken = 0
    for number, at in left:
        gate.check()
        digests[number, at] = xxh3_128_digest(views[number][at : at + CHUNK_BYTES])
        taken += 1
    return taken


def size_mark(size: int) -> bytes:
    """Return what stands behind a buffer's digests: how many bytes it has."""
    return size.to_bytes(8, "little")


def digest_of_stream(parts: list[bytes]) -> bytes:
    """Return the local digest of a stream in pieces."""
    if len(parts) == 1:
        return bytes(xxh3_128_digest(parts[0]))
    from xxhash import xxh3_128

    state = xxh3_128()
    for part in parts:
        state.update(part)
    return bytes(state.digest())
