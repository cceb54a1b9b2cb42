"""The tour that `make run` opens: a kill, an undo, GPUs, a notebook that wants them too, and rest."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import find_agent
from replkernel.hosts.places import own_host
from replkernel.launch.kernel_record import read_record
from replkernel.settings import data_dir
from tests.ui.driven import IN_BROWSER, ROOT, SHOTS, Browser, Lab, lab_in_browser, panel

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
STATE, BUTTON, AFTER, STATUS, EMPTIED, UNDO, UNDONE, ONE, BOTH, REST, BACK = range(1, 12)
NARROW = 60
"""So many characters of output are beside each other in half a window."""
SAFE = "The notebook’s variables are safe"
RIVALS = BACK + 1
"""The cell of the notebook beside: the browser counts those of all that it shows."""


@pytest.fixture
def tour() -> Iterator[tuple[Lab, Browser]]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ["JUPYTER_DATA_DIR"])
    home = data / "home"
    home.mkdir(parents=True)
    run = (str(ROOT / "examples" / "run.py"), "--data", str(data))
    with lab_in_browser(home, *run) as (lab, browser):
        yield lab, browser


def press(browser: Browser, text: str) -> None:
    browser.do("press", "a", query=".jp-Notebook button", text=text)


def run(browser: Browser, cell: int) -> str:
    """Run a cell to its end and return what it shows."""
    browser.do("run", "a", cell=cell, kernel=REPLICATED)
    browser.wait("a", lambda: " Done " in browser.line("a", cell))
    return browser.text("a", cell)


def said_below(browser: Browser) -> str:
    """Return what the status bar says."""
    return " ".join(browser.do("text", "a", query=".jp-replkernel-status"))


def test_every_step_of_the_tour_works(tour: tuple[Lab, Browser]) -> None:
    lab, browser = tour
    shipped = sorted((ROOT / "examples").glob("*.ipynb"))
    saved_before = [path.read_bytes() for path in shipped]
    browser.do("open", "a", url=lab.url("lab/tree/examples/demo.ipynb") + "&reset", cells=BACK, height=2400)
    news = lab.call("GET", "lab/api/settings/@jupyterlab/apputils-extension:notification")
    assert news["schema"]["properties"]["fetchNews"]["default"] == "false", "nobody is asked about news"
    press(browser, "Show replicas and GPUs")
    mean = run(browser, STATE)
    browser.wait("a", lambda: browser.line("a", STATE).endswith(" durable"))

    run(browser, BUTTON)
    browser.wait("a", lambda: browser.line("a", BUTTON).endswith(" durable"))
    press(browser, "Kill the executor")
    browser.wait("a", lambda: "Executor killed." in browser.text("a", BUTTON))
    browser.wait(
        "a",
        lambda: SAFE in " ".join(browser.do("text", "a", query=".Toastify__toast")),
    )
    assert run(browser, AFTER) == f"({mean}, 100000)"
    said = run(browser, STATUS)
    assert all(replica in said for replica in ("r1", "r2", "r3"))
    assert max(map(len, said.splitlines())) <= NARROW, "it is read beside another notebook"
    browser.wait("a", lambda: said_below(browser).endswith("✔ durable"))

    run(browser, EMPTIED)
    browser.wait("a", lambda: browser.line("a", EMPTIED).endswith(" durable"))
    assert "restored: mean, measurements" in run(browser, UNDO)
    assert run(browser, UNDONE) == f"(100000, {mean})"
    browser.wait("a", lambda: "not in the current state" in browser.line("a", EMPTIED))

    assert run(browser, ONE).count("GPU-fake") == 1
    browser.wait("a", lambda: "1 free, 1 kept between cells" in panel(browser))
    press(browser, "Open a second notebook")
    browser.wait("a", lambda: len(browser.cells("a")) == RIVALS)
    browser.do("run", "a", cell=BOTH)
    browser.wait("a", lambda: "Running" in browser.line("a", BOTH))
    browser.do("run", "a", cell=RIVALS)
    browser.wait("a", lambda: "next in line · held by demo.ipynb" in browser.line("a", RIVALS))
    assert "about" not in browser.line("a", RIVALS), "there were too few cells to guess from"
    assert browser.do("text", "a", query=".jp-replkernel-gpu.jp-mod-mine") == [], "they are the other's"
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / "tour-light.png"))
    browser.wait("a", lambda: " Done " in browser.line("a", RIVALS))
    assert browser.text("a", RIVALS).count("GPU-fake") == 1
    assert "for 1 GPU" in browser.line("a", RIVALS)

    browser.do("run", "a", cell=REST)
    browser.wait("a", lambda: "Hibernated" in panel(browser))
    assert run(browser, BACK) == f"(100001, {mean})"
    assert browser.do("state", "a")["errors"] == []

    kernels = [kernel["id"] for kernel in lab.call("GET", "api/kernels")]
    assert find_agent(own_host(os.environ), os.environ) is not None
    lab.stop(signal.SIGINT)
    records = [read_record(data_dir(os.environ), kernel) for kernel in kernels]
    assert [record and record.state for record in records] == ["hibernated", "hibernated"]
    assert find_agent(own_host(os.environ), os.environ) is None
    log = lab.log.read_text()
    unwanted = ("Traceback", "refuses", "live on", "Shut down")
    assert [said for said in unwanted if said in log] == [], log[-4000:]
    assert saved_before == [path.read_bytes() for path in shipped], "it works on a copy"
