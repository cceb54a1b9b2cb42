"""`replkernel store collect` and `usage`: what is in the object store, and the end of what nobody names.

Law: what is deleted is what a collection may delete and nothing else, whoever uses the store meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from replkernel.carrying.unfinished import tidy_unfinished
from replkernel.cli.status import format_bytes, table
from replkernel.objects.collect import GRACE_S, collect
from replkernel.objects.shares import Share, Shares, read_shares
from replkernel.objects.store import open_store
from replkernel.records import Digest, KernelId
from replkernel.settings import data_dir, read_settings

COLUMNS = ("KERNEL", "NOTEBOOK", "USER", "IN USE", "SHARED", "SUPERSEDED", "IN CACHE HERE")


def run_collect() -> int:
    """Collect the store of REPLKERNEL_STORE, and say what was found; raises ReplkernelError."""
    env = dict(os.environ)
    store = open_store(read_settings(env).store_url, env)
    try:
        tidy_unfinished(store, env)
        found = collect(store)
    finally:
        store.close()
    print(
        f"{store.url}: {found.stored:,} chunks, {found.named:,} named by kernels, "
        f"{found.deleted:,} deleted.\n"
        f"What nobody has named for less than {GRACE_S / 3600:g} hours stays, for a cell may be about to; "
        "what a running kernel has superseded goes by itself."
    )
    return 0


def run_usage(*, as_json: bool) -> int:
    """Say who has what in the store of REPLKERNEL_STORE; raises ReplkernelError."""
    env = dict(os.environ)
    store = open_store(read_settings(env).store_url, env)
    try:
        shares = read_shares(store)
    finally:
        store.close()
    caches = [path for path in (data_dir(env) / "agents").glob("*/cache") if path.is_dir()]
    cached = {share.kernel_id: _cached(caches, share.digests) for share in shares.kernels}
    if as_json:
        print(msgspec.json.encode(_document(store.url, shares, cached)).decode())
    else:
        print("\n".join(describe(store.url, shares, cached)))
    return 0


def describe(url: str, shares: Shares, cached: Mapping[KernelId, int]) -> list[str]:
    """Return a table for people."""
    head = f"{url}: {format_bytes(shares.total)} of large state, of {len(shares.kernels)} kernels."
    rows = [COLUMNS, *(_row(share, cached[share.kernel_id]) for share in shares.kernels)]
    lines = [head, *table(rows)] if shares.kernels else [head]
    if shares.nobodys:
        lines.append(
            f"{format_bytes(shares.nobodys)} are nobody's: a cell may be about to name them; else they go "
            f"after {GRACE_S / 3600:g} hours (`replkernel store collect`)."
        )
    return lines


def _row(share: Share, cached: int) -> tuple[str, ...]:
    figures = (share.in_use, share.shared, share.superseded, cached)
    about = (share.about.notebook or "-", share.about.user or "-")
    return (share.kernel_id, *about, *(format_bytes(figure) for figure in figures))


def _document(url: str, shares: Shares, cached: Mapping[KernelId, int]) -> dict[str, object]:
    kernels = [
        {
            "kernel_id": share.kernel_id,
            "notebook": share.about.notebook,
            "user": share.about.user,
            "in_use_bytes": share.in_use,
            "shared_bytes": share.shared,
            "superseded_bytes": share.superseded,
            "cached_here_bytes": cached[share.kernel_id],
        }
        for share in shares.kernels
    ]
    return {
        "store": url,
        "total_bytes": shares.total,
        "nobodys_bytes": shares.nobodys,
        "kernels": kernels,
    }


def _cached(caches: Collection[Path], digests: Iterable[Digest]) -> int:
    """Return what this user's caches on this machine have of some chunks."""
    total = 0
    for digest in digests:
        for cache in caches:
            with contextlib.suppress(OSError):
                total += os.stat(cache / digest[:2] / digest).st_size
    return total
