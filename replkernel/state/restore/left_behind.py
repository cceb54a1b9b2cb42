"""The names whose values wait while cells run that do not need them, and the bytes read for them meanwhile.

A name left behind is bound to nothing, so that nobody finds a stale value under it. Law: what the user binds
to such a name wins over what waits; nothing here touches a user object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from replkernel.errors import ReplkernelError
from replkernel.objects.cache import BlobCache
from replkernel.records import BlobRef, ComponentId, ComponentRecord, payload_blobs
from replkernel.state.process.own_threads import own_thread

_COPIED = frozenset({"torch", "pyarrow", "polars"})
"""What has memory that nothing can be mapped over."""

THREAD = "Read ahead"
"""The name of the thread that reads."""


class BlobReader(Protocol):
    """Gives the bytes of blobs that are on this host."""

    def read_blob(self, ref: BlobRef) -> bytearray:
        """Return a blob in a buffer of the caller's own."""
        ...

    def fill(self, ref: BlobRef, target: memoryview, own_map: int | None = None) -> None:
        """Fill memory with a blob, as `BlobCache.fill` does."""
        ...


class LeftBehind:
    """The variables of one namespace that were left behind; `names` are all of them, bound anew or not."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self.names: set[str] = set()
        self.disordered = False
        """Whether the namespace has lost its order by what was left out."""
        self._before: list[str] = []
        self.classes: list[type] = []
        """The classes that only waiting components refer to: they are held weakly everywhere else."""

    def leave(self, names: Iterable[str]) -> list[str]:
        """Leave these names behind and no others; return those whose present values are to go."""
        before, self.names = self.names, set(names)
        self.disordered = self.disordered or bool(self.names)
        self._before = list(self._namespace)
        return [name for name in self.names if name in self._namespace and name not in before]

    def keep(self, names: Iterable[str]) -> None:
        """Forget all but `names`: the others are here, or belong to something else."""
        self.names.intersection_update(names)

    def settle(self, received: tuple[str, ...] | None, known: tuple[str, ...]) -> tuple[str, ...] | None:
        """Note that nothing is left behind; return the order in which the namespace is to be put."""
        self.names.clear()
        disordered, self.disordered = self.disordered, False
        return known if received is None and disordered else received

    def forget(self, names: Iterable[str]) -> None:
        """Note that these names have their values."""
        self.names.difference_update(names)

    def bound_anew(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that were left behind and that the user has bound since."""
        return [name for name in names if name in self.names and name in self._namespace]

    def awaits(self, name: str) -> bool:
        """Tell whether a name is bound to nothing because its value waits."""
        return name in self.names and name not in self._namespace

    def _inserted_again(self, names: Sequence[str]) -> set[str]:
        """Return the names that were deleted and bound again since `leave`: they have moved to the end."""
        places = {name: place for place, name in enumerate(self._before)}
        last = -1
        again: set[str] = set()
        for name in names:
            place = places.get(name, last)
            if place < last:
                again.add(name)
            last = max(last, place)
        return again

    def order(self, names: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
        """Return the order that `names` have with those left behind, which had a place in `wanted`."""
        if not self.names and not self.disordered:
            return tuple(names)
        bound = set(names)
        placed = (bound - self._inserted_again(names)) | (self.names - bound)
        known = [name for name in wanted if name in placed]
        listed = set(known)
        return (*known, *(name for name in names if name not in listed))


def _is_mapped(record: ComponentRecord) -> bool:
    """Tell whether what is large of a component is numpy's alone: its arrays map their chunks."""
    return "numpy" in record.modules and _COPIED.isdisjoint(record.modules)


class ReadAhead:
    """Stands before the host's blob cache, with the blobs of one component read by a thread of its own.

    Memory: never more than one component's bytes, which are handed out once.
    """

    def __init__(self, cache: BlobCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._refs: frozenset[BlobRef] = frozenset()
        self._read: dict[BlobRef, bytearray] = {}
        self._thread: threading.Thread | None = None
        self.cid: ComponentId | None = None
        """The component that is being read, or was read last."""

    @property
    def busy(self) -> bool:
        """Tell whether a component is being read."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, record: ComponentRecord, bring: Callable[[], None], done: Callable[[], None]) -> None:
        """Read a component's blobs, after `bring` has seen to it that they are on this host.

        Both are called on a thread of their own; `done` also when the bytes could not be had.
        """
        if self.busy:
            return
        self.forget()
        self.cid = record.cid
        self._refs = frozenset(payload_blobs(record.payload))
        thread = own_thread(self._work, THREAD, (bring, done, _is_mapped(record)))
        thread.start()
        self._thread = thread  # Not before: a subshell may ask meanwhile, and only what runs can be joined.

    def forget(self) -> None:
        """Let go of what was read and not asked for."""
        with self._lock:
            self._read.clear()
            self.cid = None

    def _work(self, bring: Callable[[], None], done: Callable[[], None], mapped: bool) -> None:
        try:
            bring()
            for ref in self._refs:
                if mapped and self._cache.look_at(ref):
                    continue
                data = self._cache.read_blob(ref)
                with self._lock:
                    self._read[ref] = data
        except (ReplkernelError, OSError):
            pass  # Whoever needs the component meets the same error, and says so.
        done()

    def read_blob(self, ref: BlobRef) -> bytearray:
        """Return a blob in a buffer of the caller's own, as the cache does."""
        data = self._handed_out(ref)
        return self._cache.read_blob(ref) if data is None else data

    def fill(self, ref: BlobRef, target: memoryview, own_map: int | None = None) -> None:
        """Fill memory with a blob, as the cache does."""
        data = self._handed_out(ref)
        if data is None:
            self._cache.fill(ref, target, own_map)
        else:
            target[:] = data

    def _handed_out(self, ref: BlobRef) -> bytearray | None:
        thread = self._thread
        if thread is not None and ref in self._refs:
            thread.join()
        with self._lock:
            return self._read.pop(ref, None)

    def missing(self, ref: BlobRef) -> Sequence[Any]:
        """Return the chunks that the cache lacks."""
        return self._cache.missing(ref)
