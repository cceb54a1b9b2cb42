"""A replica that is killed, as a person sees it: told with its reason, replaced, and the state restored."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.support.group import replicas
from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
PANEL = "#jp-replkernel-sidebar"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
TOAST = ".jp-toastContainer .Toastify__toast, .Toastify__toast"


def panel(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=PANEL))


def toasts(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=TOAST))


def settings(**said: object) -> None:
    """Write what a person has set in JupyterLab's settings."""
    place = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "lab" / "user-settings" / "@replkernel" / "labextension"
    place.mkdir(parents=True, exist_ok=True)
    (place / "settings.jupyterlab-settings").write_text(json.dumps(said))


def test_an_executor_that_is_killed_is_told_and_replaced(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "print(x + 1)")
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("press", "a", query=TAB)
    browser.wait("a", lambda: panel(browser).count("up to date") == 3 and "executor" in panel(browser))

    (killed,) = [one for one in replicas().values() if one.role == "executor"]
    assert killed.kernel_pid is not None
    os.kill(killed.kernel_pid, signal.SIGKILL)
    browser.wait("a", lambda: f"a.ipynb: executor {killed.replica} was lost" in toasts(browser))
    assert "SIGKILL" in toasts(browser)
    browser.do("screenshot", "a", path=str(SHOTS / "lost-light.png"))
    browser.wait("a", lambda: "the state is restored, all 3 replicas are up to date" in toasts(browser))
    browser.wait("a", lambda: panel(browser).count("up to date") == 3 and "SIGKILL" in panel(browser))
    browser.do("screenshot", "a", path=str(SHOTS / "restored-light.png"))
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: "42\n" in browser.text("a", 2))

    settings(cellLines=False, notify={"executorLost": False})
    browser.do("reload", "a", cells=2)
    browser.wait("a", lambda: panel(browser).count("up to date") == 3 and "executor" in panel(browser))
    assert set(browser.do("lines", "a")) == {""}
    (killed,) = [one for one in replicas().values() if one.role == "executor"]
    assert killed.kernel_pid is not None
    os.kill(killed.kernel_pid, signal.SIGKILL)
    browser.wait("a", lambda: "the state is restored" in toasts(browser))
    assert "was lost" not in toasts(browser)
    assert browser.do("state", "a")["errors"] == []
