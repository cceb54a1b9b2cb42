"""Where the file lies that an open one was opened from, also when the working directory is another by now."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from replkernel.state.capture.outcomes import CannotTravel

_OPEN = "/proc/self/fd"


def path_of(raw: Any) -> str:
    """Return the path under which an open file's own file is found; raise CannotTravel where it has none.

    `raw` is the `io.FileIO`, or what has its name and descriptor.
    """
    name = os.fsdecode(raw.name)
    held = os.fstat(raw.fileno())
    places = [os.path.abspath(name)]
    if not os.path.isabs(name):
        with contextlib.suppress(OSError):
            places.append(os.readlink(f"{_OPEN}/{raw.fileno()}"))
    for place in places:
        with contextlib.suppress(OSError):
            if (os.path.isfile(place) or place == os.devnull) and os.path.samestat(held, os.stat(place)):
                return place
    raise CannotTravel(f"The file {places[-1].removesuffix(' (deleted)')} is no longer at its path.")
