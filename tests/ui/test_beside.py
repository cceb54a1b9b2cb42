"""The extension in a JupyterLab that has other people's extensions as well."""

from __future__ import annotations

import importlib.util

import pytest

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, panel, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
OTHERS = ("jupyter_collaboration", "jupyterlab_execute_time", "jupyterlab_nvdashboard")
SLOW = "import time\nfor number in range(20):\n    print(number, flush=True)\n    time.sleep(0.5)"


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in OTHERS),
    reason="the others are not installed: pip install "
    "jupyter-collaboration jupyterlab-execute-time jupyterlab-nvdashboard",
)
def test_other_extensions_and_this_one_leave_each_other_alone(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", SLOW, "print(x + 1)")
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=3, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("press", "a", query=TAB)
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: browser.text("a", 2).startswith("0\n1\n2\n"))
    browser.do("reload", "a", cells=3)
    browser.wait("a", lambda: browser.line("a", 2).endswith(" durable"))
    assert browser.text("a", 2).count("0\n1\n2\n") == 1
    browser.do("run", "a", cell=3)
    browser.wait("a", lambda: browser.text("a", 3) == "42\n")
    assert browser.do("text", "a", query=".jp-CodeCell .execute-time") != []
    assert browser.do("text", "a", query='.lm-TabBar-tab[data-id="gpu-dashboard"]') != []
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / "beside-light.png"))
    assert browser.do("state", "a")["errors"] == []
