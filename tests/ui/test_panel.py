"""The panel at the side: the notebook's replicas and GPUs, the cluster, oneself; also with 500 hosts."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.ui.driven import IN_BROWSER, PANEL, SHOTS, Browser, Lab, panel, write_notebook

pytestmark = IN_BROWSER

REPLICATED = "Python 3 (replicated)"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
CHOOSER = ".jp-replkernel-chooser select"
TOOLS_MAX = 20


def replicas(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=f"{PANEL} .jp-replkernel-replicas"))


@contextlib.contextmanager
def agent(host: str) -> Iterator[None]:
    """Have another host in the cluster, with two pretended GPUs; its kernels' processes end with it."""
    command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", host, "--fake-gpus", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGUSR1)
        process.wait(30)


def shoot(browser: Browser, name: str) -> None:
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / f"{name}.png"))


def press(browser: Browser, text: str) -> None:
    browser.do("press", "a", query=f"{PANEL} button", text=text)


def chosen_by_keys_alone(browser: Browser, gpus: str) -> None:
    """Walk from a cell to the toolbar's chooser and choose by typing the number."""
    browser.do("press", "a", query=".jp-CodeCell .cm-content")
    browser.do("keys", "a", keys=["Escape", "Shift+Tab"])
    for _ in range(TOOLS_MAX):
        if browser.do("focused", "a")[1].startswith("No GPU"):
            break
        browser.do("keys", "a", keys=["ArrowRight"])
    browser.do("keys", "a", text=gpus)
    browser.wait("a", lambda: browser.do("value", "a", query=CHOOSER) == gpus)


def keys_and_menu_ask_for_gpus(browser: Browser) -> None:
    def asked() -> bool:
        return "GPUs for every cell of this notebook" in " ".join(browser.do("text", "a", query=".jp-Dialog"))

    browser.do("press", "a", query=".jp-CodeCell .cm-content")
    browser.do("keys", "a", keys=["Escape", "g", "n"])
    browser.wait("a", asked)
    browser.do("keys", "a", keys=["Escape"])
    browser.wait("a", lambda: not asked())
    browser.do("menu", "a", menu="Kernel", id="replkernel:request-gpus")
    browser.wait("a", asked)
    browser.do("keys", "a", keys=["Escape"])
    browser.wait("a", lambda: not asked())


def test_a_notebook_its_gpus_and_its_rest(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    path = lab.directory / "a.ipynb"
    write_notebook(path, "replkernel", "x = 41", "print(x + 1)")
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))
    browser.do("press", "a", query=TAB)
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))
    assert "No GPUs yet: choose some below, or write %%gpu 1 in a cell." in panel(browser)
    assert panel(browser).index("GPUs") < panel(browser).index("Replicas")

    chosen_by_keys_alone(browser, "2")
    browser.wait("a", lambda: "every cell gets 2 GPUs when it runs" in panel(browser))
    keys_and_menu_ask_for_gpus(browser)
    form = f"{PANEL} .jp-replkernel-request:not(.jp-mod-migrate)"
    browser.do("choose", "a", query=f"{form} >> nth=0 >> select", value="1")
    press(browser, "Apply to notebook")
    browser.wait("a", lambda: "From the next cell on, every cell gets 1 GPU unless" in panel(browser))
    browser.wait("a", lambda: browser.do("value", "a", query=CHOOSER) == "1")
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: browser.text("a", 2) == "42\n")
    browser.wait("a", lambda: "kept between cells" in panel(browser))
    browser.wait("a", lambda: "1 free, 1 kept between cells" in panel(browser))
    browser.wait("a", lambda: "GPU-hours used" in panel(browser))
    browser.wait("a", lambda: browser.line("a", 2).endswith(" durable"))
    browser.wait("a", lambda: "✔ durable" in browser.do("text", "a", query=".jp-replkernel-status")[0])
    shoot(browser, "panel-light")
    assert browser.do("axe", "a", query=PANEL) == []
    browser.do("theme", "a", theme="JupyterLab Dark")
    shoot(browser, "panel-dark")
    assert browser.do("axe", "a", query=PANEL) == []

    browser.do("choose", "a", query=f"{form} >> nth=1 >> select", value="2")
    browser.do("press", "a", query=f"{form} >> nth=1 >> button")
    browser.do("save", "a")
    asked = [cell["metadata"].get("replkernel") for cell in json.loads(path.read_text())["cells"]]
    assert asked == [None, None, {"gpus": 2}]  # Of the cell in front, which running the second one has added.

    press(browser, "Release GPUs")
    browser.wait("a", lambda: "None is held now: every cell gets 1 GPU" in panel(browser))
    press(browser, "Hibernate")
    browser.wait("a", lambda: "Hibernated: no process runs" in panel(browser) and "2 free" in panel(browser))
    assert browser.do("text", "a", query=".jp-replkernel-status") == ["Hibernated"]
    shoot(browser, "panel-rest-dark")
    press(browser, "Resume")
    browser.wait(
        "a", lambda: "Hibernated" not in panel(browser) and "3 of 3 healthy, in sync" in panel(browser)
    )
    browser.do("command", "a", id="notebook:restart-kernel", text="Restart Kernel")
    browser.do("press", "a", query=".jp-Dialog button.jp-mod-warn")
    browser.wait("a", lambda: browser.line("a").endswith("its kernel has ended"))
    browser.wait("a", lambda: "None is held now: every cell gets 1 GPU" in panel(browser))
    assert browser.do("value", "a", query=CHOOSER) == "1", "what holds is shown after a restart too"
    assert browser.do("state", "a")["errors"] == []


def test_a_replica_is_moved_to_another_host_by_button(own_desk: tuple[Lab, Browser]) -> None:
    lab, browser = own_desk
    write_notebook(
        lab.directory / "a.ipynb", "replkernel", "x = {'a': [1]}; y = x['a']", "y.append(2); print(x)"
    )
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=2, height=800)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.do("press", "a", query=TAB)
    browser.wait("a", lambda: "3 of 3 healthy, in sync" in panel(browser))
    press(browser, "Replicas:")
    browser.wait("a", lambda: "runs cells" in replicas(browser))
    assert replicas(browser).count("stands by") == 2
    assert "no other host is up" in panel(browser)
    with agent("h4"):
        browser.wait("a", lambda: "h4 (2/2 free)" in panel(browser))
        browser.do("choose", "a", query=f"{PANEL} .jp-mod-migrate select", value="h4")
        browser.do("press", "a", query=f"{PANEL} .jp-mod-migrate button")
        browser.wait("a", lambda: "h4" in replicas(browser) and "3 of 3 healthy, in sync" in panel(browser))
        browser.wait("a", lambda: "Moving a replica to h4" not in panel(browser))
        shoot(browser, "panel-moved-light")
        assert browser.do("axe", "a", query=PANEL) == []
        browser.do("run", "a", cell=2)
        browser.wait("a", lambda: "{'a': [1, 2]}\n" in browser.text("a", 2))
    assert browser.do("state", "a")["errors"] == []


@pytest.mark.slow
def test_a_cluster_of_500_hosts_and_200_cell_updates_a_second(desk: tuple[Lab, Browser]) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", *(f"x = {number}" for number in range(40)))
    url = lab.url("lab/tree/a.ipynb") + "&reset"
    browser.do("open", "a", url=url, cells=1, height=800, deaf=True)
    browser.wait("a", lambda: len(lab.call("GET", "api/sessions")) == 1)
    browser.do("press", "a", query=TAB)
    browser.do("flood", "a", hosts=500, cells=40, seconds=1)
    browser.wait("a", lambda: "500 hosts" in panel(browser))
    assert "r1 · host1" in browser.line("a")
    seen = browser.do("flood", "a", hosts=500, cells=40, seconds=4)
    (SHOTS / "frames.json").write_text(json.dumps(seen))
    assert seen["rows"] < 60
    press(browser, "Replicas:")
    browser.wait("a", lambda: "host499" in panel(browser))
    shoot(browser, "panel-500-hosts")
    assert browser.do("state", "a")["errors"] == []
