"""`make again`: what failed in the last run of tests, once more, by itself and one after another.

A test that passes now failed by chance, by load, or by what ran before it. It is listed: that is a fault too,
of the test or of the product, and wants to be explained. Failures in one module often have one cause, so
modules are counted; those of more than a few are no chance, and are not tried again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAILED = Path(".pytest_cache/v/cache/lastfailed")
LISTED = Path("build/tests/by-chance.txt")
MOST_MODULES = 3
"""In so many modules tests may have failed by chance."""
MOST = 12
"""So many tests may have, all together."""


def chosen(text: str, folders: Iterable[str]) -> list[str]:
    """Return the tests below `folders` that pytest's cache names as failed; raises ValueError."""
    failed = json.loads(text)
    if not isinstance(failed, dict):
        raise ValueError("a table of tests was expected")
    below = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    return sorted(name for name in failed if name.startswith(below))


def refusal(failed: list[str]) -> str:
    """Return why these are not tried again, as a sentence; empty: they are."""
    if not failed:
        return "No test is known to have failed: what went wrong is above."
    modules = {name.split("::")[0] for name in failed}
    if len(failed) > MOST or len(modules) > MOST_MODULES:
        return (
            f"{len(failed)} tests of {len(modules)} modules failed: that is no chance "
            f"(which {MOST} of {MOST_MODULES} may have failed by)."
        )
    whole = [name for name in failed if "::" not in name]
    return f"{whole[0]} could not be read as a module." if whole else ""


def main() -> None:
    """Run them, and say which passed this time."""
    parser = argparse.ArgumentParser(prog="make again", description=__doc__)
    parser.add_argument("folders", nargs="+", help="where the tests are that count")
    folders = parser.parse_args().folders
    cache = ROOT / FAILED
    failed = chosen(cache.read_text() if cache.exists() else "{}", folders)
    if why := refusal(failed):
        parser.exit(1, why + "\n")
    print("Once more, one after another:", *failed, sep="\n  ", flush=True)
    if outcome := subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=ROOT).returncode:
        sys.exit(outcome)
    listed = ROOT / LISTED
    listed.parent.mkdir(parents=True, exist_ok=True)
    with listed.open("a") as file:
        file.writelines(f"{name}\n" for name in failed)
    print(f"FAILED, THEN PASSED (added to {LISTED}; find out why):", *failed, sep="\n  ")


if __name__ == "__main__":
    main()
