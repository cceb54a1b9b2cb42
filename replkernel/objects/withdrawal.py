"""What a kernel leaves in a store at its end: nothing, where the store can tell that nobody else uses it.

A chunk is *made* by the one kernel whose upload created it; any other kernel that comes upon it names it in a
mark before it relies on it, and looks again (`transfer`). At its end a kernel takes each chunk that it made
out of sight, reads all marks, and puts back what is named. Whoever relies on a chunk has either named it
before the marks were read, or looks again after it was out of sight, and stores it anew.
A server cannot hide: there the chunks that are about to go are *announced* in a document before all marks
are read, and whoever has named or made a chunk looks for announcements, and waits (`transfer`).
Law: a chunk that this kernel did not make, or that any mark names, is left to `collect`.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable

from replkernel.errors import DocumentUnfit
from replkernel.objects.collect import LEAVING, decode_digests, encode_digests, forget_kernel, read_marks
from replkernel.objects.store import ObjectStore
from replkernel.records import Digest, KernelId

MADE = "made"
MADE_MAX = 1_000_000
"""No more made chunks than this are noted of one kernel on one host."""

LEAVING_S = 60.0
"""So long after its announcement a chunk may be deleted."""

LEAVING_MAX_S = 300.0
"""Whoever waits for an announcement to go gives up after this: whoever wrote it has died."""

BATCH = 500
"""So many chunks are out of sight at a time."""


def write_made(
    store: ObjectStore, kernel_id: KernelId, incarnation: str, host: str, made: Iterable[Digest]
) -> None:
    """Note which chunks a host has made for a kernel, for whoever ends the kernel later."""
    names = sorted(made)[:MADE_MAX]
    document = f"{kernel_id}/{MADE}-{incarnation}-{host}"
    if names:
        store.put_document(document, encode_digests(names))
    else:
        store.delete_document(document)


def read_made(
    store: ObjectStore, kernel_id: KernelId, incarnation: str, *, but: str | None = None
) -> set[Digest]:
    """Return the chunks that hosts, `but` for one, have noted; a damaged note counts as none."""
    found: set[Digest] = set()
    notes = f"{kernel_id}/{MADE}-{incarnation}-"
    for name in store.list_documents(kernel_id):
        if not name.startswith(notes) or name == f"{notes}{but}":
            continue
        with contextlib.suppress(ValueError, DocumentUnfit):
            found |= decode_digests(store.get_document(name) or b"")
    return found


def end_kernel(store: ObjectStore, kernel_id: KernelId, incarnation: str, made: Iterable[Digest] = ()) -> int:
    """Delete a kernel's documents and the chunks that nobody else uses; return how many chunks went."""
    noted = read_made(store, kernel_id, incarnation) | set(made)
    forget_kernel(store, kernel_id, incarnation)
    return withdraw(store, noted)


def withdraw(store: ObjectStore, made: Iterable[Digest]) -> int:
    """Delete those of `made` that no mark names; nothing, when a mark cannot be read. Return how many."""
    if not store.can_withdraw:
        return 0
    named = read_marks(store)
    left = [digest for digest in made if digest not in named]
    deleted = 0
    for start in range(0, len(left), BATCH):
        some = left[start : start + BATCH]
        deleted += _withdraw_some(store, some) if store.hides else _withdraw_announced(store, some)
    return deleted


def read_announced(store: ObjectStore) -> dict[str, set[Digest]]:
    """Return the chunks that are about to go, by announcement; nothing where chunks are hidden instead."""
    found: dict[str, set[Digest]] = {}
    if store.can_withdraw and not store.hides:
        for name in store.list_documents(LEAVING):
            with contextlib.suppress(ValueError, DocumentUnfit):
                found[name] = decode_digests(store.get_document(name) or b"")
    return found


def _withdraw_announced(store: ObjectStore, digests: list[Digest]) -> int:
    """Delete what no mark names, while an announcement says so.

    It stays where a deletion failed, for that may be carried out later: whoever waits gives up in the end.
    """
    name, deleted = f"{LEAVING}/{secrets.token_hex(8)}", 0
    began, began_by_wall = time.monotonic(), time.time()
    store.put_document(name, encode_digests(digests))
    named = read_marks(store)
    for digest in digests:
        if max(time.monotonic() - began, abs(time.time() - began_by_wall)) > LEAVING_S:
            break  # This process stood still, or the store is slow: the rest goes with the next batch.
        if digest not in named:
            store.delete(digest)
            deleted += 1
    store.delete_document(name)
    return deleted


def _withdraw_some(store: ObjectStore, digests: list[Digest]) -> int:
    hidden = {digest: token for digest in digests if (token := store.hide(digest)) is not None}
    try:
        named = read_marks(store)
    except BaseException:
        for digest, token in hidden.items():
            store.show(digest, token)
        raise
    for digest, token in hidden.items():
        if digest in named:
            store.show(digest, token)
        else:
            store.drop(token)
    return sum(digest not in named for digest in hidden)
