"""`python -m tests.paper [--short]`: run the suite, print its table, write build/sim/paper.md and .json."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.paper import combined, lazer, notebookos, oversubscription, sidecar
from tests.paper.report import Row, table, write
from tests.paper.traces import NoTrace

SUITES = {
    "notebookos": notebookos.rows,
    "oversubscription": oversubscription.rows,
    "sidecar": sidecar.rows,
    "lazer": lazer.rows,
    "combined": combined.rows,
}


def main() -> int:
    """Run what was asked for; a trace that is not there is told, and is no failure."""
    parser = argparse.ArgumentParser("python -m tests.paper", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--short", action="store_true", help="only what takes seconds")
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy comes later; its matrices are small.
    rows: list[Row] = []
    skipped: list[str] = []
    for name in options.suites or SUITES:
        began = time.monotonic()
        try:
            rows += SUITES[name](options.short)
        except NoTrace as error:
            skipped.append(f"{name}: {error}")
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    path = write(rows, skipped)
    print(table(rows))
    print("".join(f"\nskipped: {line}" for line in skipped) + f"\n{path} and paper.json have it.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
