"""What the large state of a host takes on its disk, each inode once: the agent counts, its processes read.

Law: the figure is a hint that is seconds old; a host where nobody counts takes nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

FILE = ".taken"
"""Where in the cache's directory the figure lies."""


def count(directories: Iterable[str]) -> int:
    """Return the bytes below `directories` that are on the disk of the first; may take a while."""
    sizes: dict[int, int] = {}
    device: int | None = None
    for directory in directories:
        with contextlib.suppress(OSError):
            own = os.stat(directory).st_dev
            device = own if device is None else device
            if own == device:
                _add(directory, sizes)
    return sum(sizes.values())


def _add(directory: str, sizes: dict[int, int]) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    _add(entry.path, sizes)
                else:
                    status = entry.stat(follow_symlinks=False)
                    sizes[status.st_ino] = status.st_blocks * 512


def tell(cache_dir: str, taken: int) -> None:
    """Leave the figure where processes look for it; raises OSError."""
    path = Path(cache_dir, FILE)
    fresh = path.with_name(f"{FILE}.{os.getpid()}")
    fresh.write_text(str(taken))
    os.replace(fresh, path)


def told(cache_dir: str) -> int:
    """Return the figure that was left last."""
    try:
        return max(0, int(Path(cache_dir, FILE).read_text()))
    except (OSError, ValueError):
        return 0
