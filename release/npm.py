"""`python -m release.npm [--into DIR]`: the lab extension as the npm package that is published.

The repository's package.json is private and stands for the whole of it; what is published has the sources'
output, styles and schema at its root, a README of its own, and nothing that only building needs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "npm"
FOLDERS = ("lib", "style", "schema")
KEPT = (
    "name", "version", "description", "keywords", "homepage", "bugs", "repository", "license",
    "main", "types", "style", "styleModule", "sideEffects", "dependencies",
)  # fmt: skip
PREFIX = "labextension/"


def published(document: dict[str, Any]) -> dict[str, Any]:
    """Return the package.json that is published, from the repository's."""
    kept = {name: document[name] for name in KEPT}
    lab = document["jupyterlab"]
    made = kept | {
        "files": [*document["files"], f"{PREFIX}schema/*.json"],
        "jupyterlab": {name: lab[name] for name in ("extension", "schemaDir")},
        "publishConfig": {"access": "public"},
    }
    return {name: _at_the_root(value) for name, value in made.items()}


def _at_the_root(value: Any) -> Any:
    if isinstance(value, str):
        return value.removeprefix(PREFIX)
    if isinstance(value, list):
        return [_at_the_root(one) for one in value]
    if isinstance(value, dict):
        return {name: _at_the_root(one) for name, one in value.items()}
    return value


def stage(into: Path) -> None:
    """Write the package's files; the sources must have been built."""
    shutil.rmtree(into, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(ROOT / PREFIX / folder, into / folder)
    document = json.loads((ROOT / "package.json").read_text())
    (into / "package.json").write_text(json.dumps(published(document), indent=2) + "\n")
    shutil.copyfile(ROOT / "release" / "npm.md", into / "README.md")
    shutil.copyfile(ROOT / "LICENSE", into / "LICENSE")


def main() -> int:
    """Build, stage and pack; return npm's exit code."""
    parser = argparse.ArgumentParser("python -m release.npm", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="where the package goes (dist)")
    options = parser.parse_args()
    built = subprocess.run(["npm", "run", "--silent", "build:lib"], cwd=ROOT, check=False)
    if built.returncode:
        return built.returncode
    stage(STAGE)
    options.into.mkdir(parents=True, exist_ok=True)
    pack = ["npm", "pack", "--pack-destination", str(options.into.resolve())]
    return subprocess.run(pack, cwd=STAGE, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
