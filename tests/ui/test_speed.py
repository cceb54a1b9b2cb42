"""What 200 updates of cells a second cost a page, and 500 hosts that are scrolled, beside a stock page.

Stock page and ours are measured in turns, for the machine may be slower at one time than at another. Frames
a second say little where the browser has no screen and few cores; `busy_percent` and `late_ms_per_second` are
of the main thread's own tasks, and do not depend on that.
"""

from __future__ import annotations

import json
from statistics import median

import pytest

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, write_notebook

pytestmark = [*IN_BROWSER, pytest.mark.slow]

CELLS = 40
SECONDS = 4
TURNS = 3
PANEL = "#jp-replkernel-sidebar"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
LIST = ".jp-replkernel-scroll"
Figures = dict[str, float]


def middle(turns: list[Figures]) -> Figures:
    """Return the middle of each figure."""
    return {name: median(turn[name] for turn in turns) for name in turns[0]}


def in_turns(browser: Browser) -> dict[str, Figures]:
    """Measure in turns a stock page, ours at rest, and ours that hears of 200 cells a second."""
    flood = {"hosts": 500, "cells": CELLS, "seconds": SECONDS}
    found: dict[str, list[Figures]] = {}
    for _ in range(TURNS):
        found.setdefault("stock, quiet", []).append(browser.do("cost", "stock", seconds=SECONDS))
        found.setdefault("ours, quiet", []).append(browser.do("cost", "ours", seconds=SECONDS))
        busy = browser.do("flood", "ours", **flood, changed=0)
        found.setdefault("ours, 200 cells a second", []).append(busy)
    return {name: middle(turns) for name, turns in found.items()}


@pytest.mark.timeout(600)
def test_the_cost_of_many_updates_is_measured_beside_a_stock_page(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    for open_before, (name, kernel) in enumerate((("stock", "python3"), ("ours", "replkernel"))):
        write_notebook(lab.directory / f"{name}.ipynb", kernel, *(f"x = {number}" for number in range(CELLS)))
        url = lab.url(f"lab/workspaces/{name}/tree/{name}.ipynb") + "&reset"
        browser.do("open", name, url=url, cells=1, height=800, deaf=name == "ours")
        browser.wait(name, lambda known=open_before: len(lab.call("GET", "api/sessions")) == known + 1)  # type: ignore[misc]
        browser.do("cost", name, seconds=2)
    figures = in_turns(browser)
    assert "r1 · host1" in browser.line("ours")
    browser.do("close", "stock")
    flood = {"hosts": 500, "cells": CELLS, "seconds": SECONDS}
    browser.do("press", "ours", query=TAB)
    figures["ours, and the panel"] = browser.do("flood", "ours", **flood, changed=0)
    figures["ours, and 500 hosts a second"] = browser.do("flood", "ours", **flood)
    figures["ours, all of it scrolled"] = browser.do("flood", "ours", **flood, list=LIST)
    figures["ours, scrolled alone"] = browser.do("cost", "ours", seconds=SECONDS, list=LIST)
    stock, ours = figures["stock, quiet"], figures["ours, 200 cells a second"]
    figures["200 cells a second beside stock at rest"] = {
        name: ours[name] / stock[name]
        for name in ("frames_per_second", "task_ms", "busy_percent")
        if stock[name]
    }
    (SHOTS / "speed.json").write_text(json.dumps(figures, indent=1))
    assert figures["ours, all of it scrolled"]["rows"] < 60
    assert browser.do("state", "ours")["errors"] == []
