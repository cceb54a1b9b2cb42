"""The history in the panel, by keyboard alone: points, the way back, differences, marks, branches, lines."""

from __future__ import annotations

from tests.ui.driven import IN_BROWSER, PANEL, SHOTS, Browser, Lab, panel, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
POINTS = f"{PANEL} [role=option]"
CHOSEN = f"{PANEL} [role=option][aria-selected=true]"
GONE = "not in the current state"
TABS_MAX = 12


def rows(browser: Browser) -> list[str]:
    found: list[str] = browser.do("text", "a", query=POINTS)
    return found


def hit(browser: Browser, *keys: str) -> None:
    browser.do("keys", "a", keys=keys)


def show(browser: Browser) -> None:
    """Come from the notebook to the list of points."""
    browser.do("command", "a", id="replkernel:show-history", text="show history")
    browser.wait("a", lambda: browser.do("focused", "a")[0] == "listbox")


def to(browser: Browser, label: str) -> None:
    """Walk to a button from the list, by Tab alone."""
    for _ in range(TABS_MAX):
        if str(browser.do("focused", "a")[1]).startswith(label):
            return
        hit(browser, "Tab")
    raise AssertionError(f"{label} cannot be reached: {browser.do('focused', 'a')}")


def shoot(browser: Browser, name: str) -> None:
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / f"{name}.png"))
    assert browser.do("axe", "a", query=PANEL) == []


def test_back_and_forth_by_keyboard(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    cells = ("x = [1]", "x.append(2); later = 1", "import socket; line = socket.socket()", "print(x)")
    write_notebook(lab.directory / "a.ipynb", "replkernel", *cells)
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=4, width=780, height=1000)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: browser.line("a", 2).endswith(" durable"))
    show(browser)
    browser.wait("a", lambda: len(rows(browser)) == 2 and "now" in rows(browser)[0])
    assert "x.append(2); later = 1" in rows(browser)[0] and "later, x" in rows(browser)[0]

    hit(browser, "ArrowDown")
    assert browser.do("text", "a", query=CHOSEN)[0].startswith("[1] x = [1]")
    to(browser, "Compare with now")
    hit(browser, "Enter")
    browser.wait("a", lambda: "later: not there →" in panel(browser))
    to(browser, "input")
    browser.do("keys", "a", text="before")
    to(browser, "Mark [1]")
    hit(browser, "Enter")
    browser.wait("a", lambda: "before" in rows(browser)[1])
    show(browser)
    hit(browser, "ArrowDown", "Enter")
    browser.wait("a", lambda: "now" in rows(browser)[1] and "undone" in rows(browser)[0])
    browser.wait("a", lambda: GONE in browser.line("a", 2))
    assert GONE not in browser.line("a", 1)
    shoot(browser, "history-light")
    browser.do("run", "a", cell=4)
    browser.wait("a", lambda: browser.text("a", 4) == "[1]\n")

    browser.do("command", "a", id="replkernel:redo", text="Redo Cell")
    browser.wait("a", lambda: "now" in rows(browser)[0] and GONE not in browser.line("a", 2))
    browser.do("run", "a", cell=3)
    browser.wait("a", lambda: "durable" in browser.line("a", 3) and len(rows(browser)) == 3)
    browser.do("command", "a", id="replkernel:undo", text="Undo Last Cell")
    browser.wait("a", lambda: "line (socket.socket)" in " ".join(browser.do("text", "a", query=".jp-Dialog")))
    assert browser.do("axe", "a", query=".jp-Dialog-content") == []
    hit(browser, "Escape")
    assert "now" in rows(browser)[0]
    browser.do("command", "a", id="replkernel:undo", text="Undo Last Cell")
    browser.wait("a", lambda: browser.do("focused", "a")[1] == "Stay here")
    hit(browser, "Tab", "Enter")
    browser.wait("a", lambda: "now" in rows(browser)[1])

    show(browser)
    to(browser, "input")
    browser.do("keys", "a", text="trial")
    to(browser, "Branch")
    hit(browser, "Enter")
    browser.wait("a", lambda: "On branch trial" in panel(browser))
    browser.do("theme", "a", theme="JupyterLab Dark")
    shoot(browser, "history-dark")
    show(browser)
    to(browser, "Switch to main")
    hit(browser, "Enter")
    browser.wait("a", lambda: browser.do("focused", "a")[1] == "Stay here")  # Its end has the socket.
    hit(browser, "Tab", "Enter")
    browser.wait("a", lambda: "On branch main" in panel(browser))
    assert browser.do("state", "a")["errors"] == []
