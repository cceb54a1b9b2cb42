"""Compiles the scheduler's core with mypyc, for who builds it so: the same Python files, the same decisions.

Law: what is not compiled is the truth, and always there. The vocabulary (events, effects, types), policies
and the simulator are left as they are, so policies are written and subclassed in plain Python either way.

    python scheduler/compiled.py FOLDER

makes FOLDER/replkernel_scheduler, a copy of the package with extension modules beside its files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "replkernel_scheduler"
MODULES = (
    "accounting", "asking", "backfilling", "bookings", "bounds", "cards", "choosing", "core", "demand",
    "granting", "history", "host_life", "hosts", "kernel_life", "kernels", "laws", "lease_life", "leases",
    "ledger", "load_index", "looking", "migrations", "moving", "parts", "passing", "pauses", "pausing",
    "placing", "prewarm", "queue", "reservations", "scaling", "serving", "targets", "timers", "users",
    "warming", "wishes", "yielding",
)  # fmt: skip
"""All that a decision of the live core goes through, but what others subclass."""
NEEDS = ("mypy>=1.18", "setuptools>=77", "msgspec>=0.20")
"""What compiling needs, besides a C compiler and Python's headers."""


def compile_into(folder: Path) -> dict[Path, str]:
    """Copy the package into a folder and compile it; return each extension with its place in a wheel.

    Raises CalledProcessError if the compiler fails; what it said is on standard error.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    subprocess.run(
        [sys.executable, __file__, "--here"], cwd=folder, check=True, stdout=subprocess.DEVNULL, env=_apart()
    )
    shutil.rmtree(folder / "build")
    return {file: str(file.relative_to(folder)) for file in sorted(folder.rglob("*.so"))}


def _apart() -> dict[str, str]:
    """Return the environment without paths on which another copy of the package lies.

    The others stay: on one of them pip has put what building needs.
    """
    found = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    paths = [path for path in found.pop("PYTHONPATH", "").split(os.pathsep) if path]
    others = [path for path in paths if not (Path(path) / PACKAGE.name).exists()]
    return found | ({"PYTHONPATH": os.pathsep.join(others)} if others else {})


def compile_here() -> None:
    """Compile the copy in the working directory."""
    from mypyc.build import mypycify
    from setuptools import setup

    files = [f"{PACKAGE.name}/{module}.py" for module in MODULES]
    options = ["--strict", "--explicit-package-bases", "--config-file="]
    made = mypycify([*options, *files], opt_level="2", debug_level="0", group_name=PACKAGE.name)
    setup(name=PACKAGE.name, ext_modules=made, packages=[], script_args=["build_ext", "--inplace"])


def main() -> None:
    """Compile into the folder that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="where to; what is there is replaced")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        compile_here()
    elif asked.folder is None:
        parser.error("say into which folder")
    else:
        made = compile_into(asked.folder.resolve())
        sys.stdout.write(f"{len(made)} modules are compiled; try them with PYTHONPATH={asked.folder}.\n")


if __name__ == "__main__":
    main()
