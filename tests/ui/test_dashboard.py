"""The dashboard: charts of the cluster's last day, by the Vega that JupyterLab carries."""

from __future__ import annotations

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
TAB = ".jp-replkernel-dashboard"
CHART = f"{TAB} .jp-replkernel-chart"


def said(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=CHART))


def test_the_clusters_last_day_is_drawn(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", gpus=1)
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=1, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("command", "a", id="replkernel:show-dashboard", text="GPU cluster")
    browser.wait("a", lambda: "Now: 0 of 2 GPUs in use, 1 kept between cells." in said(browser))
    browser.wait("a", lambda: "cells wait." in said(browser))
    browser.wait("a", lambda: "0 %" in said(browser) and "GiB" in said(browser))  # Of each GPU.
    browser.wait("a", lambda: len(browser.do("text", "a", query=f"{CHART} .vega-embed:has(svg)")) == 6)
    assert browser.do("axe", "a", query=TAB) == []
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / "dashboard-light.png"))
    browser.do("theme", "a", theme="JupyterLab Dark")
    assert browser.do("axe", "a", query=TAB) == []
    browser.do("screenshot", "a", path=str(SHOTS / "dashboard-dark.png"))
    assert browser.do("state", "a")["errors"] == []
