"""Garbage collection of a shared store: a chunk goes when no kernel names it and it is not young.

Each kernel keeps a mark, a document with the digests that its committed state names, and renews it well
within the grace time (`MARK_EVERY_S`). A chunk that a delta is about to name was stored or refreshed less
than the grace time ago (`transfer.REFRESH_AFTER_S`), so it needs no mark yet. What a kernel made, and
nobody else uses, goes with the kernel where the store allows (`withdrawal`).
Law: when a mark cannot be read, nothing is deleted; no age is judged by a clock other than the store's.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from replkernel.errors import StoreError
from replkernel.objects.store import ObjectStore
from replkernel.records import Digest, KernelId

GRACE_S = 24 * 3600.0
"""A chunk put less than this ago, by the clock of the store, is never deleted."""

GRACE_MIN_S = 12 * 3600.0
"""No grace time is shorter: it must exceed `transfer.REFRESH_AFTER_S` and `MARK_EVERY_S` together."""

MARK_EVERY_S = 600.0
"""A kernel's keeper renews its mark this often, and before it hibernates."""

MARK_DIGESTS_MAX = 1_000_000
"""One kernel's mark names at most so many chunks (a terabyte of state)."""

DELETIONS_MAX = 100_000
"""One collection deletes at most so many chunks; the next goes on."""

MARK = "mark"
ABOUT = "about"
KINDS = (MARK, "checkpoint", "made", ABOUT)
"""What a kernel's documents are; the name of each, but for the plain mark, goes on with the incarnation."""

LEAVING = "leaving"
"""Where announcements of what is about to go lie, in place of a kernel's id (`withdrawal`)."""

CLOCK = "clock"
"""Where documents are put for a moment, to see by the store's clock what time it is."""

_DIGEST_BYTES = 32


class Collected(msgspec.Struct, frozen=True):
    """What a collection found: chunks in the store, chunks that kernels name, chunks deleted."""

    stored: int
    named: int
    deleted: int


def garbage(stored: Mapping[Digest, float], named: Collection[Digest], grace_s: float) -> list[Digest]:
    """Return the digests to delete, oldest first: those in `stored` (digest → age in seconds) that are
    not `named` and at least `grace_s` old.
    """
    keep = named if isinstance(named, AbstractSet) else frozenset(named)
    old = [(age_s, digest) for digest, age_s in stored.items() if age_s >= grace_s and digest not in keep]
    return [digest for _, digest in sorted(old, key=lambda item: (-item[0], item[1]))]


def write_mark(store: ObjectStore, kernel_id: KernelId, digests: Iterable[Digest], name: str = "") -> None:
    """Record the digests that the kernel's committed state names, in place of what was recorded.

    A kernel may have several marks: ``<kernel_id>/mark``, and others whose `name` begins so with a dash.
    """
    names = sorted(set(digests))
    if len(names) > MARK_DIGESTS_MAX:
        raise StoreError(
            store.url, f"takes no mark of more than {MARK_DIGESTS_MAX:,} chunks", "keep less in one notebook"
        )
    store.put_document(name or f"{kernel_id}/{MARK}", encode_digests(names))


def read_marks(store: ObjectStore) -> set[Digest]:
    """Return every digest that some kernel's mark names; raise StoreError when a mark is damaged."""
    named: set[Digest] = set()
    for document in store.list_documents():
        if not is_mark(document):
            continue
        data = store.get_document(document)
        if data is None:
            continue
        try:
            named |= decode_digests(data)
        except ValueError:
            raise StoreError(
                store.url,
                f"holds a damaged mark {document!r}",
                "run a cell of that notebook, which renews it",
            ) from None
    return named


def encode_digests(digests: Iterable[Digest]) -> bytes:
    """Return a document that lists digests."""
    return b"".join(bytes.fromhex(digest) for digest in digests)


def decode_digests(document: bytes) -> set[Digest]:
    """Return the digests that a document lists; raises ValueError when it is damaged."""
    if len(document) % _DIGEST_BYTES:
        raise ValueError("the document is not a list of digests")
    starts = range(0, len(document), _DIGEST_BYTES)
    return {Digest(document[start : start + _DIGEST_BYTES].hex()) for start in starts}


def is_mark(document: str) -> bool:
    """Tell whether a document is a mark."""
    what = document.rpartition("/")[2]
    return what == MARK or what.startswith(f"{MARK}-")


def forget_kernel(store: ObjectStore, kernel_id: KernelId, incarnation: str = "") -> None:
    """Delete all documents of a kernel that is no more, its marks last; its chunks become garbage.

    With an `incarnation`, only that one's: another one may have begun under the same id.
    """
    documents = sorted(store.list_documents(kernel_id), key=is_mark)
    for name in documents:
        if not incarnation or _is_of(name, incarnation):
            store.delete_document(name)


def _is_of(document: str, incarnation: str) -> bool:
    what = document.rpartition("/")[2]
    return what == MARK or any(what.startswith(f"{kind}-{incarnation}") for kind in KINDS)


def clock_ahead_s(store: ObjectStore) -> float:
    """Return by how much this host's clock is ahead of the store's: how old looks what was put just now."""
    name = f"{CLOCK}/{secrets.token_hex(8)}"
    store.put_document(name, b"")
    try:
        return store.list_documents(CLOCK).get(name, 0.0)
    finally:
        store.delete_document(name)


def collect(store: ObjectStore, *, grace_s: float = GRACE_S) -> Collected:
    """Delete the garbage of `store`, which any number of kernels and hosts may be using meanwhile.

    A clock of this host that is ahead of the store's would make everything look old: `grace_s` grows by that.

    The chunks are listed before the marks are read, and each is looked at again right before it goes, so
    that one which became young meanwhile stays. Blocks for long: call it from a worker thread.
    """
    if grace_s < GRACE_MIN_S:
        raise ValueError(f"grace_s={grace_s:g} is below GRACE_MIN_S={GRACE_MIN_S:g}")
    grace_s += clock_ahead_s(store)
    stored = store.list_digests()
    named = read_marks(store)
    for name, announced_s in store.list_documents(LEAVING).items():
        if announced_s >= grace_s:
            store.delete_document(name)  # Whoever announced deletions has died.
    deleted = 0
    for digest in garbage(stored, named, grace_s)[:DELETIONS_MAX]:
        age_s = store.age_s(digest)
        if age_s is not None and age_s >= grace_s:
            store.delete(digest)
            deleted += 1
    return Collected(len(stored), len(named), deleted)
