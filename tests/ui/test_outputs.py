"""What a cell prints while nobody looks is in the notebook when somebody looks again: in a real browser."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.ui.driven import IN_BROWSER, Browser, Lab, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
STOCK = "Python 3 (ipykernel)"


def counting(seconds: int) -> str:
    return f"import time\nfor i in range({seconds}):\n    print('line', i)\n    time.sleep(1)"


def lines(number: int) -> str:
    return "".join(f"line {i}\n" for i in range(number))


def until_told(each: str, at_last: str) -> str:
    return (
        "import time\nfrom pathlib import Path\ni = 0\nwhile not Path('told').exists():\n"
        f"    {each}\n    i += 1\n    time.sleep(0.5)\n{at_last}"
    )


def tell(lab: Lab) -> None:
    (lab.directory / "told").touch()


def open_notebook(desk: tuple[Lab, Browser], page: str, cells: int = 1) -> None:
    lab, browser = desk
    browser.do("open", page, url=lab.url("lab/tree/notebook.ipynb") + "&reset", cells=cells)


def test_a_server_that_is_killed_in_the_middle_of_a_cell(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    path = lab.directory / "notebook.ipynb"
    write_notebook(path, "replkernel", until_told("print('line', i)", "print('end')"))
    open_notebook(desk, "tab")
    browser.do("run", "tab", cell=1, kernel=REPLICATED)
    browser.wait("tab", lambda: "line 3" in browser.text("tab"))
    lab.stop(signal.SIGKILL)
    seen = browser.text("tab").count("line")
    time.sleep(2)
    lab.start()
    tell(lab)
    browser.wait("tab", lambda: browser.prompt("tab") == "[1]:", 120)
    printed = browser.text("tab")
    assert printed.count("line") > seen
    assert printed == lines(printed.count("line")) + "end\n"

    assert json.loads(path.read_text())["cells"][0]["outputs"] == []
    browser.do("reload", "tab", cells=1)
    browser.wait("tab", lambda: browser.prompt("tab") == "[1]:")
    assert browser.text("tab") == printed
    assert browser.do("state", "tab")["errors"] == []


@pytest.mark.slow
def test_a_tab_that_is_closed_while_a_cell_runs(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    cell = until_told("print('line', i)", "print('end')")
    write_notebook(lab.directory / "notebook.ipynb", "replkernel", cell, "print('next')")
    open_notebook(desk, "tab", 2)
    browser.do("run", "tab", cell=1, kernel=REPLICATED)
    browser.wait("tab", lambda: "line 1" in browser.text("tab"))
    browser.do("close", "tab")

    open_notebook(desk, "while", 2)
    browser.wait("while", lambda: browser.prompt("while") == "[*]:" and "line 2" in browser.text("while"))
    lines_then = browser.text("while").count("\n")
    browser.wait("while", lambda: browser.text("while").count("\n") > lines_then + 2)
    tell(lab)
    browser.wait("while", lambda: browser.prompt("while") == "[1]:")
    printed = browser.text("while")
    assert printed == lines(printed.count("line")) + "end\n"
    browser.do("close", "while")

    open_notebook(desk, "after", 2)
    browser.wait("after", lambda: browser.prompt("after") == "[1]:")
    assert browser.text("after") == printed
    browser.do("run", "after", cell=2, kernel=REPLICATED)
    browser.wait("after", lambda: browser.text("after", 2) == "next\n")
    assert browser.prompt("after", 2) == "[2]:"


def test_output_changed_or_taken_back_while_nobody_looks_is_shown_so(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    clearing = until_told("clear_output(wait=True)\n    print('step', i)", "pass")
    clearing = f"from IPython.display import clear_output, display\n{clearing}"
    updating = (
        "shown = display('begun', display_id=True)\n"
        "for i in range(6):\n    time.sleep(0.5)\n    shown.update(f'update {i}')\nprint('end')"
    )
    write_notebook(lab.directory / "notebook.ipynb", "replkernel", clearing, updating)
    open_notebook(desk, "tab", 2)
    browser.do("run", "tab", cell=1, kernel=REPLICATED)
    browser.wait("tab", lambda: "step 1" in browser.text("tab"))
    browser.do("run", "tab", cell=2)
    browser.do("close", "tab")

    open_notebook(desk, "while", 2)
    seen: set[str] = set()

    def three_steps() -> bool:
        seen.add(browser.text("while"))
        return len(seen) > 3

    browser.wait("while", three_steps)
    assert all(text.count("step") <= 1 for text in seen)
    tell(lab)
    browser.wait("while", lambda: browser.prompt("while", 2) == "[2]:")
    open_notebook(desk, "after", 2)
    browser.wait("after", lambda: browser.prompt("after", 2) == "[2]:")
    for page in ("while", "after"):
        assert browser.text(page).count("step") == 1
        assert browser.cells(page)[1]["outputs"] == ["'update 5'", "end\n"]
    assert browser.text("while") == browser.text("after")


@pytest.mark.slow
def test_outputs_that_were_cleared_and_saved_do_not_come_back(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    path = lab.directory / "notebook.ipynb"
    write_notebook(path, "replkernel", "print('one')", "print('two')")
    open_notebook(desk, "tab", 2)
    for number in (1, 2):
        browser.do("run", "tab", cell=number, kernel=REPLICATED)
        browser.wait("tab", lambda number=number: browser.prompt("tab", number) == f"[{number}]:")  # type: ignore[misc]
    browser.do("reload", "tab", cells=2)
    browser.wait("tab", lambda: browser.text("tab", 2) == "two\n")
    assert browser.text("tab", 1) == "one\n"
    assert browser.do("state", "tab")["dirty"]

    browser.do("clear", "tab", cell=1)
    browser.wait("tab", lambda: browser.text("tab", 1) == "")
    browser.do("save", "tab")
    assert json.loads(path.read_text())["cells"][0]["outputs"] == []
    browser.do("reload", "tab", cells=2)
    browser.wait("tab", lambda: len(browser.do("state", "tab")["asked"]) > 3)
    time.sleep(2)
    assert browser.text("tab", 1) == ""
    assert browser.text("tab", 2) == "two\n"
    assert not browser.do("state", "tab")["dirty"]


@pytest.mark.slow
def test_a_notebook_on_the_stock_kernel_is_left_alone(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    path = lab.directory / "notebook.ipynb"
    write_notebook(path, "python3", counting(6))
    open_notebook(desk, "tab")
    browser.do("run", "tab", cell=1, kernel=STOCK)
    browser.wait("tab", lambda: "line 1" in browser.text("tab"))
    browser.do("save", "tab")
    browser.do("reload", "tab", cells=1)
    time.sleep(8)
    saved = json.loads(path.read_text())["cells"][0]["outputs"]
    assert browser.text("tab") == "".join(saved[0]["text"])
    assert "line 5" not in browser.text("tab")
    assert browser.prompt("tab") == "[ ]:"
    state = browser.do("state", "tab")
    assert state == {"asked": [], "requests": 0, "heard": 0, "errors": [], "dirty": False}
