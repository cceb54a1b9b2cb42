"""Keeping a blob cache bounded: which chunks leave it, and how one leaves while other processes use it.

`victims` decides and is pure. A chunk leaves by a rename to a name nobody reads, a second look at what was
renamed, and only then the unlink: whoever asked for it meanwhile gets it back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

UNSAVED_MODE = 0o600
"""The mode of a chunk that no store is known to hold."""

SHARED_MODE = 0o700
"""The mode of an unsaved chunk that others than its writer have asked for: he may not withdraw it."""

SAVED_MODE = 0o400
"""The mode of a chunk that a store holds: it may be evicted."""

UNSAVED_AGE_MAX_S = 24 * 3600.0
"""An unsaved chunk untouched for so long was left by a process that died before it proposed its delta."""

SCRAP_AGE_MAX_S = 3600.0
"""A temporary file this old was left by a process that died while it wrote."""

LOW_WATER = 0.9
"""Eviction goes on until this part of the bound is left, so that it does not run for every chunk."""

DIGEST_LENGTH = 64


class CachedChunk(NamedTuple):
    """A chunk as the sweep found it: its name, its bytes on disk, its last use, whether a store holds it."""

    digest: str
    size: int
    used_at: float
    saved: bool


def victims(
    chunks: Iterable[CachedChunk], protected: Collection[str], bytes_goal: int, now: float, rest_s: float
) -> list[CachedChunk]:
    """Return the chunks to evict, least recently used first, so that at most `bytes_goal` stay, if possible.

    Never chosen: protected chunks, unsaved ones younger than UNSAVED_AGE_MAX_S, any used within `rest_s`.
    """
    found = sorted(chunks, key=lambda chunk: chunk.used_at)
    excess = sum(chunk.size for chunk in found) - bytes_goal
    chosen: list[CachedChunk] = []
    for chunk in found:
        if excess <= 0:
            break
        age_s = now - chunk.used_at
        if chunk.digest in protected or age_s < rest_s or not (chunk.saved or age_s > UNSAVED_AGE_MAX_S):
            continue
        chosen.append(chunk)
        excess -= chunk.size
    return chosen


def sweep(
    directory: Path, protected: Collection[str], bytes_max: int, rest_s: float, *, wanted_bytes: int = 0
) -> int:
    """Bring the cache below `bytes_max` and return the bytes freed; one process at a time does it.

    `wanted_bytes` asks for that much room even below the bound (the disk is full), and waits for its turn.
    """
    lock = os.open(directory / ".evict.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wanted_bytes else fcntl.LOCK_NB))
        except BlockingIOError:
            return 0
        now = time.time()
        chunks = list(_scan(directory, now))
        total = sum(chunk.size for chunk in chunks)
        goal = int(bytes_max * LOW_WATER) if total > bytes_max else total
        chosen = victims(chunks, protected, min(goal, total - wanted_bytes), now, rest_s)
        return sum(chunk.size for chunk in chosen if _remove(directory, chunk))
    finally:
        os.close(lock)


def sweep_unsaved(directory: Path, before: float) -> int:
    """Remove every chunk that no store holds and nobody has asked for since `before`; return how many."""
    chunks = [chunk for chunk in _scan(directory, time.time()) if not chunk.saved and chunk.used_at < before]
    return sum(_remove(directory, chunk) for chunk in chunks)


def _scan(directory: Path, now: float) -> Iterator[CachedChunk]:
    """Yield every chunk below `directory`; remove what dead processes left half written."""
    with os.scandir(directory) as shards:
        names = [shard.path for shard in shards if len(shard.name) == 2 and shard.is_dir()]
    for name in names:
        with os.scandir(name) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if len(entry.name) == DIGEST_LENGTH:
                        size = max(status.st_size, status.st_blocks * 512)
                        saved = not status.st_mode & 0o200
                        yield CachedChunk(entry.name, size, status.st_mtime, saved)
                    elif now - status.st_mtime > SCRAP_AGE_MAX_S:
                        os.unlink(entry.path)


def forget_saved(directory: Path, digest: str) -> bool:
    """Remove one chunk that a store held, unless it was written again; tell whether it went."""
    try:
        status = os.stat(directory / digest[:2] / digest)
    except FileNotFoundError:
        return False
    saved = not status.st_mode & 0o200
    return saved and _remove(directory, CachedChunk(digest, status.st_size, status.st_mtime, saved))


def _remove(directory: Path, chunk: CachedChunk) -> bool:
    """Unlink `chunk` unless it was asked for since it was chosen."""
    path = directory / chunk.digest[:2] / chunk.digest
    aside = path.with_name(f".{chunk.digest}.evicted")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return False
    status = os.stat(aside)
    wanted = status.st_mtime > chunk.used_at or (chunk.saved and status.st_mode & 0o200)
    if wanted:
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    os.unlink(aside)
    return not wanted
