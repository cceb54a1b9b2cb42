"""`python -m tests.slowest [--top N]`: the last `make slowest`: its slowest tests, and what folders take.

Reads build/tests/times.json, writes build/tests/slowest.md and prints it. With `--readme` it writes the
table of folders into tests/README.md as well.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.support.times import FILE, ROOT

README = ROOT / "tests" / "README.md"
BEGIN = "<!-- `make slowest` writes what is below -->"
END = "<!-- `make slowest` writes what is above -->"
DEPTH = 2
"""So many parts of a path name a folder: tests/e2e."""


class Times(NamedTuple):
    """What one test took, or the tests of a folder together: seconds, and processes started."""

    tests: int
    setup: float
    call: float
    teardown: float
    cpu: float
    slept: float
    processes: int

    @property
    def all(self) -> float:
        """The seconds of the wall."""
        return self.setup + self.call + self.teardown


class Run(NamedTuple):
    """One run of the tests: its day, what was checked out, and what each test took."""

    date: str
    commit: str
    cores: int
    tests: dict[str, Times]


def total(each: Iterable[Times]) -> Times:
    """Add up what several took."""
    columns = list(zip(*each, strict=True))
    return Times(*(sum(column) for column in columns)) if columns else Times(0, 0, 0, 0, 0, 0, 0)


def read(text: str) -> Run:
    """Return the run; raises ValueError, TypeError and KeyError for what is no such file."""
    run = json.loads(text)
    found: dict[str, Times] = {}
    for test in run["tests"]:
        seconds = {name: float(test.get(name, 0.0)) for name in ("setup", "call", "teardown", "cpu", "slept")}
        found[test["test"]] = Times(1, **seconds, processes=int(test.get("processes", 0)))
    return Run(run["date"], run["commit"], run["cores"], found)


def by_folder(tests: dict[str, Times]) -> dict[str, Times]:
    """Return what the tests of each folder took, the longest first."""
    folders: dict[str, list[Times]] = defaultdict(list)
    for name, times in tests.items():
        folders["/".join(name.split("::")[0].split("/")[:DEPTH])].append(times)
    added = {folder: total(each) for folder, each in folders.items()}
    return dict(sorted(added.items(), key=lambda pair: -pair[1].all))


def table(rows: dict[str, Times], first: str) -> Iterator[str]:
    """Write rows as a table in Markdown."""
    yield f"| {first} | tests | s | set-up | tear-down | CPU s | slept s | processes |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, each in rows.items():
        numbers = (each.all, each.setup, each.teardown, each.cpu, each.slept)
        shown = " | ".join(f"{number:,.1f}" for number in numbers)
        yield f"| {name} | {each.tests:,} | {shown} | {each.processes:,} |"


def report(tests: dict[str, Times], top: int) -> str:
    """Write what folders and files take, and the slowest tests."""
    slowest = dict(sorted(tests.items(), key=lambda pair: -pair[1].all)[:top])
    files: dict[str, list[Times]] = defaultdict(list)
    for name, times in tests.items():
        files[name.split("::")[0]].append(times)
    longest = sorted(((name, total(each)) for name, each in files.items()), key=lambda pair: -pair[1].all)
    every = {"all": total(tests.values())}
    parts = [
        table({**by_folder(tests), **every}, "folder"),
        table(dict(longest[:top]), "file"),
        table({f"`{name.removeprefix('tests/')}`": times for name, times in slowest.items()}, "test"),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def short(run: Run) -> str:
    """Write what folders take for the README: the CPU first, which is what several processes share."""
    each = dict(sorted(by_folder(run.tests).items(), key=lambda pair: -pair[1].cpu))
    rows = {f"`{folder.removeprefix('tests/')}`": times for folder, times in each.items()}
    at = f" at `{run.commit}`" if run.commit else ""
    lines = [
        f"`make slowest` of {run.date}{at}, on {run.cores} core{'s' if run.cores != 1 else ''}:",
        "",
        "| folder | tests | CPU s | processes started | slept s | set-up and tear-down, of the wall |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, times in {**rows, "all": total(run.tests.values())}.items():
        around = (times.setup + times.teardown) / times.all if times.all else 0.0
        seconds = f"{times.cpu:,.0f} | {times.processes:,} | {times.slept:,.0f}"
        lines.append(f"| {name} | {times.tests:,} | {seconds} | {around:.0%} |".replace("%", " %"))
    return "\n".join(lines)


def between(document: str, text: str) -> str:
    """Return the document with this text between its two markers; raises ValueError where they are not."""
    before, _, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"The markers of the table are gone: put {BEGIN} and {END} back.")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main() -> None:
    """Print the report, and keep it beside the times."""
    parser = argparse.ArgumentParser(prog="make slowest", description=__doc__)
    parser.add_argument("--top", type=int, default=50, help="so many files and tests (50)")
    parser.add_argument("--readme", action="store_true", help="write the folders' table into tests/README.md")
    asked = parser.parse_args()
    if not FILE.exists():
        parser.exit(1, f"{FILE} is not there: run `make slowest`, which runs the tests and writes it.\n")
    run = read(FILE.read_text())
    text = report(run.tests, asked.top)
    FILE.with_name("slowest.md").write_text(text)
    print(text, end="")
    if asked.readme:
        README.write_text(between(README.read_text(), short(run)))


if __name__ == "__main__":
    main()
