"""The build hook: puts the lab extension's bundle into the wheel, building it first when it is not there.

With REPLKERNEL_COMPILED=1 it compiles the scheduler's core as well (scheduler/compiled.py), and the wheel is
for one platform and one Python; else it is a pure one.

A wheel without its lab extension is never made by accident: without node the build stops and says so.
An editable install leaves it out and never runs node: `make lab` builds it and links it into the environment.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLE = "server_ext/replkernel_server/labextension"
COMPILER = "scheduler/compiled.py"
SWITCH = "REPLKERNEL_COMPILED"
SHARED = "share/jupyter/labextensions/@replkernel/labextension"


class LabExtensionHook(BuildHookInterface[Any]):
    """Add the lab extension to the shared data of wheels."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling."""
        return list(self._compiler()["NEEDS"]) if self._compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundle for a standard wheel or sdist if it is missing, and list it in `build_data`."""
        if version == "editable":
            return
        root = Path(self.root)
        if not (root / BUNDLE / "package.json").is_file():
            self._build()
        for leftover in (root / BUNDLE).rglob("*.orig"):  # JupyterLab's builder keeps what it replaced.
            leftover.unlink()
        if self.target_name == "wheel":
            build_data["shared_data"][str(root / BUNDLE)] = SHARED
            build_data["shared_data"][str(root / "install.json")] = f"{SHARED}/install.json"
            if self._compiles():
                made = self._compiler()["compile_into"](root / "build" / "compiled")
                build_data["force_include"].update({str(file): place for file, place in made.items()})
                build_data["pure_python"], build_data["infer_tag"] = False, True

    def _compiles(self) -> bool:
        return self.target_name == "wheel" and os.environ.get(SWITCH, "0") not in ("", "0")

    def _compiler(self) -> dict[str, Any]:
        return runpy.run_path(str(Path(self.root) / COMPILER))

    def _build(self) -> None:
        if shutil.which("npm") is None or shutil.which("node") is None:
            raise RuntimeError(
                f"The lab extension is not built ({BUNDLE} is missing) and node was not found: "
                "install node 20 or newer and run `make dist`, or install a released wheel."
            )
        for command in (["npm", "ci"], ["npm", "run", "build"]):
            subprocess.run(command, cwd=self.root, check=True)
