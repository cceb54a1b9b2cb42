"""The dashboard: who holds GPUs now and who waits; charts of the cluster's last day, by JupyterLab's Vega."""

from __future__ import annotations

from tests.ui.driven import IN_BROWSER, PANEL, SHOTS, Browser, Lab, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
TAB = ".jp-replkernel-dashboard"
CHART = f"{TAB} .jp-replkernel-chart"


def said(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=CHART))


def rows(browser: Browser, what: str) -> list[str]:
    return [str(row) for row in browser.do("text", "a", query=f'{TAB} [aria-label="{what}"] tbody tr')]


def test_who_holds_and_who_waits_is_told_and_the_clusters_last_day_is_drawn(
    desk: tuple[Lab, Browser],
) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "import time; time.sleep(600)", gpus=1)
    write_notebook(lab.directory / "b.ipynb", "replkernel", "1", gpus=2)
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("command", "a", id="replkernel:show-dashboard", text="GPU cluster")
    browser.wait("a", lambda: "Now: 0 of 2 GPUs in use, 1 kept between cells." in said(browser))
    browser.wait("a", lambda: "cells are waiting." in said(browser))
    (held,) = rows(browser, "Who holds GPUs now")
    assert held.startswith("a.ipynb 1 × ") and " kept between cells " in held and held.endswith(" 0.00"), held
    assert rows(browser, "Cells waiting now") == []
    browser.wait("a", lambda: "0 %" in said(browser) and "GiB" in said(browser))  # Of each GPU.
    browser.wait("a", lambda: len(browser.do("text", "a", query=f"{CHART} .vega-embed:has(svg)")) == 6)
    browser.do("press", "a", query='.lm-DockPanel-tabBar .lm-TabBar-tab:has-text("a.ipynb")')
    browser.do("run", "a", cell=2)
    browser.do("command", "a", id="replkernel:show-dashboard", text="GPU cluster")
    browser.wait("a", lambda: " in use " in "".join(rows(browser, "Who holds GPUs now")))
    browser.do("open", "b", url=lab.url("lab/tree/b.ipynb") + "&reset", cells=1, height=800)
    browser.do("run", "b", cell=1, kernel=REPLICATED)
    waits = "b.ipynb 2 GPUs next in line"
    browser.wait("a", lambda: any(row.startswith(waits) for row in rows(browser, "Cells waiting now")))
    browser.wait("b", lambda: "Waiting for 2 GPUs · next in line" in browser.line("b"))
    assert browser.do("axe", "a", query=TAB) == []
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / "dashboard-light.png"))
    browser.do("press", "a", query='.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]')
    browser.wait("a", lambda: browser.do("text", "a", query=f"{PANEL}:has-text('Cluster')") != [])
    charts = f"{CHART} .vega-embed svg"
    browser.wait("a", lambda: browser.do("covered", "a", over=charts, under=PANEL) == [])
    browser.do("theme", "a", theme="JupyterLab Dark")
    assert browser.do("axe", "a", query=TAB) == []
    browser.do("screenshot", "a", path=str(SHOTS / "dashboard-dark.png"))
    assert browser.do("state", "a")["errors"] == []
