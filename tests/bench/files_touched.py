"""Which files a capture goes through: how much somebody reads who follows one value, `python -m` this.

A value is captured twice, so that imports and what is made once do not count, and each file is shown with
the functions that were called in it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from notebook import Notebook

import replkernel

ROOT = Path(replkernel.__file__).parent
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


def main() -> None:
    """Print each value's files."""
    for name, source in VALUES.items():
        found = touched(source)
        print(f"{name}: {len(found)} files")
        for place, functions in sorted(found.items()):
            print(f"  {place}: {', '.join(sorted(functions))}")


if __name__ == "__main__":
    main()
