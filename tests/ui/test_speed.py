"""What 200 updates of cells a second cost a page, and 500 hosts that are scrolled, beside a stock page."""

from __future__ import annotations

import json

import pytest

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, write_notebook

pytestmark = [*IN_BROWSER, pytest.mark.slow]

CELLS = 40
SECONDS = 6
PANEL = "#jp-replkernel-sidebar"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
LIST = ".jp-replkernel-scroll"


def test_the_cost_of_many_updates_is_measured_beside_a_stock_page(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    figures = {}
    for name, kernel in (("stock", "python3"), ("ours", "replkernel")):
        write_notebook(lab.directory / f"{name}.ipynb", kernel, *(f"x = {number}" for number in range(CELLS)))
        url = lab.url(f"lab/tree/{name}.ipynb") + "&reset"
        browser.do("open", name, url=url, cells=1, height=800, deaf=name == "ours")
        browser.wait(name, lambda: len(lab.call("GET", "api/sessions")) == 1)
        browser.do("cost", name, seconds=2)
        figures[f"{name}, quiet"] = browser.do("cost", name, seconds=SECONDS)
        if name == "stock":
            browser.do("close", name)
            for session in lab.call("GET", "api/sessions"):
                lab.call("DELETE", f"api/sessions/{session['id']}")
    flood = {"hosts": 500, "cells": CELLS, "seconds": SECONDS}
    figures["ours, 200 cells a second"] = browser.do("flood", "ours", **flood, changed=0)
    assert "r1 · host1" in browser.line("ours")
    browser.do("press", "ours", query=TAB)
    figures["ours, and the panel"] = browser.do("flood", "ours", **flood, changed=0)
    figures["ours, and 500 hosts a second"] = browser.do("flood", "ours", **flood)
    figures["ours, all of it scrolled"] = browser.do("flood", "ours", **flood, list=LIST)
    figures["ours, scrolled alone"] = browser.do("cost", "ours", seconds=SECONDS, list=LIST)
    (SHOTS / "speed.json").write_text(json.dumps(figures, indent=1))
    assert figures["ours, all of it scrolled"]["rows"] < 60
    assert browser.do("state", "ours")["errors"] == []
