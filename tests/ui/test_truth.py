"""One truth: panel, line, status bar, dashboard and command say the same of GPUs held, waited for and kept.

A panel is looked at ten times a second while things change: it contradicts itself not even in passing.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.ui.driven import IN_BROWSER, PANEL, SHOTS, Browser, Lab, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
STATUS = ".jp-replkernel-status"
DASHBOARD = ".jp-replkernel-dashboard"
WAITS = "Waiting for 1 GPU · "
MOST = 0.8
"""A cell waits for the scheduler's queue most of the time; the way there and back is the rest."""

GREY_SPREAD = 3
"""So far apart red, green and blue of a grey may be."""


def until(sign: str) -> str:
    return f"import time\nfrom pathlib import Path\nwhile not Path('{sign}').exists():\n    time.sleep(0.1)"


def said(browser: Browser, page: str, query: str) -> str:
    return " ".join(browser.do("text", page, query=query))


def open_with_panel(desk: tuple[Lab, Browser], page: str, cells: int) -> None:
    lab, browser = desk
    url = lab.url(f"lab/workspaces/{page}/tree/{page}.ipynb") + "&reset"
    browser.do("open", page, url=url, cells=cells, height=1400)
    browser.do("press", page, query=TAB)
    browser.wait(page, lambda: "Cluster" in said(browser, page, PANEL))


def without_guess(text: str) -> str:
    """Leave out how long a wait may take: it is read at another moment in each place."""
    return re.sub(r" · about [^·]*(?= ·|$)", "", text)


def no_look_contradicts_itself(looks: list[dict[str, Any]]) -> None:
    """Assert of all that was seen of a panel that its counts are those of what it lists."""
    assert len(looks) > 3, looks
    for look in looks:
        text = look["text"]
        if found := re.search(r"(\d+) cells? (?:is|are) waiting for GPUs", text):
            assert int(found[1]) == look["queue"], text
        if found := re.search(r"GPUs now (\d+)", text):
            assert int(found[1]) == look["yours"], text
        if found := re.search(r"GPU-hours used ([\d.]+) .*This month ([\d.]+)", text):
            assert float(found[1]) >= float(found[2]), text


def show_dashboard(browser: Browser, page: str = "c") -> None:
    browser.do("command", page, id="replkernel:show-dashboard", text="GPU cluster")


def places_agree_on_who_waits(browser: Browser) -> None:
    """Look at two notebooks that wait for GPUs of a third one."""
    browser.wait("b", lambda: "2 cells are waiting for GPUs." in said(browser, "b", PANEL))
    assert len(browser.do("text", "b", query=f"{PANEL} .jp-replkernel-queue > li")) == 2
    for page, place in (("b", "next in line"), ("c", "number 2 in line")):
        told = f"{WAITS}{place} · held by a.ipynb"
        for query in (STATUS, PANEL):
            browser.wait(page, lambda q=query, p=page, t=told: t in without_guess(said(browser, p, q)))  # type: ignore[misc]
        assert told in without_guess(browser.line(page)), browser.line(page)
        assert "Idle" not in said(browser, page, STATUS)
    show_dashboard(browser)
    browser.wait("c", lambda: "Now: 2 of 2 GPUs in use, 0 kept" in said(browser, "c", DASHBOARD))
    browser.wait("c", lambda: "Now: 2 cells are waiting." in said(browser, "c", DASHBOARD))
    rows = f'{DASHBOARD} [aria-label="Cells waiting now"] tbody tr'
    assert [row.split()[0] for row in browser.do("text", "c", query=rows)] == ["b.ipynb", "c.ipynb"]
    command = [sys.executable, "-m", "replkernel.cli", "status"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "1 lease, 2 cells waiting" in told, told


def a_cancelled_cell_is_grey(browser: Browser) -> None:
    browser.do("press", "c", query='.lm-DockPanel-tabBar .lm-TabBar-tab:has-text("c.ipynb")')
    browser.do("menu", "c", menu="Kernel", id="kernelmenu:interrupt")
    browser.wait("c", lambda: "Cancelled" in browser.line("c"))
    mark = ".jp-replkernel-line .jp-replkernel-mark.jp-mod-state"
    for query in (mark, f"{mark} > .jp-replkernel-icon"):
        colour = browser.do("colour", "c", query=query)
        assert max(colour) - min(colour) <= GREY_SPREAD, colour
    show_dashboard(browser)


def a_completion_does_not_call_a_running_notebook_idle(browser: Browser) -> None:
    browser.do("press", "a", query=".jp-CodeCell >> nth=1 >> .cm-content")
    browser.do("keys", "a", keys=["Control+End"], text=".bit_")
    browser.do("keys", "a", keys=["Tab"])
    browser.wait("a", lambda: "bit_length" in said(browser, "a", ".jp-Completer-item"))
    for query in (STATUS, PANEL):
        assert "Running · r" in said(browser, "a", query) and "Idle" not in said(browser, "a", query)
    browser.do("keys", "a", keys=["Escape", *["Backspace"] * len(".bit_")])


def seconds(text: str) -> float:
    """Read a time as the page writes it."""
    number, unit = text.split()
    return float(number) / (1000 if unit == "ms" else 1)


def dashboard_and_line_agree_on_the_wait(browser: Browser) -> None:
    """Cells of other tests on the same server count there too."""
    waited = re.search(r"waited ([\d.]+ s) for 1 GPU", browser.line("b"))
    assert waited, browser.line("b")

    def agrees() -> bool:
        told = said(browser, "c", DASHBOARD)
        longest = re.search(r"95 % at most ([\d.]+ m?s)", told)
        counted = re.search(r"The last \d+ cells that got GPUs", told)
        return bool(counted and longest) and seconds(longest[1]) >= MOST * seconds(waited[1])

    browser.wait("c", agrees)


def test_every_place_says_the_same_while_gpus_are_held_waited_for_and_kept(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", until("told"), "x = 1\nx", gpus=2)
    write_notebook(lab.directory / "b.ipynb", "replkernel", "print('mine')", gpus=1)
    write_notebook(lab.directory / "c.ipynb", "replkernel", "print('not mine')", gpus=1)
    open_with_panel(desk, "a", 2)
    browser.do("watch", "a", panel=PANEL)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: "Running" in browser.line("a"))
    for page in "bc":
        open_with_panel(desk, page, 1)
        browser.do("watch", page, panel=PANEL)
        browser.do("run", page, cell=1, kernel=REPLICATED)
        browser.wait(page, lambda now=page: WAITS in browser.line(now))  # type: ignore[misc]
    places_agree_on_who_waits(browser)
    a_completion_does_not_call_a_running_notebook_idle(browser)
    browser.do("screenshot", "b", path=str(SHOTS / "truth-waiting.png"))
    a_cancelled_cell_is_grey(browser)
    (lab.directory / "told").touch()
    browser.wait("b", lambda: browser.line("b").endswith(" durable"))
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.wait("c", lambda: "Now: 0 of 2 GPUs in use, " in said(browser, "c", DASHBOARD))
    kept = re.search(r"in use, ([12]) kept between cells", said(browser, "c", DASHBOARD))
    assert kept, said(browser, "c", DASHBOARD)
    browser.wait("b", lambda: f"{kept[1]} kept between cells" in said(browser, "b", PANEL))
    dashboard_and_line_agree_on_the_wait(browser)
    for page in "abc":
        no_look_contradicts_itself(browser.do("watched", page))
    for page in "abc":
        assert browser.do("state", page)["errors"] == []


@pytest.mark.slow
def test_a_restarted_server_raises_no_false_alarm_and_keeps_the_past(desk: tuple[Lab, Browser]) -> None:
    """The server has the scheduler too, and is killed while a cell runs on GPUs."""
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 1", until("told"), gpus=2)
    open_with_panel(desk, "a", 2)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: "Running" in browser.line("a", 2) and "2 in use" in said(browser, "a", PANEL))
    browser.do("watch", "a", panel=PANEL)
    lab.stop(signal.SIGKILL)
    browser.wait("a", lambda: "Reconnecting" in said(browser, "a", ".jp-replkernel-banner"))
    lab.start()
    browser.wait("a", lambda: said(browser, "a", ".jp-replkernel-banner") == "")
    (lab.directory / "told").touch()
    browser.wait("a", lambda: browser.line("a", 2).endswith(" durable"))
    browser.wait("a", lambda: "2 kept between cells" in said(browser, "a", PANEL))
    for look in browser.do("watched", "a"):
        told = " ".join([look["text"], look["status"], *look["notices"]])
        assert not re.search(r"no scheduler|out of reach:", told, re.IGNORECASE), told
    show_dashboard(browser, "a")
    past = re.compile(r"The last (cell|\d+ cells) that got GPUs")  # Those of an earlier test, too.
    browser.wait("a", lambda: past.search(said(browser, "a", DASHBOARD)) is not None)
    assert browser.do("state", "a")["errors"] == []
