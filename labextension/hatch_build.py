"""The build hook: puts the lab extension's bundle into the wheel, building it first when it is not there.

A wheel without its lab extension is never made by accident: without node the build stops and says so.
An editable install leaves it out and never runs node: `make lab` builds it and links it into the environment.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLE = "server_ext/replkernel_server/labextension"
SHARED = "share/jupyter/labextensions/@replkernel/labextension"


class LabExtensionHook(BuildHookInterface[Any]):
    """Add the lab extension to the shared data of wheels."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundle for a standard wheel or sdist if it is missing, and list it in `build_data`."""
        if version == "editable":
            return
        root = Path(self.root)
        if not (root / BUNDLE / "package.json").is_file():
            self._build()
        if self.target_name == "wheel":
            build_data["shared_data"][str(root / BUNDLE)] = SHARED
            build_data["shared_data"][str(root / "install.json")] = f"{SHARED}/install.json"

    def _build(self) -> None:
        if shutil.which("npm") is None or shutil.which("node") is None:
            raise RuntimeError(
                f"The lab extension is not built ({BUNDLE} is missing) and node was not found: "
                "install node 20 or newer and run `make dist`, or install a released wheel."
            )
        for command in (["npm", "ci"], ["npm", "run", "build"]):
            subprocess.run(command, cwd=self.root, check=True)
