"""How much somebody reads who follows one value through its capture, `python -m` this.

A value is captured twice, so that imports and what is made once do not count, and each file is shown with
the functions that were called in it. With `--folder replkernel/state`: how long its files are, and which of
them only one other file imports, so that they may be part of that one.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import FrameType

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from notebook import Notebook

import replkernel

ROOT = Path(replkernel.__file__).parent
CODE = (ROOT.parent / "scheduler", ROOT.parent / "server_ext", ROOT)
SHORT_LINES = 60
VALUES = {
    "list": "value = [{seq}, {{2: 3}}]",
    "polars frame": "import polars; value = polars.DataFrame({{'a': [{seq}, 2], 'b': ['x', 'y']}})",
}


def touched(source: str) -> dict[str, set[str]]:
    """Return the files below the package in which a capture calls functions, with these."""
    notebook = Notebook("r1")
    for seq in (1, 2):
        exec(source.format(seq=seq), notebook.namespace)
        notebook.capture(seq)
    exec(source.format(seq=3), notebook.namespace)
    found: dict[str, set[str]] = defaultdict(set)

    def called(frame: FrameType, event: str, arg: object) -> None:
        place = Path(frame.f_code.co_filename)
        if event == "call" and place.is_relative_to(ROOT):
            found[str(place.relative_to(ROOT))].add(frame.f_code.co_qualname)

    sys.setprofile(called)
    try:
        notebook.capture(3)
    finally:
        sys.setprofile(None)
    return found


def module_name(path: Path) -> str:
    """Return the dotted name by which a file is imported."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, and its texts: records of libraries name modules so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def importers(folder: Path) -> dict[Path, set[Path]]:
    """Return for each file of a folder which files of the product import it."""
    files = {module_name(path): path for path in folder.rglob("*.py") if path.name != "__init__.py"}
    found: dict[Path, set[Path]] = {path: set() for path in files.values()}
    for path in (path for root in CODE for path in root.rglob("*.py")):
        for name in set(imported(path)) & files.keys():
            found[files[name]].add(path)
    return found


def show_folder(folder: Path) -> None:
    """Print how a folder is cut into files."""
    known = importers(folder)
    lines = {path: len(path.read_text().splitlines()) for path in known}
    single = {path: next(iter(by)) for path, by in known.items() if len(by) == 1}
    short = sum(count < SHORT_LINES for count in lines.values())
    print(f"{len(lines)} files of {sum(lines.values()):,} lines, {median(lines.values()):.0f} in the median")
    print(f"{short} of less than {SHORT_LINES} lines; {len(single)} that one file imports:")
    for path, by in sorted(single.items(), key=lambda pair: lines[pair[0]]):
        print(f"  {lines[path]:4} {path.relative_to(folder)} <- {by.relative_to(ROOT.parent)}")


def main() -> None:
    """Print each value's files, or how a folder is cut into files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="show how the files of a folder are cut")
    folder = parser.parse_args().folder
    if folder is not None:
        show_folder(folder.resolve())
        return
    for name, source in VALUES.items():
        found = touched(source)
        print(f"{name}: {len(found)} files")
        for place, functions in sorted(found.items()):
            print(f"  {place}: {', '.join(sorted(functions))}")


if __name__ == "__main__":
    main()
