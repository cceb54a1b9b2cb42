"""On how many examples a property is tried: a quarter or less while somebody waits, all in `make nightly`."""

from __future__ import annotations

import os

WHOLE = os.environ.get("EXAMPLES") == "all"
LEAST = 10


def examples(whole: int, share: int = 4) -> int:
    """Return how many examples are tried, one of `share` of those that `make nightly` tries."""
    return whole if WHOLE else min(whole, max(LEAST, whole // share))
