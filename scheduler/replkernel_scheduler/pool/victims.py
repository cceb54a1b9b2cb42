"""Who is stopped for a newcomer: the rule of the pool, and of cells that may be paused (spec 3.2).

Law: it looks and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Running = TypeVar("Running")


def whom_to_stop(running: Iterable[tuple[int, Running]], have: int, gpus: int) -> list[Running]:
    """Return whom to stop of those `running`, each with its GPUs, longest first; none if that is not enough.

    `have` GPUs are free, and `gpus` are wanted. Who is not needed after all is left alone, the largest first.
    """
    found: list[tuple[int, Running]] = []
    if have < gpus:
        for entry in running:
            found.append(entry)
            have += entry[0]
            if have >= gpus:
                break
    if have < gpus:
        return []
    for entry in sorted(found, key=lambda entry: -entry[0]):
        if have - entry[0] >= gpus:
            have -= entry[0]
            found.remove(entry)
    return [one for _, one in found]
