"""All that is shown, in three themes, in a wide and in a narrow window: whole, and without faults for axe."""

from __future__ import annotations

import pytest

from tests.support.breadth import first_of
from tests.ui.driven import IN_BROWSER, PANEL, SHOTS, Browser, Lab, panel, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
LINE = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell .jp-replkernel-line"
CHOOSER = ".jp-replkernel-chooser"
DASHBOARD = ".jp-replkernel-dashboard"
FORM = ".jp-SettingsPanel"
OURS, STOCKS = "@replkernel/labextension:settings", "@jupyterlab/notebook-extension:tracker"
THEMES = {
    "light": "JupyterLab Light",
    "dark": "JupyterLab Dark",
    "high-contrast": "JupyterLab Dark High Contrast",
}
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
NARROW = 780


def faults(browser: Browser, query: str) -> set[str]:
    """Return the rules of axe that a part of the page breaks."""
    return {str(fault).split(":")[0] for fault in browser.do("axe", "a", query=query)}


def shoot(browser: Browser, page: str, name: str) -> None:
    browser.do("screenshot", page, path=str(SHOTS / f"looks-{name}.png"))
    assert browser.do("clipped", page) == []
    assert browser.do("overlapping", page) == []


def settings_have_no_faults_that_stocks_have_not(browser: Browser, theme: str) -> None:
    browser.do("command", "a", id="settingeditor:open", text="Settings Editor")
    browser.wait("a", lambda: browser.do("text", "a", query=f'.jp-PluginList [data-id="{OURS}"]') != [])
    found = {}
    for plugin in (STOCKS, OURS):
        browser.do("press", "a", query=f'.jp-PluginList [data-id="{plugin}"]')
        browser.wait("a", lambda: browser.do("text", "a", query=FORM) != [])
        found[plugin] = faults(browser, FORM)
    assert found[OURS] <= found[STOCKS], found
    shoot(browser, "a", f"settings-{theme}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("theme", first_of(*THEMES))
def test_all_that_is_shown_is_whole_and_accessible_in_each_theme(
    desk: tuple[Lab, Browser], theme: str
) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "print(x + 1)", "1 / 0", gpus=1)
    url = lab.url("lab/tree/a.ipynb") + "&reset"
    browser.do("open", "a", url=url, cells=3, height=800)
    for cell in (1, 2):
        browser.do("run", "a", cell=cell, kernel=REPLICATED)
        browser.wait("a", lambda now=cell: browser.line("a", now).endswith(" durable"))  # type: ignore[misc]
    browser.do("run", "a", cell=3)
    browser.wait("a", lambda: "Failed: ZeroDivisionError" in browser.line("a", 3))
    browser.do("toggle", "a", cell=2)
    browser.do("press", "a", query=TAB)
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))
    browser.do("theme", "a", theme=THEMES[theme])
    for query in (LINE, CHOOSER, PANEL):
        assert browser.do("axe", "a", query=query) == []
    shoot(browser, "a", f"notebook-{theme}")
    browser.do("command", "a", id="replkernel:show-dashboard", text="GPU cluster")
    browser.wait("a", lambda: browser.do("text", "a", query=f"{DASHBOARD} .vega-embed:has(svg)") != [])
    assert browser.do("axe", "a", query=DASHBOARD) == []
    shoot(browser, "a", f"dashboard-{theme}")
    settings_have_no_faults_that_stocks_have_not(browser, theme)
    browser.do("press", "a", query='.lm-DockPanel-tabBar .lm-TabBar-tab:has-text("a.ipynb")')
    narrow(lab, browser, theme)
    assert browser.do("state", "a")["errors"] == []


def narrow(lab: Lab, browser: Browser, theme: str) -> None:
    """Look at the same notebook in a small window, with the panel beside it."""
    url = lab.url("lab/workspaces/narrow/tree/a.ipynb") + "&reset"
    browser.do("open", "n", url=url, cells=3, width=NARROW, height=800)
    browser.wait("n", lambda: browser.line("n").endswith(" durable"))
    browser.do("press", "n", query='.lm-TabBar-tab[data-id="filebrowser"]')  # It would have half of it.
    browser.do("press", "n", query=TAB)
    browser.wait("n", lambda: "in sync" in " ".join(browser.do("text", "n", query=PANEL)))
    shoot(browser, "n", f"narrow-{theme}")
    browser.do("close", "n")
