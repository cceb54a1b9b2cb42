"""`replkernel install`: the kernelspec with this Python's path, for front ends that start its command."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import replkernel
from replkernel.errors import ReplkernelError

SOURCE = Path(replkernel.__file__).parent / "kernelspec"


def run_install(name: str, display_name: str, prefix: str | None, *, user: bool) -> int:
    """Install the kernelspec and say where; return the exit code, or raise ReplkernelError."""
    from jupyter_client.kernelspec import KernelSpecManager

    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "spec"
        shutil.copytree(SOURCE, made)
        file = made / "kernel.json"
        spec = json.loads(file.read_text(encoding="utf-8"))
        spec["argv"][0] = sys.executable
        spec["display_name"] = display_name or spec["display_name"]
        file.write_text(json.dumps(spec, indent=1), encoding="utf-8")
        try:
            place = KernelSpecManager().install_kernel_spec(str(made), name, user=user, prefix=prefix)
        except (OSError, ValueError) as error:
            raise ReplkernelError(
                f"The kernelspec {name} cannot be installed ({error}): try `--user` or `--sys-prefix`."
            ) from error
    print(f"Kernelspec {name} is in {place}; it runs {sys.executable}.")
    return 0
