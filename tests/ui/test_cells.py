"""What a person sees under a cell: who ran it, on which GPUs, what it waits for, and whether it is safe."""

from __future__ import annotations

import re
import signal
import time

import pytest

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
STOCK = "Python 3 (ipykernel)"
PANEL_TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
HIDDEN_S = 24.0
"""A page that has been hidden for so long listens no more."""

GREY_SPREAD = 3
"""So far apart red, green and blue of a grey may be."""

STOPPED = "KeyboardInterrupt: "
"""With this ends what a stock kernel leaves of a cell that is stopped by a shutdown."""


def open_notebook(desk: tuple[Lab, Browser], page: str, name: str, cells: int = 1) -> None:
    lab, browser = desk
    url = lab.url(f"lab/tree/{name}.ipynb") + "&reset"
    browser.do("open", page, url=url, cells=cells, height=800)


def banner(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=".jp-replkernel-banner:visible"))


def shoot(browser: Browser, page: str, name: str) -> None:
    assert browser.do("clipped", page) == []
    browser.do("screenshot", page, path=str(SHOTS / f"{name}.png"))


def is_grey(browser: Browser, cell: int) -> bool:
    """Tell whether the icon of a cell's state is of no colour."""
    mark = f".jp-CodeCell >> nth={cell - 1} >> .jp-replkernel-mark.jp-mod-state > .jp-replkernel-icon"
    colour = browser.do("colour", "a", query=mark)
    return bool(max(colour) - min(colour) <= GREY_SPREAD)


def test_a_line_under_each_cell_on_a_replicated_kernel_and_none_on_a_stock_one(
    desk: tuple[Lab, Browser],
) -> None:
    lab, browser = desk
    write_notebook(
        lab.directory / "a.ipynb",
        "replkernel",
        "x = list(range(1000)); print(len(x))",
        "import socket; s = socket.socket()",
        "import time\nfrom pathlib import Path\nwhile not Path('told').exists():\n    time.sleep(0.2)\n1 / 0",
        "y = 1",
        "for number in range(200): print(number)",
    )
    open_notebook(desk, "a", "a", 5)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    assert browser.line("a").startswith("▸ Done r")
    assert browser.do("lines", "a")[1:] == [""] * 4
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: "pinned: s" in browser.line("a", 2))
    browser.wait("a", lambda: browser.line("a", 2).endswith("durable, but for what is pinned"))
    bar = ".jp-replkernel-status"
    browser.wait("a", lambda: "durable, but for what is pinned (1)" in browser.do("text", "a", query=bar)[0])
    browser.do("run", "a", cell=3)
    browser.do("run", "a", cell=4)
    (lab.directory / "told").touch()
    browser.wait("a", lambda: "Failed: ZeroDivisionError" in browser.line("a", 3))
    browser.wait("a", lambda: "Skipped" in browser.line("a", 4))
    assert is_grey(browser, 4) and not is_grey(browser, 3)
    browser.do("run", "a", cell=5)
    browser.wait("a", lambda: "durable, but for what is pinned" in browser.line("a", 5))
    browser.wait("a", lambda: browser.do("lineInSight", "a", cell=5))  # Its end is far below the window.
    (lab.directory / "told").unlink()
    browser.do("run", "a", cell=3)
    browser.wait("a", lambda: "Running" in browser.line("a", 3))
    browser.do("lineInSight", "a", cell=5)
    (lab.directory / "told").touch()
    browser.wait("a", lambda: "Failed" in browser.line("a", 3))  # Above the window it is right as well.
    browser.do("toggle", "a", cell=1)
    browser.wait("a", lambda: "Replicate" in browser.line("a"))
    assert "Run" in browser.line("a") and "Queued" in browser.line("a")
    shoot(browser, "a", "cells-light")
    assert browser.do("axe", "a", query=".jp-NotebookPanel .jp-replkernel-line") == []
    browser.do("theme", "a", theme="JupyterLab Dark")
    shoot(browser, "a", "cells-dark")
    assert browser.do("axe", "a", query=".jp-NotebookPanel .jp-replkernel-line") == []

    browser.do("reload", "a", cells=5)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.wait("a", lambda: browser.do("lineInSight", "a", cell=5))
    assert browser.do("state", "a")["errors"] == []

    write_notebook(lab.directory / "stock.ipynb", "python3", "print('stock')")
    open_notebook(desk, "stock", "stock")
    browser.do("run", "stock", cell=1, kernel=STOCK)
    browser.wait("stock", lambda: browser.text("stock") == "stock\n")
    assert set(browser.do("lines", "stock")) == {""}
    assert browser.do("text", "stock", query=".jp-replkernel-spoken") == []


def test_a_second_notebook_without_a_free_gpu_shows_its_place_in_the_queue(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    wait = "import time\nfrom pathlib import Path\nwhile not Path('told').exists():\n    time.sleep(0.2)"
    write_notebook(lab.directory / "a.ipynb", "replkernel", wait, gpus=2)
    write_notebook(lab.directory / "b.ipynb", "replkernel", "print('mine now')", gpus=1)
    open_notebook(desk, "a", "a")
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: "Running" in browser.line("a"))
    assert "2 × " in browser.line("a")
    assert browser.text("a") == ""
    open_notebook(desk, "b", "b")
    browser.do("run", "b", cell=1, kernel=REPLICATED)
    browser.wait("b", lambda: "Waiting for 1 GPU · next in line" in browser.line("b"))
    assert "held by a.ipynb" in browser.line("b")
    assert browser.do("text", "b", query=".jp-OutputArea-output") == []  # Said once, not twice.
    assert "Waiting for 1 GPU" in browser.do("text", "b", query=".jp-replkernel-status")[0]
    shoot(browser, "b", "waiting-light")
    browser.do("press", "b", query=".jp-Notebook .jp-replkernel-cancel")
    browser.wait("b", lambda: "Cancelled waited" in " ".join(browser.line("b").split()))
    assert browser.do("text", "b", query=".jp-replkernel-cancel") == []
    browser.do("run", "b", cell=1)
    browser.wait("b", lambda: "Waiting for 1 GPU · next in line" in browser.line("b"))
    (lab.directory / "told").touch()
    browser.wait("b", lambda: browser.line("b").endswith(" durable"))
    assert "Done" in browser.line("b") and "for 1 GPU" in browser.line("b")
    assert browser.text("b") == "mine now\n"


def test_a_line_stands_through_a_reload_and_a_servers_end(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    wait = "import time\nfrom pathlib import Path\nwhile not Path('told').exists():\n    time.sleep(0.2)"
    write_notebook(lab.directory / "a.ipynb", "replkernel", wait)
    open_notebook(desk, "a", "a")
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: "Running" in browser.line("a"))
    browser.do("reload", "a", cells=1)
    browser.wait("a", lambda: re.search(r"Running.*\br[123]\b", browser.line("a")) is not None)
    lab.stop(signal.SIGKILL)
    browser.wait("a", lambda: banner(browser) == "Reconnecting: your cell keeps running")
    shoot(browser, "a", "no-server-light")
    lab.start()
    browser.wait("a", lambda: "Running" in browser.line("a") and banner(browser) == "")
    (lab.directory / "told").touch()
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))

    browser.do("media", "a", forcedColors="active", reducedMotion="reduce")
    browser.do("toggle", "a", cell=1)
    browser.wait("a", lambda: "Replicate" in browser.line("a"))
    shoot(browser, "a", "cells-forced-colours")
    assert browser.do("axe", "a", query=".jp-NotebookPanel .jp-replkernel-line") == []
    browser.do("media", "a", forcedColors="none")
    browser.do("theme", "a", theme="JupyterLab Dark High Contrast")
    shoot(browser, "a", "cells-high-contrast")
    assert browser.do("axe", "a", query=".jp-NotebookPanel .jp-replkernel-line") == []


def test_lines_stay_after_a_restart_and_after_a_shutdown(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 1", "y = 2", "import time; time.sleep(60)")
    open_notebook(desk, "a", "a", 3)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("command", "a", id="notebook:restart-kernel", text="Restart Kernel")
    browser.do("press", "a", query=".jp-Dialog button.jp-mod-warn")
    browser.wait("a", lambda: browser.line("a").endswith("its kernel has ended"))
    browser.do("run", "a", cell=2, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a", 2).endswith(" durable"))
    assert browser.line("a").endswith("its kernel has ended")
    browser.do("run", "a", cell=1)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("run", "a", cell=3)  # It is stopped by the kernel's end.
    browser.wait("a", lambda: "Running" in browser.line("a", 3))
    time.sleep(1.5)  # Lines are remembered a second after the last change.
    browser.do("save", "a")
    browser.do("menu", "a", menu="Kernel", id="kernelmenu:shutdown")
    browser.wait("a", lambda: browser.line("a").endswith("its kernel has ended"))
    assert "durable" not in browser.line("a") and "Stopped" in browser.line("a", 3)
    left = browser.text("a", 3)
    assert left == "" or (left.endswith(STOPPED) and left.count("Traceback") == 1), left
    assert "IPython" not in left and left.count("\n") < 10, left
    shoot(browser, "a", "ended-light")
    assert browser.do("axe", "a", query=".jp-NotebookPanel .jp-replkernel-line") == []
    browser.do("reload", "a", cells=3)
    browser.wait("a", lambda: browser.line("a", 2).endswith("its kernel has ended"))
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    assert browser.line("a", 2).endswith("its kernel has ended")
    assert browser.do("state", "a")["errors"] == []


@pytest.mark.slow
def test_a_server_that_hangs_is_noticed(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 1")
    open_notebook(desk, "a", "a")
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    time.sleep(25)
    assert banner(browser) == ""
    lab.send(signal.SIGSTOP)
    try:
        browser.wait("a", lambda: banner(browser).startswith("Reconnecting"))
    finally:
        lab.send(signal.SIGCONT)
    browser.wait("a", lambda: banner(browser) == "")


def test_a_hidden_page_asks_nothing_and_a_stock_kernel_costs_nothing(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "stock.ipynb", "python3", "print('stock')")
    open_notebook(desk, "stock", "stock")
    browser.do("run", "stock", cell=1, kernel=STOCK)
    browser.wait("stock", lambda: browser.text("stock") == "stock\n")
    assert browser.do("state", "stock")["requests"] == 0

    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 1")
    open_notebook(desk, "a", "a")
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("press", "a", query=PANEL_TAB)
    browser.do("command", "a", id="replkernel:show-dashboard", text="GPU cluster")
    browser.wait("a", lambda: browser.do("text", "a", query=".jp-replkernel-chart") != [])
    browser.do("hide", "a", hidden=True)
    time.sleep(HIDDEN_S)
    before = browser.do("state", "a")
    time.sleep(30)
    after = browser.do("state", "a")
    assert (after["requests"] - before["requests"], after["heard"] - before["heard"]) == (0, 0)
    browser.do("hide", "a", hidden=False)
    browser.wait("a", lambda: browser.do("state", "a")["heard"] > after["heard"])


@pytest.mark.slow
def test_where_no_socket_can_be_had_the_server_is_asked(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 1")
    url = lab.url("lab/tree/a.ipynb") + "&reset"
    browser.do("open", "a", url=url, cells=1, deaf="refused")
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    assert banner(browser) == ""
    lab.stop(signal.SIGKILL)
    browser.wait("a", lambda: banner(browser).startswith("Reconnecting"))
    browser.wait("a", lambda: "(reconnecting)" in browser.do("text", "a", query=".jp-replkernel-status")[0])
    lab.start()
    browser.wait("a", lambda: banner(browser) == "")
