"""`replkernel store collect`: delete now what no kernel has named for a day, as agents do by themselves.

Law: it deletes what a collection may delete and nothing else, whoever uses the store meanwhile.
"""

from __future__ import annotations

import os

from replkernel.objects.collect import GRACE_S, collect
from replkernel.objects.store import open_store
from replkernel.settings import read_settings


def run_collect() -> int:
    """Collect the store of REPLKERNEL_STORE, and say what was found; raises ReplkernelError."""
    env = dict(os.environ)
    store = open_store(read_settings(env).store_url, env)
    try:
        found = collect(store)
    finally:
        store.close()
    print(
        f"{store.url}: {found.stored:,} chunks, {found.named:,} named by kernels, "
        f"{found.deleted:,} deleted.\n"
        f"What nobody has named for less than {GRACE_S / 3600:g} hours stays, for a cell may be about to; "
        "what a running kernel has superseded in a file store goes by itself when room is short."
    )
    return 0
