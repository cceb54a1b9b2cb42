"""Other ways to read a notebook: Notebook 7, one document, right to left, at 200 %, by a screen reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.driven import IN_BROWSER, PANEL, SHOTS, Browser, Lab, lab_in_browser, panel, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
CELL = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell"
LINE = f"{CELL} .jp-replkernel-line"
CHOOSER = ".jp-replkernel-chooser"
DASHBOARD = ".jp-replkernel-dashboard"
NAMED = ("button", "combobox", "heading", "link", "region", "spinbutton", "textbox")
"""Roles that a screen reader calls by a name."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lab, Browser]]:
    monkeypatch.setenv("REPLKERNEL_FAKE_GPUS", "2")
    SHOTS.mkdir(parents=True, exist_ok=True)
    with lab_in_browser(tmp_path) as (lab, browser):
        yield lab, browser


def looked_at(browser: Browser, page: str, name: str) -> None:
    browser.do("screenshot", page, path=str(SHOTS / f"{name}.png"))
    assert browser.do("clipped", page) == []
    assert browser.do("axe", page, query=LINE) == []


def a_screen_reader_reads_line_and_panel_in_the_order_that_is_seen(lab: Lab, browser: Browser) -> None:
    read = browser.do("tree", "a", query=LINE)
    words = " ".join(name for role, name in read if role in ("button", "StaticText"))
    assert words.startswith("Steps of this execution"), read
    # Whichever replica was ready first has run the cell.
    assert re.search(r"\b1 GPU\b.* Done\b.*\br[123]\b.* durable\b", words), words
    tree = browser.do("tree", "a", query=PANEL)
    assert [role for role, name in tree if role in NAMED and not name.strip()] == [], tree
    heads = [name for role, name in tree if role == "heading"]
    assert heads[:1] == ["a.ipynb"] and "Cluster" in heads, heads


def nothing_moves_where_a_person_wants_less_motion(lab: Lab, browser: Browser) -> None:
    browser.do("media", "a", reducedMotion="reduce")
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: browser.text("a", 2) == "42\n" and browser.line("a", 2).endswith(" durable"))
    assert browser.do("moving", "a") == []


def line_and_panel_are_whole_from_right_to_left(lab: Lab, browser: Browser) -> None:
    browser.do("direction", "a", to="rtl")
    looked_at(browser, "a", "right-to-left")
    browser.do("direction", "a", to="ltr")
    assert browser.do("state", "a")["errors"] == []


def single_document_mode_has_line_and_panel(lab: Lab, browser: Browser) -> None:
    browser.do("open", "d", url=lab.url("doc/tree/a.ipynb") + "&reset", cells=2, height=800)
    browser.wait("d", lambda: browser.line("d").endswith(" durable"))
    browser.do("command", "d", id="replkernel:show-panel", text="Replicated kernel: show GPUs")
    browser.wait("d", lambda: "in sync" in " ".join(browser.do("text", "d", query=PANEL)))
    looked_at(browser, "d", "single-document")
    assert browser.do("state", "d")["errors"] == []
    browser.do("close", "d")


def notebook_7_has_line_and_panel(lab: Lab, browser: Browser) -> None:
    browser.do("open", "n", url=lab.url("notebooks/a.ipynb"), cells=2, height=800)
    browser.wait("n", lambda: browser.line("n").endswith(" durable"))
    browser.do("command", "n", id="replkernel:show-panel", text="Replicated kernel: show GPUs")
    browser.wait("n", lambda: "in sync" in " ".join(browser.do("text", "n", query=PANEL)))
    browser.do("run", "n", cell=2)
    browser.wait("n", lambda: browser.text("n", 2) == "42\n" and browser.line("n", 2).endswith(" durable"))
    looked_at(browser, "n", "notebook7-light")
    assert browser.do("axe", "n", query=PANEL) == []
    # Notebook 7 has an error of its own at its start, on stock kernels too.
    assert [error for error in browser.do("state", "n")["errors"] if "@replkernel" in error] == []
    browser.do("close", "n")


@pytest.mark.timeout(600)
def test_a_notebook_is_read_in_other_ways(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "print(x + 1)", gpus=1)
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("command", "a", id="replkernel:show-panel", text="Replicated kernel: show GPUs")
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))
    a_screen_reader_reads_line_and_panel_in_the_order_that_is_seen(lab, browser)
    nothing_moves_where_a_person_wants_less_motion(lab, browser)
    line_and_panel_are_whole_from_right_to_left(lab, browser)
    single_document_mode_has_line_and_panel(lab, browser)
    notebook_7_has_line_and_panel(lab, browser)


def at_200_percent(browser: Browser, name: str) -> None:
    browser.do("screenshot", "z", path=str(SHOTS / f"200-percent-{name}.png"))
    assert browser.do("clipped", "z") == []
    assert browser.do("overlapping", "z") == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_chooser_line_panel_and_dashboard_are_whole_at_200_percent(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "print(x + 1)", gpus=1)
    url = lab.url("lab/tree/a.ipynb") + "&reset"
    browser.do("open", "z", url=url, cells=1, height=800, zoom=2)
    browser.do(
        "press", "z", query='.lm-TabBar-tab[data-id="filebrowser"]'
    )  # It would have half of the window.
    browser.do("run", "z", cell=1, kernel=REPLICATED)
    browser.wait("z", lambda: browser.line("z").endswith(" durable"))
    at_200_percent(browser, "line")
    if not browser.do("text", "z", query=CHOOSER):
        browser.do("press", "z", query=".jp-NotebookPanel-toolbar .jp-Toolbar-responsive-opener")
    browser.wait("z", lambda: browser.do("text", "z", query=CHOOSER) != [])
    at_200_percent(browser, "chooser")
    browser.do("keys", "z", keys=["Escape"])
    browser.do("command", "z", id="replkernel:show-panel", text="Replicated kernel: show GPUs")
    browser.wait("z", lambda: "in sync" in " ".join(browser.do("text", "z", query=PANEL)))
    browser.wait("z", lambda: "x = 41" in " ".join(browser.do("text", "z", query=PANEL)))
    assert browser.do("scrolled", "z", query=PANEL) == 0  # GPUs come first, however long the history is.
    at_200_percent(browser, "panel")
    browser.do("press", "z", query='.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]')
    browser.do("command", "z", id="replkernel:show-dashboard", text="GPU cluster")
    browser.wait("z", lambda: browser.do("text", "z", query=f"{DASHBOARD} .vega-embed:has(svg)") != [])
    at_200_percent(browser, "dashboard")
    assert browser.do("state", "z")["errors"] == []
