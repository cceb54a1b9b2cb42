"""A person in JupyterLab: the launcher's card, cells that run, the status bar, the command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.lab import running
from tests.ui.driven import IN_BROWSER, ROOT, SHOTS

pytestmark = IN_BROWSER


def look(directory: Path) -> dict[str, Any]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    with running("lab", directory) as server:
        script = ["node", str(ROOT / "tests/ui/lab.mjs"), server.url, server.token, str(SHOTS)]
        done = subprocess.run(script, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert "failure" not in found, f"{found}\n{server.log.read_text()[-4000:]}"
    return found


def test_a_notebook_on_the_kernel_that_the_launcher_offers(tmp_path: Path) -> None:
    seen = look(tmp_path)
    assert "Python 3 (replicated)" in seen["cards"]
    assert seen["first"] == "sum 6"
    assert seen["second"] == "[1, 2, 3, 4]"
    assert seen["status"].startswith("Replica r")
    assert {"Replica", "Host", "Replicated state"} <= set(seen["dialog"])
    assert seen["stock"] == "stock"
    assert seen["statusOnStock"] is False
    assert seen["errors"] == []
