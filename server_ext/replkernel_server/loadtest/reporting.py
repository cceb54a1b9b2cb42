"""What is told of a load test: progress while it runs, then the figures, for people and in files."""

from __future__ import annotations

import csv
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from replkernel_server.loadtest import figures
from replkernel_server.loadtest.figures import Figures
from replkernel_server.loadtest.plan import LoadPlan, Wanted
from replkernel_server.loadtest.playing import Manner, Playing
from replkernel_server.loadtest.samples import CellSample

LINE_EVERY_S = 10.0


def teller(*, quiet: bool) -> Callable[[str], None]:
    """Return who tells progress: in one line of a terminal, or a line each ten seconds."""
    terminal = sys.stderr.isatty()
    last = 0.0

    def tell(line: str) -> None:
        nonlocal last
        now = time.monotonic()
        if terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif now - last >= LINE_EVERY_S:
            last = now
            print(line, file=sys.stderr, flush=True)

    return (lambda _: None) if quiet else tell


def figures_of(plan: LoadPlan, wanted: Wanted, manner: Manner, playing: Playing) -> Figures:
    """Return all figures of a run."""
    machine = figures.machine(playing.seen.machine, psutil.cpu_count() or 1, playing.seen.cores_used())
    started, failed = figures.starts(playing.starts)
    told: dict[str, Any] = figures.times(playing.cells) | figures.memory(playing.seen)
    notes = [note for note in (playing.listening.trouble, playing.seen.trouble) if note]
    if playing.not_ended:
        notes.append(f"NOT ENDED, please do it yourself: {', '.join(playing.not_ended)}.")
    safety = Counter(cell.safety or "untold" for cell in playing.cells)
    return Figures(
        **told,
        sessions=len(playing.starts),
        sessions_at_once=playing.open_max,
        kernel=manner.kernel,
        played_s=playing.played_s,
        speed=wanted.speed,
        ended=", stopped by Ctrl-C" if playing.stop.is_set() else "",
        cells=len(playing.cells),
        cells_planned=plan.cells,
        troubles=figures.troubles(playing.cells),
        safety={} if playing.listening.trouble else dict(safety),
        starts=started,
        starts_failed=failed,
        leases_granted=sum(cell.lease_wait_s is not None for cell in playing.cells),
        leases_at_once=playing.listening.leases_max,
        leases_waiting_at_once=playing.listening.waiting_max,
        machine=machine,
        limit=figures.limit(machine, len(playing.seen.machine.busy)),
        notes=notes,
    )


def write(out: Path, of: Figures, cells: list[CellSample]) -> None:
    """Write `loadtest.json` and `cells.csv`."""
    (out / "loadtest.json").write_bytes(msgspec.json.format(msgspec.json.encode(of), indent=2) + b"\n")
    with (out / "cells.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, CellSample.__struct_fields__)
        rows.writeheader()
        rows.writerows(msgspec.to_builtins(cell) for cell in cells)


def went_well(of: Figures) -> bool:
    """Tell whether nothing went wrong."""
    lost = of.safety.get("lost", 0)
    return not (of.troubles or of.starts_failed or lost) and of.cells > 0
