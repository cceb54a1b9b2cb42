"""The namespace that state is measured on, and a kernel of ours whose notes tell what each cell cost.

The same cells run on ours, on stock, and (from `state_peers`) with the whole namespace written after each.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.kernels import Kernel, kernel, place
from tests.bench.state_probe import INSTALL
from tests.support.stock import OURS

COMMIT_S = 120.0
LOOK_S = 0.01
"""How often the notes are looked at, from beside what is measured: it takes its share of the processors."""
TOUCHED_BYTES = 5 << 30
SMALL = """\
for _number in range(500):
    globals()[f"n{_number}"] = _number
    globals()[f"s{_number}"] = f"text {_number}"
    globals()[f"l{_number}"] = [_number, str(_number)]
    globals()[f"d{_number}"] = {"number": _number, "list": [_number]}
del _number
"""
LARGE = """\
import numpy as np
import pandas as pd
import torch
arr = np.random.default_rng(0).random(12_500_000)
frame = pd.DataFrame(np.random.default_rng(1).random((1_250_000, 10)))
tensor = torch.rand(25_000_000)
strings = pd.DataFrame({"text": [f"line {i} of the text" for i in range(1_000_000)]})
"""
"""2,000 small variables; 330 MB: 100 MB each of numpy, pandas and torch, and a frame of a million strings."""


def touch_memory() -> None:
    """Have the system hold pages that were used before, for both sides of a comparison.

    A virtual machine pays ten times for memory that it touches for the first time since its start, which
    would be measured in place of the kernels.
    """
    block = bytes(TOUCHED_BYTES // 64)
    with mmap.mmap(-1, TOUCHED_BYTES) as memory:
        for _ in range(64):
            memory.write(block)


class Watched:
    """One of our kernels, with its notes."""

    def __init__(self, running: Kernel, notes: Path, blobs: Path) -> None:
        """Begin to take notes."""
        self.kernel = running
        self._notes = notes
        self.blobs = blobs
        notes.touch()
        self.run(INSTALL.format(path=str(notes)))

    def _rows(self, since: int) -> list[dict[str, Any]]:
        """Return the notes that lie behind the first `since` bytes, without one that is being written."""
        with self._notes.open() as notes:
            notes.seek(since)
            whole, _, _ = notes.read().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def run(self, code: str) -> dict[str, float]:
        """Run a cell and wait until it is durable; return what it cost, times in seconds.

        `reply` is from the request to the reply, `capture` is spent on the kernel's main thread,
        `capture_to_durable` is from the begin of capturing to the commit of all that the cell changed;
        `wire_bytes`, `inline_bytes`, `chunks` and `chunk_bytes` were shipped.
        """
        known = self._notes.stat().st_size
        reply = self.kernel.run(code)
        ended = time.monotonic()
        deadline = ended + COMMIT_S
        while time.monotonic() < deadline:
            rows = self._rows(known)
            proposed = [row for row in rows if row["what"] == "propose"]
            last = max((row["seq"] for row in proposed), default=None)
            done = [
                row for row in rows if row["what"] == "committed" and row["seq"] == last and not row["owing"]
            ]
            if done:
                return _costs(rows, reply, done[0]["ended"])
            time.sleep(LOOK_S)
        raise TimeoutError(f"{code!r} was not durable after {COMMIT_S:g} s")


def _costs(rows: list[dict[str, Any]], reply: float, committed: float) -> dict[str, float]:
    captures = [row for row in rows if row["what"] == "capture"]
    costs = {
        "reply": reply,
        "capture": sum(row["ended"] - row["began"] for row in captures),
        "capture_to_durable": committed - captures[0]["began"],
    }
    for key in ("wire_bytes", "inline_bytes", "chunks", "chunk_bytes"):
        costs[key] = sum(row.get(key, 0) for row in rows)
    return costs


@contextlib.contextmanager
def watched(**settings: str) -> Iterator[Watched]:
    """Run one of our kernels, with a store of files of its own, for as long as the block lasts."""
    with place(**settings) as here:
        store = here.root / "store"
        here.env.setdefault("REPLKERNEL_STORE", f"file://{store}")
        with kernel(OURS, here) as running:
            yield Watched(running, here.root / "notes.jsonl", store / "blobs")
