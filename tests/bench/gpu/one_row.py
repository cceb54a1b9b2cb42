"""`python -m tests.bench.gpu.one_row NAME GB [--pretend]`: one row, in this process; its figures as JSON.

Law: what goes wrong here is one row's, and is told in it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.bench.gpu import hazards
from tests.bench.gpu.card import Card, Pretended, Real
from tests.bench.gpu.first_kernel import contending, first_kernel
from tests.bench.gpu.rows import Row, by_driver, by_torch, capture, guarded, notebookos, training

MARK = "rows: "
SIZES_GB = (1.0, 10.0, 40.0, 70.0)
HAZARD_LIMIT_S = 40.0
LIBRARIES = ("torch", "jax", "cupy", "numba", "tensorflow")

LIMIT_S = 60.0
SHORT_LIMIT_S = 150.0
"""The short form runs beside other tests, on a machine that is busy with them."""


class Plan(NamedTuple):
    """One row that is to be measured: its name, the state's size, and how long it may take."""

    name: str
    gb: float
    limit_s: float


NOTEBOOKS: dict[str, Callable[[Card, int], Any]] = {"first-kernel": first_kernel, "contending": contending}
ON_A_CARD: dict[str, Callable[[Card, int], Any]] = {
    "training": training,
    "capture": capture,
    "notebookos": notebookos,
    "by-torch": by_torch,
    "by-driver": by_driver,
}
HAZARDS: dict[str, Callable[[int], Row]] = {
    "pressure": hazards.pressure,
    "remap": hazards.remap,
    "managed-memory": hazards.managed_memory,
    "nccl": hazards.nccl,
    "children": hazards.children,
    "mig": hazards.mig,
    **{f"first-use-{name}": hazards.first_use_of(name) for name in LIBRARIES},
    "first-use-process": hazards.first_use_of("process"),
}


def plan(gb: float, *, short: bool) -> list[Plan]:
    """Return all rows in their order: what is short and is promised comes before what is large."""
    sizes = [gb] if short else SIZES_GB
    limit_s = SHORT_LIMIT_S if short else LIMIT_S
    rows = [Plan(name, gb, limit_s) for name in NOTEBOOKS]
    rows += [Plan(name, gb, HAZARD_LIMIT_S) for name in HAZARDS]
    rows += [Plan(name, gb, limit_s) for name in ("training", "capture", "notebookos")]
    return rows + [Plan(name, size, 30 + 2 * size) for size in sizes for name in ("by-torch", "by-driver")]


def measured(name: str, size: int, *, pretend: bool) -> list[Row]:
    """Measure one row."""
    if name in HAZARDS:
        return hazards.told(HAZARDS[name], size, pretend=pretend)
    # A notebook's kernel is a process of its own: this one has nothing on the GPU then.
    card: Card = Pretended() if pretend else Real()
    return guarded({**NOTEBOOKS, **ON_A_CARD}[name], card, size)


def main(arguments: Sequence[str]) -> int:
    """Measure it and print its rows."""
    name, gb, *rest = arguments
    if name not in {**HAZARDS, **NOTEBOOKS, **ON_A_CARD}:
        sys.exit(f"There is no row {name}.")
    rows = measured(name, int(float(gb) * 1e9), pretend="--pretend" in rest)
    print(MARK + json.dumps(rows), flush=True)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # Who lets go of an event while the driver has the process waits for ever.
