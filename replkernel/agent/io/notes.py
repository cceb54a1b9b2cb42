"""What one host has noted of a kernel in its store: the chunks that it made, and marks of what it needs.

All of it blocks. Law: each note is written whole, by one thread at a time; none once the kernel has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Set as AbstractSet

from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import MARK, write_mark
from replkernel.objects.shares import About, write_about
from replkernel.objects.store import ObjectStore
from replkernel.objects.withdrawal import end_kernel, read_made, write_made
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import Digest


class Notes:
    """The notes of `host` about one kernel."""

    def __init__(self, spec: KernelSpec, host: str) -> None:
        self._spec = spec
        self._host = host
        self._mark = f"{spec.kernel_id}/{MARK}-{spec.incarnation}"
        self._lock = threading.Lock()
        self._earlier: frozenset[Digest] | None = None
        """What hosts had noted before this agent began; None until it was read."""
        self._ended = False
        """Set under the lock before the kernel's notes are deleted: none is written after that."""
        self._introduced = False
        """Whether the store says what the kernel is called."""
        self._pending = True
        """Whether this host may have a mark of what waits for its commit; an agent before this one may."""

    def claim(self, store: ObjectStore, digests: set[Digest]) -> None:
        """Name chunks that other kernels made, so that they stay when those kernels end."""
        write_mark(store, self._spec.kernel_id, digests, name=f"{self._mark}-shared-{self._host}")

    def note_made(self, store: ObjectStore, made: frozenset[Digest]) -> None:
        """Note what this host made, for whoever ends the kernel later."""
        spec = self._spec
        with self._lock:
            if self._ended:
                return
            if not self._introduced:
                about = About(spec.session_id, spec.env.get("JUPYTERHUB_USER") or spec.env.get("USER", ""))
                write_about(store, spec.kernel_id, spec.incarnation, about)
                self._introduced = True
            made |= self._read_earlier(store)
            write_made(store, spec.kernel_id, spec.incarnation, self._host, made)

    def _read_earlier(self, store: ObjectStore) -> frozenset[Digest]:
        """Return what hosts had noted before this agent began (the caller holds the lock)."""
        if self._earlier is None:
            spec = self._spec
            self._earlier = frozenset(read_made(store, spec.kernel_id, spec.incarnation))
        return self._earlier

    def unnote(self, store: ObjectStore, kept: frozenset[Digest], due: AbstractSet[Digest]) -> set[Digest]:
        """Note what this host made without what is `due`; return what no other note names."""
        spec = self._spec
        free = due - read_made(store, spec.kernel_id, spec.incarnation, but=self._host)
        with self._lock:
            self._earlier = self._read_earlier(store) - free
            if not self._ended:
                made = (kept | self._earlier) - free
                write_made(store, spec.kernel_id, spec.incarnation, self._host, made)
        return set(free)

    def mark(self, store: ObjectStore, needed: set[Digest], in_flight: set[Digest]) -> None:
        """Name what the committed state needs, and, for this host, what waits for its commit however long."""
        pending = f"{self._mark}-pending-{self._host}"
        with self._lock:
            if self._ended:
                return
            if in_flight:
                write_mark(store, self._spec.kernel_id, in_flight, name=pending)
            write_mark(store, self._spec.kernel_id, needed, name=self._mark)
            if self._pending and not in_flight:
                store.delete_document(pending)
            self._pending = bool(in_flight)

    def end(self, store: ObjectStore, cache: BlobCache, made: set[Digest]) -> None:
        """Take the kernel's data out of the store, and what the store let go out of this host's cache."""
        spec = self._spec
        with self._lock:
            self._ended = True
        gone = end_kernel(store, spec.kernel_id, spec.incarnation, made)
        free = {digest for digest in gone if not store.has(digest)}  # Others may have stored some anew.
        cache.forget(free)
        cache.remove_unsaved(free)
