"""Others' extensions on our kernel, also once the process that ran cells is gone; JupyterLab in German."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from replkernel.client.by_record import ask_kernel, known_record
from tests.support.group import replicas
from tests.support.resting import replica_pids
from tests.ui.driven import (
    BESIDE,
    IN_BROWSER,
    SHOTS,
    Browser,
    Lab,
    panel,
    settings,
    write_notebook,
)

pytestmark = [
    *IN_BROWSER,
    pytest.mark.skipif(
        not (BESIDE / "installed").is_file(), reason="not installed: make build/beside/installed"
    ),
]
REPLICATED = "Python 3 (replicated)"
CANVAS = ".jp-CodeCell:nth-child({}) .jupyter-matplotlib-canvas-container"
INSPECTOR = ".jp-VarInspector-table"
CHOOSER = ".jp-replkernel-chooser"
USAGE = "#kernelusage-panel-id"
BUG = ".jp-DebuggerBugButton"
VARIABLES = ".jp-DebuggerVariables"
TAB = '.lm-TabBar-tab[data-id="{}"]'

FIGURE = """\
%matplotlib widget
import matplotlib.pyplot as plt
figure, axes = plt.subplots(figsize=(3, 2))
clicks = []
figure.canvas.mpl_connect("button_press_event", lambda event: clicks.append(event.button))
plt.show()"""


WIDGETS = """\
import ipywidgets
slider = ipywidgets.IntSlider(3, max=10)
button = ipywidgets.Button(description="press")
label, out = ipywidgets.Label("not pressed"), ipywidgets.Output()
button.on_click(lambda _: setattr(label, "value", f"pressed at {slider.value}"))
def moved(change):
    label.value = f"now {change['new']}"
    with out:
        print("printed at", change["new"])
slider.observe(moved, "value")
ipywidgets.VBox([slider, button, label, out])"""
INTERACT = """\
@ipywidgets.interact(x=(0, 20))
def doubled(x=1):
    print("twice is", x * 2)"""
READOUT = ".jp-CodeCell:nth-child({}) .widget-readout"


def executor_killed(browser: Browser) -> int:
    """Kill the process that ran the cells; return it once another has its place."""
    (executor,) = [one for one in replicas().values() if one.role == "executor"]
    assert executor.kernel_pid is not None
    os.kill(executor.kernel_pid, signal.SIGKILL)
    browser.wait("a", lambda: executor.kernel_pid not in {one.kernel_pid for one in replicas().values()})
    return executor.kernel_pid


def rest(lab: Lab, browser: Browser) -> None:
    """Put the notebook to rest, without a cell."""
    (kernel,) = lab.call("GET", "api/kernels")
    ask_kernel(known_record(kernel["id"], os.environ), "replkernel_hibernate_request")
    browser.wait("a", lambda: not replica_pids())


def opened(desk: tuple[Lab, Browser], *sources: str) -> tuple[Lab, Browser]:
    """Write a notebook, open it, and run its first cell."""
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", *sources)
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=len(sources), height=1400)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    durable(browser, 1)
    return lab, browser


def durable(browser: Browser, cell: int) -> None:
    browser.wait("a", lambda: browser.line("a", cell).endswith("s durable"))


def ran(browser: Browser, cell: int, count: int) -> str:
    """Run a cell, and return its output once its prompt has that count."""
    browser.do("run", "a", cell=cell)
    browser.wait("a", lambda: browser.prompt("a", cell) == f"[{count}]:")
    return browser.text("a", cell)


def shows(browser: Browser, cell: int, text: str) -> None:
    """Wait until a cell's output has a text."""
    browser.wait("a", lambda: text in browser.text("a", cell))


def typed(browser: Browser, cell: int, value: int) -> None:
    """Write a value beside the slider under a cell."""
    browser.do("press", "a", query=READOUT.format(cell))
    browser.do("keys", "a", keys=["Control+a"], text=str(value))
    browser.do("keys", "a", keys=["Enter"])


def clicked(browser: Browser, cell: int) -> None:
    """Click into a figure until its process says where the pointer is."""

    def answers() -> bool:
        browser.do("press", "a", query=CANVAS.format(cell))
        return "(x, y)" in browser.text("a", cell)

    browser.wait("a", answers)


@pytest.mark.slow
def test_an_interactive_figure_is_so_again_after_a_lost_process(desk_beside: tuple[Lab, Browser]) -> None:
    counted = "before = len(clicks); before > 0"
    _, browser = opened(desk_beside, FIGURE, counted, "figure.canvas", "len(clicks) > before, figure.number")
    clicked(browser, 1)
    assert ran(browser, 2, 2) == "True"
    durable(browser, 2)
    executor_killed(browser)
    ran(browser, 3, 3)
    clicked(browser, 3)
    assert ran(browser, 4, 4) == "(True, 1)"
    assert browser.do("state", "a")["errors"] == []


def test_widgets_on_the_page_go_on_after_a_lost_process(desk_beside: tuple[Lab, Browser]) -> None:
    shown = "slider.value, label.value"
    _, browser = opened(desk_beside, WIDGETS, INTERACT, "slider.value = 7", shown)
    ran(browser, 2, 2)
    shows(browser, 2, "twice is 2")
    ran(browser, 3, 3)
    shows(browser, 1, "now 7")
    durable(browser, 3)
    executor_killed(browser)
    typed(browser, 1, 5)
    shows(browser, 1, "now 5")
    shows(browser, 1, "printed at 5")
    typed(browser, 2, 10)
    shows(browser, 2, "twice is 20")
    browser.do("press", "a", query=".jp-CodeCell .widget-button")
    shows(browser, 1, "pressed at 5")
    assert ran(browser, 4, 4) == "(5, 'pressed at 5')"
    durable(browser, 4)
    typed(browser, 1, 9)
    shows(browser, 1, "now 9")
    assert browser.do("state", "a")["errors"] == []


@pytest.mark.slow
def test_widgets_on_the_page_let_a_notebook_rest_and_wake_it(desk_beside: tuple[Lab, Browser]) -> None:
    """JupyterLab has a subshell for widgets, which ends with the process."""
    lab, browser = opened(desk_beside, WIDGETS, INTERACT, "slider.value, label.value")
    ran(browser, 2, 2)
    shows(browser, 2, "twice is 2")
    typed(browser, 1, 5)
    shows(browser, 1, "printed at 5")
    for value in (6, 7):
        rest(lab, browser)
        typed(browser, 1, value)
        shows(browser, 1, f"now {value}")
        shows(browser, 1, f"printed at {value}")
    typed(browser, 2, 10)
    shows(browser, 2, "twice is 20")
    rest(lab, browser)
    assert ran(browser, 3, 3) == "(7, 'now 7')"
    assert browser.do("state", "a")["errors"] == []


@pytest.mark.slow
def test_inspector_and_usage_follow_the_process_that_runs_cells(desk_beside: tuple[Lab, Browser]) -> None:
    _, browser = opened(desk_beside, "number = 41", "number += 1")
    said = lambda query: " ".join(browser.do("text", "a", query=query))  # noqa: E731
    browser.do("press", "a", query=TAB.format("kernelusage-panel-id"))
    browser.do("command", "a", id="variableinspector:open", text="Variable Inspector")
    browser.wait("a", lambda: "number int 28 41" in said(INSPECTOR))
    lost = executor_killed(browser)
    browser.do("press", "a", query=".lm-DockPanel-tabBar .lm-TabBar-tab", text="a.ipynb")
    ran(browser, 2, 2)
    durable(browser, 2)
    (executor,) = [one for one in replicas().values() if one.role == "executor"]
    assert executor.kernel_pid != lost
    browser.wait("a", lambda: f"Process ID: {executor.kernel_pid}" in said(USAGE))
    browser.do("press", "a", query=".lm-DockPanel-tabBar .lm-TabBar-tab", text="Variable Inspector")
    browser.wait("a", lambda: "number int 28 42" in said(INSPECTOR))
    assert browser.do("state", "a")["errors"] == []


def switched_off(browser: Browser, is_off: Callable[[], bool]) -> None:
    """Switch the debugger off; while it is being switched on in the next process, a press does only that."""
    until = time.monotonic() + 60
    while not is_off():
        assert time.monotonic() < until, browser.cells("a")
        browser.do("press", "a", query=BUG)
        again = time.monotonic() + 5
        while not is_off() and time.monotonic() < again:
            time.sleep(0.1)


def test_the_debugger_goes_on_in_the_next_process(desk_beside: tuple[Lab, Browser]) -> None:
    _, browser = opened(desk_beside, "number = 41", "number += 1", "number += 1")
    said = lambda: " ".join(browser.do("text", "a", query=VARIABLES))  # noqa: E731
    browser.do("press", "a", query=BUG)
    browser.wait("a", lambda: "number 41" in said())
    executor_killed(browser)
    ran(browser, 2, 2)
    browser.wait("a", lambda: "number 42" in said())
    switched_off(browser, lambda: "number" not in said())
    ran(browser, 3, 3)  # Switched on again, JupyterLab looks at variables once, also with a stock kernel.
    browser.do("press", "a", query=BUG)
    browser.wait("a", lambda: "number 43" in said())
    assert browser.do("state", "a")["errors"] == []


def test_our_texts_are_german_where_jupyterlab_is(desk_beside: tuple[Lab, Browser]) -> None:
    lab, browser = desk_beside
    settings("@jupyterlab/translation-extension/plugin", locale="de_DE")
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", "print(x + 1)")
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=1000)
    browser.wait("a", lambda: "Keine GPU" in " ".join(browser.do("text", "a", query=CHOOSER)))
    status = "#jp-main-statusbar"
    browser.wait("a", lambda: f"{REPLICATED} | Leerlauf" in " ".join(browser.do("text", "a", query=status)))
    browser.do("run", "a", cell=1)
    browser.wait("a", lambda: browser.line("a").endswith("s gesichert"))
    assert "Fertig" in browser.line("a")
    browser.do("press", "a", query=TAB.format("jp-replkernel-sidebar"))
    browser.wait("a", lambda: "Replikate: 3 von 3 gesund, auf gleichem Stand" in panel(browser))
    assert "GPUs für jede Zelle" in panel(browser) and "Noch kein" in panel(browser)
    browser.do("screenshot", "a", path=str(SHOTS / "german-light.png"))
    assert browser.do("clipped", "a") == []
    browser.do("keys", "a", keys=["Control+,"])
    browser.do("press", "a", query=".jp-PluginList-entry", text="Replizierte Kernel")
    form = "#json-setting-editor, .jp-SettingsPanel"
    browser.wait("a", lambda: "Zeilen unter Zellen" in " ".join(browser.do("text", "a", query=form)))
    assert browser.do("state", "a")["errors"] == []
