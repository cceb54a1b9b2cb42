"""A kernel's state written into a file: manifest, components, and each chunk of its blobs once, streamed.

Blocks. Law: a file is whole or not there; every chunk is verified by its digest on its way in.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from blake3 import blake3

from replkernel.carrying.container import BLOBS, MANIFEST, SIGNATURE, STATE, StateWriter, fresh_file
from replkernel.carrying.manifest import Manifest, manifest_of
from replkernel.carrying.signature import sign
from replkernel.carrying.taking import Taken, chunks_of, heads_of, taken
from replkernel.replication.checkpoint import digest_of

Progress = Callable[[int, int], None]
"""Is told how many bytes are done, and of how many."""


def silent(done: int, total: int) -> None:
    """Show nothing."""


def export_kernel(
    kernel_id: str,
    path: Path,
    env: Mapping[str, str],
    *,
    at: str = "",
    force: bool = False,
    key: Path | None = None,
    progress: Progress = silent,
) -> tuple[Manifest, bool]:
    """Write a kernel's state; return the manifest, and whether a cell ran, so that it is of an earlier one.

    `at` is a point of its history: a name, a branch or the number of a cell.
    Raises ReplkernelError and OSError.
    """
    with ended_in_order(), fresh_file(path, replace=force) as file, taken(kernel_id, env, at) as state:
        writer = StateWriter(file)
        manifest = _write(writer, state, key, progress)
        writer.close()
        return manifest, state.behind


def _write(writer: StateWriter, state: Taken, key: Path | None, progress: Progress) -> Manifest:
    components = state.table.components
    chunks = chunks_of(components)
    heads = heads_of(components, lambda chunk: state.store.get_chunk(chunk.digest))
    sizes = {digest: chunk.size for digest, chunk in chunks.items()}
    manifest = manifest_of(components, heads, digest_of(state.base), sizes, state.cell, time.time())
    told = msgspec.json.format(msgspec.json.encode(manifest))
    writer.add(MANIFEST, told)
    if key is not None:
        writer.add(SIGNATURE, sign(blake3(told).digest(), key))
    writer.add(STATE, state.base)
    done, total = 0, manifest.chunk_bytes
    for digest, chunk in chunks.items():
        writer.add(f"{BLOBS}{digest}", state.store.get_chunk(digest))
        done += chunk.size
        progress(done, total)
    return manifest


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Have SIGTERM end what is under way as an exception does, so that nothing half made is left."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # Not on the main thread: whoever runs it there ends it otherwise.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def shown_progress(word: str) -> Progress:
    """Return what shows progress on the terminal, once a tenth of a second; nothing where there is none."""
    if not os.isatty(2):
        return silent
    last = [0.0]

    def show(done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] > 0.1 or done == total:
            last[0] = now
            end = "\n" if done == total else ""
            sys.stderr.write(f"\r{word} {done >> 20:,} of {total >> 20:,} MiB{end}")
            sys.stderr.flush()

    return show
