"""A replica that is killed, as a person sees it: told with its reason, replaced, and the state restored.

And a scheduler that is killed: told with what still works, and when it is back.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.group import replicas
from tests.support.ports import free_port
from tests.support.scheduler_service import serving
from tests.ui.driven import (
    IN_BROWSER,
    PANEL,
    SHOTS,
    Browser,
    Lab,
    lab_in_browser,
    panel,
    settings,
    write_notebook,
)

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
TOAST = ".jp-toastContainer .Toastify__toast, .Toastify__toast"


DIES_ONCE = """\
import os, signal
from pathlib import Path
if not Path("died").exists():
    Path("died").touch()
    os.kill(os.getpid(), signal.SIGKILL)
print("again")"""
SOON_LOST = """\
import threading
large = bytearray(os.urandom(150_000_000))
threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGKILL)).start()"""
"""It is done, and its process gone before what it has changed can be durable."""


def toasts(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=TOAST))


def test_an_executor_that_is_killed_is_told_and_replaced(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "print(x + 1)", DIES_ONCE, SOON_LOST)
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=4, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("press", "a", query=TAB)
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))

    browser.do("run", "a", cell=3)
    browser.wait("a", lambda: "a.ipynb: the process that ran its cells died: " in toasts(browser))
    assert "SIGKILL" in toasts(browser) and "The notebook’s variables are safe" in toasts(browser)
    assert len(browser.do("text", "a", query=TOAST)) == 1
    browser.do("screenshot", "a", path=str(SHOTS / "lost-light.png"))
    assert browser.do("covered", "a", over=TOAST, under=PANEL) == []
    browser.do("press", "a", query=".Toastify__toast button", text="Run again")
    browser.wait("a", lambda: browser.text("a", 3).endswith("again\n"))
    browser.wait("a", lambda: browser.line("a", 3).endswith(" durable"))
    browser.do("press", "a", query=f"{PANEL} button", text="Replicas:")
    browser.wait("a", lambda: "3 of 3 healthy" in panel(browser) and "SIGKILL" in panel(browser))
    browser.do("screenshot", "a", path=str(SHOTS / "restored-light.png"))
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: "42\n" in browser.text("a", 2))
    browser.do("toggle", "a", cell=3)
    browser.wait("a", lambda: "Elect" in browser.line("a", 3))
    browser.do("screenshot", "a", path=str(SHOTS / "elected-light.png"))
    assert "Elect" not in browser.line("a", 1)
    browser.do("run", "a", cell=4)
    browser.wait("a", lambda: "Changes lost: run this cell again" in browser.line("a", 4))
    assert "durable" not in browser.line("a", 4)

    settings("@replkernel/labextension/settings", cellLines=False, notify={"executorLost": False})
    browser.do("reload", "a", cells=4)
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))
    assert set(browser.do("lines", "a")) == {""}
    (killed,) = [one for one in replicas().values() if one.role == "executor"]
    assert killed.kernel_pid is not None
    os.kill(killed.kernel_pid, signal.SIGKILL)
    browser.do("press", "a", query=f"{PANEL} button", text="Replicas:")
    # The same replica may have been the executor both times.
    browser.wait("a", lambda: killed.kernel_pid not in {one.kernel_pid for one in replicas().values()})
    browser.wait("a", lambda: "3 of 3 healthy" in panel(browser) and "SIGKILL" in panel(browser))
    assert "died" not in toasts(browser)
    assert browser.do("state", "a")["errors"] == []


def test_a_scheduler_out_of_reach_is_told_with_what_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    port = str(free_port())
    monkeypatch.setenv("REPLKERNEL_FAKE_GPUS", "1")
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", f"http://127.0.0.1:{port}")
    with serving("--port", port) as scheduler, lab_in_browser(tmp_path) as (lab, browser):
        path = lab.directory / "a.ipynb"
        write_notebook(path, "replkernel", "x = 41", "print(x + 1)", "print('leased')")
        notebook = json.loads(path.read_text())
        notebook["cells"][0]["metadata"] = notebook["cells"][2]["metadata"] = {"replkernel": {"gpus": 1}}
        path.write_text(json.dumps(notebook))
        browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=3, height=800)
        browser.do("run", "a", cell=1, kernel=REPLICATED)
        browser.wait("a", lambda: browser.line("a").endswith(" durable"))
        browser.do("toggle", "a", cell=1)
        browser.wait("a", lambda: "Bind" in browser.line("a"))
        browser.do("press", "a", query=TAB)
        browser.wait("a", lambda: "1 kept between cells" in panel(browser))
        press_release(browser)
        browser.wait("a", lambda: "No GPUs yet" in panel(browser))

        scheduler.kill()
        browser.wait("a", lambda: "The GPU scheduler is out of reach" in toasts(browser))
        assert "Cells without GPUs run, and you keep the GPUs you have; new requests wait." in toasts(browser)
        browser.wait("a", lambda: "The scheduler is out of reach" in panel(browser))
        browser.do("run", "a", cell=2)
        browser.wait("a", lambda: browser.text("a", 2) == "42\n")
        browser.do("run", "a", cell=3)
        browser.wait("a", lambda: "no scheduler answers" in browser.line("a", 3))
        browser.do("screenshot", "a", path=str(SHOTS / "no-scheduler-light.png"))
        with serving("--port", port):
            browser.wait("a", lambda: "The GPU scheduler answers again" in toasts(browser))
            browser.wait("a", lambda: browser.text("a", 3) == "leased\n")
            browser.do("screenshot", "a", path=str(SHOTS / "scheduler-again-light.png"))
            assert browser.do("state", "a")["errors"] == []


def press_release(browser: Browser) -> None:
    browser.do("press", "a", query=f"{PANEL} button", text="Release GPUs")
