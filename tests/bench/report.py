"""What a measurement hands in, and the file that it becomes."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUILD = Path(__file__).parents[2] / "build" / "bench"


@dataclass(frozen=True)
class Result:
    """Samples of both kernels in `unit`, what the ratio must be, and whatever explains them."""

    name: str
    unit: str
    ours: Sequence[float]
    stock: Sequence[float]
    goal: str
    details: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the JSON document: headline numbers are medians."""
        ours, stock = quantile(self.ours, 50), quantile(self.stock, 50)
        return {
            "name": self.name,
            "unit": self.unit,
            "goal": self.goal,
            "ours": ours,
            "stock": stock,
            "ratio": ours / stock if stock else None,
            **{
                f"p{percent}": {"ours": quantile(self.ours, percent), "stock": quantile(self.stock, percent)}
                for percent in (50, 95, 99)
            },
            "samples": {"ours": len(self.ours), "stock": len(self.stock)},
            "machine": {
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "load": os.getloadavg()[0],
            },
            "details": self.details,
        }


def quantile(samples: Sequence[float], percent: int) -> float | None:
    """Return a percentile of `samples` by linear interpolation; None without samples."""
    if len(samples) < 2:
        return samples[0] if samples else None
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def write(result: Result) -> str:
    """Write the document; return one line for the terminal."""
    document = result.document()
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / f"{result.name}.json").write_text(json.dumps(document, indent=2) + "\n")
    p50, p99 = document["p50"], document["p99"]
    ratio = "-" if document["ratio"] is None else f"{document['ratio']:.2f}"
    ours = f"{_number(p50['ours'])} (p99 {_number(p99['ours'])})"
    stock = f"{_number(p50['stock'])} (p99 {_number(p99['stock'])})"
    figures = f"ours {ours:<26} stock {stock:<26} {result.unit:<8} ratio {ratio:<7}"
    return f"{result.name:<18} {figures} goal: {result.goal}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
