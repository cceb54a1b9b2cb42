"""The history in the panel, by keyboard alone: points, the way back, differences, marks, branches, lines."""

from __future__ import annotations

import os

from replkernel.client.by_record import known_record
from replkernel.client.cells import is_over, look, send
from replkernel.launch.kernel_record import router_lives
from replkernel.protocol.sent_cells import Bounds, NewCell
from tests.support.live import eventually
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
    hit(browser, "ArrowUp")
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


def kernels_beside(lab: Lab, known: str) -> list[str]:
    """Return the kernels that the server tells pages of, but for one."""
    told = lab.call("GET", "replkernel/api/live")["kernels"]
    return [one["kernel_id"] for one in told if one["kernel_id"] != known]


def test_a_branch_and_a_fork_begin_at_the_point_that_is_chosen(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = [1]", "later = 1", "print(x)")
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=3, width=780, height=1000)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("run", "a", cell=2)
    show(browser)
    browser.wait("a", lambda: len(rows(browser)) == 2 and "now" in rows(browser)[0])
    (kernel,) = lab.call("GET", "api/kernels")

    hit(browser, "ArrowDown")
    to(browser, "Fork from [1]")
    shoot(browser, "history-fork")
    hit(browser, "Enter")
    browser.wait("a", lambda: "A new kernel has this state" in panel(browser))
    assert "now" in rows(browser)[0], "the notebook stays where it is"
    listed: list[str] = eventually(lambda: kernels_beside(lab, kernel["id"]), "the fork in the list")
    (fork,) = listed
    lab.call("POST", f"replkernel/api/kernels/{fork}")
    eventually(lambda: router_lives(known_record(fork, os.environ)), "the fork's router")
    cell = send(fork, os.environ, NewCell("print(x, 'later' in globals())")).cell
    eventually(lambda: is_over(fork, os.environ, cell), "the end of the fork's cell")
    assert [one.text for one in look(fork, os.environ, cell, Bounds()).outputs] == ["[1] False\n"]

    show(browser)
    to(browser, "input")
    browser.do("keys", "a", text="trial")
    to(browser, "Branch from [1]")
    hit(browser, "Enter")
    browser.wait("a", lambda: "On branch trial" in panel(browser) and "now" in rows(browser)[1])
    browser.wait("a", lambda: GONE in browser.line("a", 2))
    assert browser.do("focused", "a")[1] == "Branch", "the button keeps the focus, under its new label"
    shoot(browser, "history-branch")
    assert browser.do("state", "a")["errors"] == []
