"""The tour that `make run` opens, cell by cell: a kill, GPUs, a notebook that wants them too, and rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.agent.lookup import find_agent
from replkernel.kernel_record import read_record
from replkernel.places import own_host
from replkernel.settings import data_dir
from tests.ui.driven import IN_BROWSER, ROOT, SHOTS, Browser, Lab, lab_in_browser, panel

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
STATE, BUTTON, AFTER, STATUS, ONE, BOTH, REST, BACK = range(1, 9)
RIVALS = BACK + 1
"""The cell of the notebook beside: the browser counts those of all that it shows."""


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[tuple[Lab, Browser]]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    run = (str(ROOT / "examples" / "run.py"), "--data", os.environ["JUPYTER_DATA_DIR"])
    with lab_in_browser(tmp_path, *run) as (lab, browser):
        yield lab, browser


def press(browser: Browser, text: str) -> None:
    browser.do("press", "a", query=".jp-Notebook button", text=text)


def run(browser: Browser, cell: int) -> str:
    """Run a cell to its end and return what it shows."""
    browser.do("run", "a", cell=cell, kernel=REPLICATED)
    browser.wait("a", lambda: " Done " in browser.line("a", cell))
    return browser.text("a", cell)


def test_every_step_of_the_tour_works(tour: tuple[Lab, Browser]) -> None:
    lab, browser = tour
    browser.do("open", "a", url=lab.url("lab/tree/examples/demo.ipynb") + "&reset", cells=BACK, height=2400)
    press(browser, "Show replicas and GPUs")
    mean = run(browser, STATE)
    browser.wait("a", lambda: browser.line("a", STATE).endswith(" durable"))

    run(browser, BUTTON)
    browser.wait("a", lambda: browser.line("a", BUTTON).endswith(" durable"))
    press(browser, "Kill the executor")
    browser.wait(
        "a",
        lambda: "died. Its variables are safe" in " ".join(browser.do("text", "a", query=".Toastify__toast")),
    )
    assert run(browser, AFTER) == f"({mean}, 100000)"
    said = run(browser, STATUS)
    assert all(replica in said for replica in ("r1", "r2", "r3"))

    assert run(browser, ONE).count("GPU-fake") == 1
    browser.wait("a", lambda: "1 free, 1 kept between cells" in panel(browser))
    press(browser, "Open a second notebook")
    browser.wait("a", lambda: len(browser.cells("a")) == RIVALS)
    browser.do("run", "a", cell=BOTH)
    browser.wait("a", lambda: "Running" in browser.line("a", BOTH))
    browser.do("run", "a", cell=RIVALS)
    browser.wait("a", lambda: "next in line" in browser.line("a", RIVALS))
    browser.do("screenshot", "a", path=str(SHOTS / "tour-light.png"))
    browser.wait("a", lambda: " Done " in browser.line("a", RIVALS))
    assert browser.text("a", RIVALS).count("GPU-fake") == 1

    browser.do("run", "a", cell=REST)
    browser.wait("a", lambda: "Hibernated" in panel(browser))
    assert run(browser, BACK) == f"(100001, {mean})"
    assert browser.do("state", "a")["errors"] == []

    kernels = [kernel["id"] for kernel in lab.call("GET", "api/kernels")]
    assert find_agent(own_host(os.environ), os.environ) is not None
    lab.stop()
    records = [read_record(data_dir(os.environ), kernel) for kernel in kernels]
    assert [record and record.state for record in records] == ["hibernated", "hibernated"]
    assert find_agent(own_host(os.environ), os.environ) is None
    assert "Traceback" not in lab.log.read_text()
