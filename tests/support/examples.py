"""On how many examples a property is tried: a quarter while somebody waits, all of them in `make nightly`."""

from __future__ import annotations

import os

WHOLE = os.environ.get("EXAMPLES") == "all"
LEAST = 10


def examples(whole: int) -> int:
    """Return how many examples are tried, of as many as `make nightly` tries."""
    return whole if WHOLE else min(whole, max(LEAST, whole // 4))
