"""What a cell's state costs: a full namespace unchanged, one small change, one element, a new 100 MB array.

Capture is what the kernel's main thread spends after the reply; the reply is compared with stock's on the
same cell. Durable is compared with a plain write of the same bytes in the same directory and fdatasync: the
store of files syncs each chunk as well, and the log its entry, before a cell counts as durable. The least of
each figure is told beside the median, because what else a machine does only adds to it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.kernels import Kernel, kernel, place
from tests.bench.report import Result
from tests.bench.state_kernels import LARGE, SMALL, Watched, touch_memory, watched
from tests.support.stock import STOCK

ROUNDS = 15
NEW_ARRAY = "new = np.random.default_rng({number}).random(12_500_000)"
NEW_BYTES = 100_000_000
TEXT = """\
import random
_random = random.Random(0)
_letters = "abcdefghijklmnopqrstuvwxyz"
_words = ["".join(_random.choices(_letters, k=_random.randint(2, 9))) for _ in range(5000)]
text = " ".join(_random.choices(_words, k=17_000_000))[:100_000_000]
"""
MS = 1000.0
MB = 1e6


def measure_unchanged() -> Result:
    """A namespace of 2,000 small variables and 330 MB in which a cell changes nothing."""
    with watched() as ours:
        first = _fill(ours)
        samples = [ours.run("pass") for _ in range(ROUNDS)]
    shipped = {
        key: statistics.median(s[key] for s in samples) for key in ("wire_bytes", "inline_bytes", "chunks")
    }
    captures = [sample["capture"] * MS for sample in samples]
    details = {
        "first_capture_ms": first["capture"] * MS,
        "least_ms": min(captures),
        "shipped_per_cell": shipped,
    }
    return Result(
        "state_unchanged", "ms", captures, [], "at most 25 ms captured, 0 bytes of variables", details
    )


def measure_small_change() -> Result:
    """One small variable changed among them, `arr.mean()`, and one element of 100 MB, each a cell."""
    changes: dict[str, Callable[[int], str]] = {
        "small": lambda number: f"l7.append({number})",
        "mean": lambda number: "m = arr.mean()",
        "element": lambda number: f"arr[{number * 100_003}] = {number}",
    }
    costs: dict[str, list[dict[str, float]]] = {key: [] for key in changes}
    plain: dict[str, list[float]] = {key: [] for key in changes}
    with watched() as ours, place() as there, kernel(STOCK, there) as stock:
        _fill(ours)
        _fill_stock(stock)
        for number in range(ROUNDS):
            for key, cell in changes.items():
                costs[key].append(ours.run(cell(number + 1)))
                plain[key].append(stock.run(cell(number + 1)))
    details = {key: _summary(costs[key], plain[key]) for key in changes}
    goal = "reply at most 10 ms later than stock's; mean: < 1 kB; element: one chunk"
    ours_ms = [cost["reply"] * MS for cost in costs["small"]]
    return Result("state_small_change", "ms", ours_ms, [took * MS for took in plain["small"]], goal, details)


def measure_new_array() -> Result:
    """A new array of 100 MB: when the reply comes, and when it is durable, against a plain write."""
    costs, replies, writes = [], [], []
    touch_memory()
    with watched() as ours, place() as there, kernel(STOCK, there) as stock:
        for running in (ours.kernel, stock):
            running.run("import numpy as np\nnew = 0")
        directory = ours.blobs.parent
        for number in range(ROUNDS):
            cell = NEW_ARRAY.format(number=number)
            costs.append(ours.run(cell))
            replies.append(stock.run(cell))
            _forget_chunks(ours.blobs)
            writes.append(_plain_write(directory, sync=True))
        unsynced = [_plain_write(directory, sync=False) for _ in range(ROUNDS)]
    durable = [cost["capture_to_durable"] for cost in costs]
    details = {
        **_summary(costs, replies),
        "plain_write_without_sync_ms": statistics.median(unsynced) * MS,
        "durable_mb_s": NEW_BYTES / MB / statistics.median(durable),
        "plain_write_mb_s": NEW_BYTES / MB / statistics.median(writes),
        "rate": statistics.median(writes) / statistics.median(durable),
        "rate_of_the_best": min(writes) / min(durable),
    }
    goal = (
        "ratio at most 1.67 (60 % of the rate of write + fdatasync); reply at most 10 ms later than stock's"
    )
    return Result(
        "state_new_array",
        "ms",
        [took * MS for took in durable],
        [took * MS for took in writes],
        goal,
        details,
    )


def measure_text() -> Result:
    """100 MB of text: 80 bytes in front of it, behind it, taken from its middle, and a line replaced."""
    edits = {
        "in front": "text = '{number:080}' + text",
        "behind": "text = text + '{number:080}'",
        "taken out": "text = text[:50_000_000] + text[50_000_080:]",
        "replaced": "text = text[:20_000_000] + '{number:0500}' + text[20_000_500:]",
    }
    costs: dict[str, list[dict[str, float]]] = {name: [] for name in edits}
    with watched() as ours:
        ours.run(TEXT)
        for number in range(ROUNDS // 3):
            for name, code in edits.items():
                costs[name].append(ours.run(code.format(number=number)))
    details = {
        name: {
            key: statistics.median(row[key] for row in rows) for key in ("capture", "chunks", "chunk_bytes")
        }
        for name, rows in costs.items()
    }
    shipped = [row["chunk_bytes"] / MB for row in costs["in front"]]
    whole = [NEW_BYTES / MB for _ in shipped]
    return Result(
        "state_text", "MB", shipped, whole, "an insertion ships a few chunks, not the text", details
    )


def _fill(ours: Watched) -> dict[str, float]:
    ours.run(SMALL)
    return ours.run(LARGE)


def _fill_stock(stock: Kernel) -> None:
    stock.run(SMALL)
    stock.run(LARGE)


def _summary(costs: list[dict[str, float]], plain: list[float]) -> dict[str, Any]:
    """Return medians: the reply against stock's, the capture, until durable, and what was shipped."""
    middle = {key: statistics.median(cost[key] for cost in costs) for key in costs[0]}
    stock = statistics.median(plain)
    return {
        "reply_ms": middle["reply"] * MS,
        "stock_reply_ms": stock * MS,
        "delay_ms": (middle["reply"] - stock) * MS,
        "least_delay_ms": (min(cost["reply"] for cost in costs) - min(plain)) * MS,
        "capture_ms": middle["capture"] * MS,
        "least_capture_ms": min(cost["capture"] for cost in costs) * MS,
        "capture_to_durable_ms": middle["capture_to_durable"] * MS,
        **{key: middle[key] for key in ("wire_bytes", "inline_bytes", "chunks", "chunk_bytes")},
    }


def _forget_chunks(blobs: Path) -> None:
    """Give back the memory of chunks that no later round needs, as the plain write does with its file."""
    for path in blobs.glob("??/*"):
        os.truncate(path, 0)


def _plain_write(directory: Path, *, sync: bool) -> float:
    """Return the seconds that writing the same bytes to one file takes."""
    data = os.urandom(NEW_BYTES)
    path = directory / "plain-write"
    began = time.perf_counter()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with memoryview(data) as view:
            written = 0
            while written < len(view):
                written += os.write(file, view[written:])
        if sync:
            os.fdatasync(file)
    finally:
        os.close(file)
    took = time.perf_counter() - began
    path.unlink()
    return took
