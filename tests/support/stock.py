"""The stock kernel's name and ours, and our kernelspec as installed from sources; imports nothing heavy."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

STOCK = "python3"
OURS = "replkernel"
KERNELSPEC = Path(__file__).parents[2] / "replkernel" / "kernelspec" / "kernel.json"


def kernelspec_dir(directory: Path) -> Path:
    """Write our kernelspec below `directory` as installed from sources; return the entry for JUPYTER_PATH.

    Where the package is not installed its provisioner is unknown to Jupyter, so argv alone must do.
    """
    spec = json.loads(KERNELSPEC.read_text())
    group = "jupyter_client.kernel_provisioners"
    if not importlib.metadata.entry_points(group=group, name="replkernel-provisioner"):
        del spec["metadata"]["kernel_provisioner"]
    target = directory / "kernels" / OURS
    shutil.copytree(KERNELSPEC.parent, target, dirs_exist_ok=True)
    (target / "kernel.json").write_text(json.dumps(spec))
    return directory
