"""What a kernel leaves in a store at its end: nothing, where the store can tell that nobody else uses it.

A chunk is *made* by the one kernel whose upload created it; any other kernel that comes upon it names it in a
mark before it relies on it, and looks again (`transfer`). At its end a kernel takes each chunk that it made
out of sight, reads all marks, and puts back what is named. Whoever relies on a chunk has either named it
before the marks were read, or looks again after it was out of sight, and stores it anew.
A server cannot hide: there the chunks that are about to go are *announced* in a document before all marks
are read, and whoever has named or made a chunk looks for announcements, and waits (`transfer`).
Law: a chunk that this kernel did not make, or that any mark names, is left to `collect`. What it has let go
it has not made any more, whether its name is free or not: who stores it again has, and nobody else names it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Collection, Iterable

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


def end_kernel(
    store: ObjectStore, kernel_id: KernelId, incarnation: str, made: Iterable[Digest] = ()
) -> set[Digest]:
    """Delete a kernel's documents and the chunks that nobody else uses; return these chunks."""
    noted = read_made(store, kernel_id, incarnation) | set(made)
    forget_kernel(store, kernel_id, incarnation)
    gone: set[Digest] = set()
    withdraw(store, noted, gone)
    return gone


def withdraw(store: ObjectStore, made: Iterable[Digest], gone: set[Digest]) -> None:
    """Delete those of `made` that no mark names; nothing, when a mark cannot be read.

    Adds to `gone` what is the maker's no more, also where it raises StoreError before its end.
    """
    if not store.can_withdraw:
        return
    named = read_marks(store)
    left = [digest for digest in made if digest not in named]
    for start in range(0, len(left), BATCH):
        some = left[start : start + BATCH]
        (_withdraw_hidden if store.hides else _withdraw_announced)(store, some, gone)


def read_announced(store: ObjectStore) -> dict[str, set[Digest]]:
    """Return the chunks that are about to go, by announcement; nothing where chunks are hidden instead."""
    found: dict[str, set[Digest]] = {}
    if store.can_withdraw and not store.hides:
        for name in store.list_documents(LEAVING):
            with contextlib.suppress(ValueError, DocumentUnfit):
                found[name] = decode_digests(store.get_document(name) or b"")
    return found


def _withdraw_announced(store: ObjectStore, digests: list[Digest], gone: set[Digest]) -> None:
    """Delete what no mark names, while an announcement says so.

    It stays where a deletion failed, for that may be carried out later: whoever waits gives up in the end.
    """
    name = f"{LEAVING}/{secrets.token_hex(8)}"
    began, began_by_wall = time.monotonic(), time.time()
    store.put_document(name, encode_digests(digests))
    named = read_marks(store)
    for digest in digests:
        if max(time.monotonic() - began, abs(time.time() - began_by_wall)) > LEAVING_S:
            break  # This process stood still, or the store is slow: the rest goes with the next batch.
        if digest not in named:
            gone.add(digest)  # Before: one that fails may be carried out all the same.
            store.delete(digest)
    store.delete_document(name)


def _withdraw_hidden(store: ObjectStore, digests: list[Digest], gone: set[Digest]) -> None:
    """Delete what no mark names while it is out of sight; bring back the rest, whatever fails."""
    named: Collection[Digest] = digests  # Until the marks were read.

    def end(digest: Digest, token: str) -> None:
        if digest not in named:
            gone.add(digest)
            store.drop(token)
        elif not store.show(digest, token):
            gone.add(digest)

    with contextlib.ExitStack() as ends:
        for digest in digests:
            if (token := store.hide(digest)) is None:
                gone.add(digest)
            else:
                ends.callback(end, digest, token)
        named = read_marks(store)
