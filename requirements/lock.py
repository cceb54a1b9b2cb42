"""`make lock`: writes `dev.lock` with uv. No index is named in it, and nothing but the lock is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
LOCK = HERE / "dev.lock"
EXTRAS = ("dev", "fuzz", "upkeep")
PYTHON = "3.11"
"""The oldest that is supported; the lock fits newer ones as well."""
NOT_LOCKED = ("torch",)


def main() -> int:
    """Write the lock; return uv's exit code."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", "pyproject.toml", "--config-file", str(HERE / "uv.toml"), "--quiet"]
    command += ["--universal", "--python-version", PYTHON, "--generate-hashes", "--no-emit-index-url"]
    command += ["--no-annotate", "--custom-compile-command", "make lock", "--output-file", str(LOCK)]
    command += [word for extra in EXTRAS for word in ("--extra", extra)]
    command += [word for name in NOT_LOCKED for word in ("--no-emit-package", name)]
    if os.environ.get("UPGRADE") != "0":
        command.append("--upgrade")
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        count = sum(line[:1].isalnum() for line in LOCK.read_text().splitlines())
        print(f"{LOCK.relative_to(ROOT)}: {count} packages")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
