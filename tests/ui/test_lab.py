"""A person in JupyterLab: the launcher's card, cells that run, the status bar, the command."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.ui.driven import IN_BROWSER, ROOT, SHOTS, TOKEN, Browser, Lab

pytestmark = IN_BROWSER


def test_a_notebook_on_the_kernel_that_the_launcher_offers(desk: tuple[Lab, Browser]) -> None:
    lab, _ = desk
    script = ["node", str(ROOT / "tests/ui/lab.mjs"), lab.address, TOKEN, str(SHOTS)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert "failure" not in seen, f"{seen}\n{lab.log.read_text()[-4000:]}"
    assert {"Python 3 (replicated)", "Notebook with GPUs"} <= set(seen["cards"])
    assert seen["first"] == "sum 6"
    assert seen["second"] == "[1, 2, 3, 4]"
    assert seen["status"].startswith("Replica r")
    assert {"Replica", "Host", "Replicated state"} <= set(seen["dialog"])
    assert seen["stock"] == "stock"
    assert seen["statusOnStock"] is False
    assert seen["errors"] == []
