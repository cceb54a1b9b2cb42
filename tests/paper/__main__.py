"""`python -m tests.paper [--short] [SUITE…]`: run the suite, print its table, write the pages of the papers.

With --short nothing is written: what differs from the pages is named, and is a failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.paper import combined, lazer, load, notebookos, oversubscription, quarter, sidecar
from tests.paper.pages import PLACE, Kept, pages
from tests.paper.report import Row, Shown, table
from tests.paper.traces import NoTrace

SUITES = {
    "load": load.rows,
    "notebookos": notebookos.rows,
    "quarter": quarter.rows,
    "oversubscription": oversubscription.rows,
    "sidecar": sidecar.rows,
    "lazer": lazer.rows,
    "combined": combined.rows,
}


def main() -> int:
    """Run what was asked for; a trace that is not there is told, and is no failure."""
    parser = argparse.ArgumentParser("python -m tests.paper", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default: all)")
    parser.add_argument(
        "--short", action="store_true", help="only what takes seconds, compared with the pages"
    )
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy comes later; its matrices are small.
    kept = Kept.read()
    rows: list[Row] = []
    skipped: list[str] = []
    for name in options.suites or SUITES:
        began = time.monotonic()
        try:
            shown: list[Shown] = [*SUITES[name](options.short)]
        except NoTrace as error:
            skipped.append(f"{name}: {error}")
            continue
        rows += [one for one in shown if isinstance(one, Row)]
        if options.short and name not in kept.rows:
            skipped.append(f"{name}: no page has its figures yet: make sim SUITES={name}")
            rows = [row for row in rows if row not in shown]
        if not options.short:
            kept.take(name, shown)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(table(rows) + "".join(f"\nskipped: {line}" for line in skipped))
    return _compared(kept, rows) if options.short else _written(kept)


def _compared(kept: Kept, rows: list[Row]) -> int:
    differing = kept.differing(rows)
    for line in differing:
        print(f"not what the pages say: {line}")
    print("`make sim` writes the pages anew." if differing else "The pages of the papers say the same.")
    return int(bool(differing))


def _written(kept: Kept) -> int:
    kept.write()
    for path, text in pages(kept).items():
        path.write_text(text)
    print(f"{PLACE} has the pages: look at what has changed.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
