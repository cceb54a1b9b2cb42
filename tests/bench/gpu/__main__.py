"""`python -m tests.bench.gpu`: the tests that need a GPU, what a GPU can show, and the table of the README.

Each row is measured in a process of its own, so that one which a driver ends takes no other along; what is
there so far is in a JSON file at any moment. All of it takes ten minutes at most and no network. `--pretend`
does the same with host memory that poses as a GPU and with stub drivers, and keeps nothing: its figures say
nothing of a GPU, only that all of it runs through.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.gpu.one_row import MARK, Plan, plan
from tests.bench.gpu.rows import Row

ROOT = Path(__file__).parents[3]
README = ROOT / "replkernel" / "gpu" / "README.md"
KEPT = ROOT / "build" / "gpu"
BEGIN, END = "<!-- measured on a GPU: written by `python -m tests.bench.gpu` -->", "<!-- end of measured -->"
GB, PRETENDED_GB = 10.0, 0.02
MINUTES = 10.0
TESTS_LIMIT_S = 150.0
NO_TIME = "not measured: the time was over"


def main() -> int:
    """Do it; return the exit code: 0 where all tests ran and passed, and all rows were measured."""
    arguments = _arguments()
    device = PRETENDED if arguments.pretend else _device()
    if not device:
        print("There is no GPU that torch can use here: `--pretend` runs all of it with host memory instead.")
        return 2
    until = time.monotonic() + arguments.minutes * 60
    gb = arguments.gb or (PRETENDED_GB if arguments.pretend else GB)
    rows = plan(gb, short=arguments.pretend)
    if arguments.rows:
        rows = [each for each in rows if each.name in arguments.rows]
    day = datetime.datetime.now(datetime.UTC)
    kept = None if arguments.pretend else KEPT / f"{day:%Y-%m-%d-%H%M}.json"
    trouble = (
        [] if arguments.pretend or arguments.rows else run_tests(min(TESTS_LIMIT_S, arguments.minutes * 30))
    )
    found: list[Row] = []
    with world(pretend=arguments.pretend) as env:
        for each in rows:
            found += measure(each, env, until, pretend=arguments.pretend)
            keep(kept, device, day, found, trouble)
    text = table(found, device, day.date())
    print("\n".join([text, "", *trouble]))
    if kept is not None:
        README.write_text(put_into(README.read_text(), text))
        print(f"Written to {README}; {kept} has the same.")
    return int(bool(trouble) or any("FAILED" in row.figure or row.figure == NO_TIME for row in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    parser.add_argument(
        "--pretend", action="store_true", help="host memory and stub drivers: no figure is kept"
    )
    parser.add_argument("--gb", type=float, help=f"how large a model is (default {GB:g})")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"all of it (default {MINUTES:g})")
    parser.add_argument("--rows", nargs="*", help="these alone, by name, and no tests")
    return parser.parse_args()


PRETENDED = "PRETENDED GPU: host memory, and drivers that compute nothing"


def _device() -> str:
    """Name the first GPU, its driver and torch; empty where torch has none. In a process of its own."""
    asked = "from tests.bench.gpu.card import Real; print(Real().described())"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False, cwd=ROOT)
    return ran.stdout.strip() if ran.returncode == 0 else ""


OPTIONAL = ("cupy", "safetensors")
"""Libraries that a notebook may use; the driver's own are no option."""


def run_tests(limit_s: float) -> list[str]:
    """Run the tests that need a GPU; return what went wrong: one that is left out shows nothing."""
    print("The tests that need a GPU:", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "told.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={told}", "tests"]
        try:
            subprocess.run(command, check=False, timeout=limit_s, cwd=ROOT)
        except subprocess.TimeoutExpired:
            return [f"The tests took longer than {limit_s:g} s."]
        return judged(told.read_text()) if told.exists() else ["The tests could not be run."]


def judged(told: str) -> list[str]:
    """Return which tests failed or were left out, by pytest's report; a notebook's library may be away."""
    cases = list(ET.fromstring(told).iter("testcase"))
    found = [] if cases else ["No test ran."]
    for case in cases:
        for kind, word in (("failure", "failed"), ("error", "failed"), ("skipped", "was left out")):
            for each in case.findall(kind):
                if any(f"could not import '{library}" in (each.get("message") or "") for library in OPTIONAL):
                    continue
                found.append(
                    f"{case.get('name')} {word}: {' '.join((each.get('message') or '').split())[:200]}"
                )
    return found


@contextmanager
def world(*, pretend: bool) -> Iterator[dict[str, str]]:
    """Yield the environment of the rows' processes: their own place, and stub drivers if one pretends."""
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "JUPYTER_DATA_DIR": directory}
        if pretend:
            from tests.support.stub_drivers import Stubs, built

            libraries = built(Path(directory))
            if libraries is not None:
                folder = Path(directory) / "stubs"
                folder.mkdir()
                env["BENCH_STUBS"] = json.dumps(Stubs(folder, libraries).only)
        yield env


def measure(each: Plan, env: dict[str, str], until: float, *, pretend: bool) -> list[Row]:
    """Return a row's figures, measured in a process of its own, or the row that says why there are none."""
    limit_s = min(each.limit_s, until - time.monotonic())
    if limit_s <= 0:
        return [Row(each.name, "", NO_TIME)]
    command = [sys.executable, "-m", "tests.bench.gpu.one_row", each.name, str(each.gb)]
    print(f"{each.name} …", flush=True)
    try:
        ran = subprocess.run(
            [*command, *(["--pretend"] if pretend else [])],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return [Row(each.name, "", f"FAILED: it took longer than {limit_s:.0f} s")]
    said = [line.removeprefix(MARK) for line in ran.stdout.splitlines() if line.startswith(MARK)]
    if ran.returncode or not said:
        why = " ".join(ran.stderr.split())[-200:]
        return [Row(each.name, "", f"FAILED: its process ended with {ran.returncode}: {why}")]
    return [Row(*row) for row in json.loads(said[-1])]


def keep(into: Path | None, device: str, day: datetime.datetime, rows: list[Row], trouble: list[str]) -> None:
    """Write down what there is so far."""
    if into is None:
        return
    into.parent.mkdir(parents=True, exist_ok=True)
    said = {"device": device, "when": day.isoformat(timespec="seconds"), "tests": trouble}
    into.write_text(json.dumps({**said, "rows": [row._asdict() for row in rows]}, indent=1) + "\n")


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
