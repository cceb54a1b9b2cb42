"""Who has what in a store: bytes in use, shared, superseded, for each kernel; pure, and the reading of it.

Law: nothing is deleted here, and what no document explains is told as nobody's.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from replkernel.errors import DocumentUnfit
from replkernel.objects.collect import ABOUT, decode_digests, is_mark
from replkernel.objects.store import ObjectStore
from replkernel.objects.withdrawal import MADE
from replkernel.records import Digest, KernelId

ABOUT_CHARS_MAX = 500


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a kernel says of itself to whoever looks after the store."""

    notebook: str = ""
    user: str = ""


class Share(msgspec.Struct, frozen=True):
    """One kernel's part of a store, in bytes.

    `in_use` is what its state or a checkpoint of it names, `shared` what other kernels' do as well of that,
    `superseded` what it made and no kernel names any more. `digests` are all of these chunks.
    """

    kernel_id: KernelId
    about: About
    in_use: int
    shared: int
    superseded: int
    digests: frozenset[Digest]


class Shares(msgspec.Struct, frozen=True):
    """All kernels' parts, the largest first; `nobodys` bytes are named and noted by no kernel."""

    kernels: tuple[Share, ...]
    total: int
    nobodys: int


def shares_of(
    sizes: Mapping[Digest, int],
    named: Mapping[KernelId, AbstractSet[Digest]],
    made: Mapping[KernelId, AbstractSet[Digest]],
    about: Mapping[KernelId, About],
) -> Shares:
    """Divide a store whose chunks have these `sizes` among the kernels that have `named` and `made` them."""

    def total(digests: AbstractSet[Digest]) -> int:
        return sum(sizes.get(digest, 0) for digest in digests)

    users = Counter(digest for digests in named.values() for digest in digests)
    found: list[Share] = []
    for kernel_id in sorted(named.keys() | made.keys() | about.keys()):
        own = frozenset(named.get(kernel_id, ()))
        left = frozenset(made.get(kernel_id, ())) - users.keys()
        shared = {digest for digest in own if users[digest] > 1}
        found.append(
            Share(
                kernel_id,
                about.get(kernel_id, About()),
                total(own),
                total(shared),
                total(left),
                own | left,
            )
        )
    found.sort(key=lambda share: (-share.in_use - share.superseded, share.kernel_id))
    known = frozenset[Digest]().union(*(share.digests for share in found))
    return Shares(tuple(found), sum(sizes.values()), sum(sizes.values()) - total(known))


def read_shares(store: ObjectStore) -> Shares:
    """Read who has what. Blocks for as long as the store needs to list everything; raises StoreError."""
    sizes = store.list_sizes()
    named: dict[KernelId, set[Digest]] = {}
    made: dict[KernelId, set[Digest]] = {}
    about: dict[KernelId, About] = {}
    for document in store.list_documents():
        kernel_id, what = KernelId(document.partition("/")[0]), document.rpartition("/")[2]
        listed = named if is_mark(document) else made if what.startswith(f"{MADE}-") else None
        if listed is None and not what.startswith(f"{ABOUT}-"):
            continue
        with contextlib.suppress(ValueError, DocumentUnfit):
            data = store.get_document(document) or b""
            if listed is None:
                about[kernel_id] = msgspec.json.decode(data, type=About)
            else:
                listed.setdefault(kernel_id, set()).update(decode_digests(data))
    return shares_of(sizes, named, made, about)


def write_about(store: ObjectStore, kernel_id: KernelId, incarnation: str, about: About) -> None:
    """Say what a kernel is called."""
    short = About(about.notebook[-ABOUT_CHARS_MAX:], about.user[:ABOUT_CHARS_MAX])
    store.put_document(f"{kernel_id}/{ABOUT}-{incarnation}", msgspec.json.encode(short))
