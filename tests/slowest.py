"""`python -m tests.slowest [--top N]`: the last `make slowest`: its slowest tests, and what folders take.

Reads build/tests/times.json, writes build/tests/slowest.md and prints it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.support.times import FILE

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


def total(each: Iterable[Times]) -> Times:
    """Add up what several took."""
    columns = list(zip(*each, strict=True))
    return Times(*(sum(column) for column in columns)) if columns else Times(0, 0, 0, 0, 0, 0, 0)


def read(text: str) -> dict[str, Times]:
    """Return what each test took; raises ValueError and KeyError for what is no such file."""
    found: dict[str, Times] = {}
    for test in json.loads(text):
        seconds = {name: float(test.get(name, 0.0)) for name in ("setup", "call", "teardown", "cpu", "slept")}
        found[test["test"]] = Times(1, **seconds, processes=int(test.get("processes", 0)))
    return found


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


def main() -> None:
    """Print the report, and keep it beside the times."""
    parser = argparse.ArgumentParser(prog="make slowest", description=__doc__)
    parser.add_argument("--top", type=int, default=50, help="so many files and tests (50)")
    top: int = parser.parse_args().top
    if not FILE.exists():
        parser.exit(1, f"{FILE} is not there: run `make slowest`, which runs the tests and writes it.\n")
    text = report(read(FILE.read_text()), top)
    FILE.with_name("slowest.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
