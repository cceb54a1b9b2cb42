"""How fast models of GPUs are: a job's run time is what the trace says, divided by the speed where it runs.

A table is a CSV file with the columns `model,speed`, and `type` if kinds of jobs differ; speed 1 is that of
the GPUs on which the trace was recorded. Law: a job's own type goes before the row without one; whatever a
table does not have has speed 1.

GAVEL: steps a second on one GPU beside those of a V100 (Narayanan et al., OSDI 2020:
simulation_throughputs.json of stanford-futuredata/gavel). SIA: on one GPU beside a T4, geometric means over
the batch sizes that both were measured with (Jayaram Subramanya et al., SOSP 2023: the profiles of
siasosp23/artifacts). The rows without a type are geometric means.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import exp, log
from pathlib import Path
from typing import TypeAlias

from replkernel_scheduler.sim.csv_rows import header_of, rows
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.trace_file import TraceFile, number

Speeds: TypeAlias = tuple[tuple[str, str, float], ...]
"""Type ("": any), model, speed."""
_GAVEL = {
    "ResNet-18 (batch size 16)": (0.148, 1.109), "ResNet-18 (batch size 32)": (0.24, 1.196),
    "ResNet-18 (batch size 64)": (0.293, 0.926), "ResNet-18 (batch size 128)": (0.1, 0.649),
    "ResNet-18 (batch size 256)": (0.086, 0.75), "ResNet-50 (batch size 16)": (0.202, 0.794),
    "ResNet-50 (batch size 32)": (0.159, 0.628), "ResNet-50 (batch size 64)": (0.141, 0.596),
    "ResNet-50 (batch size 128)": (0.139, 0.635), "Transformer (batch size 16)": (0.494, 0.862),
    "Transformer (batch size 32)": (0.33, 0.741), "Transformer (batch size 64)": (0.203, 0.591),
    "Transformer (batch size 128)": (0.18, 0.564), "Transformer (batch size 256)": (0.287, 1.052),
    "A3C": (0.479, 0.792), "LM (batch size 5)": (0.233, 0.832), "LM (batch size 10)": (0.291, 0.944),
    "LM (batch size 20)": (0.265, 0.899), "LM (batch size 40)": (0.254, 0.791),
    "LM (batch size 80)": (0.214, 0.749), "Recommendation (batch size 512)": (1.409, 2.096),
    "Recommendation (batch size 1024)": (1.509, 2.315), "Recommendation (batch size 2048)": (1.398, 2.222),
    "Recommendation (batch size 4096)": (1.357, 2.278), "Recommendation (batch size 8192)": (0.95, 1.953),
    "CycleGAN": (0.114, 0.543),
}  # fmt: skip
"""On a K80, and on a P100."""
_SIA = {
    "bert": (1.92, 2.27, 4.07), "cifar10": (1.49, 1.74, 2.75), "deepspeech2": (1.63, 1.44, 1.26),
    "imagenet": (1.28, 1.42, 1.89), "ncf": (0.54, 0.69, 0.94), "yolov3": (0.61, 1.62, 1.32),
}  # fmt: skip
"""On an RTX 2080 Ti, a Quadro RTX 6000, and an A100."""


def _table(models: tuple[str, ...], base: str, known: Mapping[str, tuple[float, ...]]) -> Speeds:
    means = [exp(sum(map(log, column)) / len(column)) for column in zip(*known.values(), strict=True)]
    every = {"": tuple(means), **known}
    found = [
        (kind, model, round(speed, 3))
        for kind, speeds in every.items()
        for model, speed in zip(models, speeds, strict=True)
    ]
    return (*found, ("", base, 1.0))


BUILT_IN: dict[str, Speeds] = {
    "gavel": _table(("K80", "P100"), "V100", _GAVEL),
    "sia": _table(("2080Ti", "Quadro", "A100"), "T4", _SIA),
}


def speeds_named(text: str) -> Speeds:
    """Return the table `gavel` or `sia`, or that of a file; raise SimulationError if it is none."""
    if text in BUILT_IN:
        return BUILT_IN[text]
    path = Path(text)
    if not path.exists():
        raise SimulationError(f"There is no table of speeds {text}: give a file, or {' or '.join(BUILT_IN)}.")
    file = TraceFile(path)
    header = header_of(file)
    if not {"model", "speed"} <= set(header):
        raise SimulationError(
            f"{path} is no table of speeds: its columns are model,speed, and type if known."
        )
    found = [row for each in rows(file, header) if (row := file.take(partial(_row, each))) is not None]
    return tuple(found)


def _row(row: dict[str, str]) -> tuple[str, str, float]:
    speed = number(row["speed"], "speed")
    if not speed or not row["model"]:
        raise ValueError(f"model {row['model']!r} has the speed {speed:g}")
    return (row.get("type", ""), row["model"], speed)


class SpeedTable:
    """The speeds of a run, by type and model."""

    def __init__(self, speeds: Speeds) -> None:
        """Keep the last row of each."""
        self._speeds = {(kind, model): speed for kind, model, speed in speeds}

    def of(self, kind: str, model: str) -> float:
        """Return how fast jobs of a kind are on a model."""
        found = self._speeds.get((kind, model))
        return self._speeds.get(("", model), 1.0) if found is None else found
