"""How many nodes a job is spread over (spec 4.1).

Law: the fewest nodes that share its processes evenly; where none can, the fewest that have the cores, and the
last of them gets what is left.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Shape(NamedTuple):
    """`nodes` nodes with `each` processes; the last one has `last`."""

    nodes: int
    each: int
    last: int


@lru_cache(maxsize=4096)
def shape(width: int, cores: int, nodes: int) -> Shape | None:
    """Return how `width` processes go on nodes of `cores` cores; None if more than `nodes` were needed."""
    fewest = -(-width // cores)
    if not 0 < fewest <= nodes:
        return None
    for count in range(fewest, min(width, nodes) + 1):
        if width % count == 0:
            return Shape(count, width // count, width // count)
    each = -(-width // fewest)
    return Shape(fewest, each, width - each * (fewest - 1))
