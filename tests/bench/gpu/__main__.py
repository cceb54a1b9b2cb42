"""`python -m tests.bench.gpu`: run the tests that need a GPU, measure it, and write the table of the README.

`--pretend` does the same with host memory that poses as a GPU, and prints the table alone: its figures say
nothing of a GPU, only that all of it runs through.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.gpu.card import Card, Pretended, Real
from tests.bench.gpu.first_kernel import first_kernel
from tests.bench.gpu.rows import Row, by_driver, by_torch, capture, guarded, notebookos, training

README = Path(__file__).parents[3] / "replkernel" / "gpu" / "README.md"
BEGIN, END = "<!-- measured on a GPU: written by `python -m tests.bench.gpu` -->", "<!-- end of measured -->"
GB, PRETENDED_GB = 10.0, 0.02
ROWS = (training, by_torch, capture, notebookos, by_driver)
"""The driver's way comes last: what it leaves of a process that it cannot bring back is of no use."""


def main() -> int:
    """Do it; return the exit code: 0 where all tests passed and all rows were measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    parser.add_argument("--pretend", action="store_true", help="measure host memory that poses as a GPU")
    parser.add_argument("--gb", type=float, help=f"how large the state is (default {GB:g})")
    parser.add_argument("--into", type=Path, help=f"the file whose table is written (default {README})")
    arguments = parser.parse_args()
    if not arguments.pretend and not _has_gpu():
        print("There is no GPU that torch can use here: `--pretend` runs all of it with host memory instead.")
        return 2
    size = int((arguments.gb or (PRETENDED_GB if arguments.pretend else GB)) * 1e9)
    into = arguments.into or (None if arguments.pretend else README)
    failed = 0 if arguments.pretend else _tests()
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("JUPYTER_DATA_DIR", directory)
        # Its kernel is a process of its own: it goes first, while this one has nothing on the GPU.
        card: Card = Pretended() if arguments.pretend else Real()
        rows = guarded(first_kernel, card, size)
        for measure in ROWS:
            rows += guarded(measure, card, size)
        text = table(rows, card.described(), datetime.datetime.now(datetime.UTC).date())
    print(text)
    if into is not None:
        into.write_text(put_into(into.read_text(), text))
        print(f"Written to {into}.")
    return int(failed or any("FAILED" in row.figure for row in rows))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _tests() -> int:
    print("The tests that need a GPU:", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-m", "gpu", "tests"], check=False).returncode


def table(rows: list[Row], device: str, day: datetime.date) -> str:
    """Return the table, with its device and its day."""
    lines = [f"{device}; {day.day} {day:%b %Y}", "", "| what | goal | figure |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {row.what} | {row.goal} | {row.figure} |" for row in rows)])


def put_into(text: str, made: str) -> str:
    """Return a file's text with the table in its place; raises ValueError where it has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the file has no lines `{BEGIN}` and `{END}`")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


if __name__ == "__main__":
    raise SystemExit(main())
