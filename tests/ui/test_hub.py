"""A user of a JupyterHub: logs in, sees his cells, his GPUs and his quota, and has his server restarted."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import hub as running
from tests.support.shared_hub import HOSTS, SPAWNED, SharedHub, offering, shared_hub
from tests.ui.driven import IN_BROWSER, SHOTS, Browser, panel, write_notebook

pytestmark = [
    *IN_BROWSER,
    pytest.mark.timeout(480),
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
]

REPLICATED = "Python 3 (replicated)"
TAB = '.lm-TabBar-tab[data-id="jp-replkernel-sidebar"]'
TOAST = ".Toastify__toast"
WAIT = "import time\nfrom pathlib import Path\nwhile not Path('told').exists():\n    time.sleep(0.2)"


@pytest.fixture
def desk(short_dir: Path) -> Iterator[tuple[SharedHub, Path, Browser]]:
    """Return a Hub whose users share the GPUs of two hosts, the home of one of them, and a browser."""
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    SHOTS.mkdir(parents=True, exist_ok=True)
    with shared_hub(short_dir, SPAWNED, pages=True) as hub, ExitStack() as stack:
        for host in HOSTS:
            stack.enter_context(offering(hub, short_dir / "agents", host, 4))
        home = short_dir / "homes" / "carol"
        home.mkdir()
        browser = Browser()
        stack.callback(browser.end)
        yield hub, home, browser


def shoot(browser: Browser, name: str) -> None:
    assert browser.do("clipped", "a") == []
    browser.do("screenshot", "a", path=str(SHOTS / f"{name}.png"))


def banner(browser: Browser) -> str:
    return " ".join(browser.do("text", "a", query=".jp-replkernel-banner:visible"))


def toasts(browser: Browser, page: str) -> str:
    return " ".join(browser.do("text", page, query=TOAST))


@pytest.mark.slow
def test_a_user_of_a_hub_sees_his_cells_and_his_quota_and_finds_all_after_his_server_was_restarted(
    desk: tuple[SharedHub, Path, Browser],
) -> None:
    hub, home, browser = desk
    write_notebook(home / "a.ipynb", "replkernel", "x = 41", WAIT, "print(x + 1)")
    notebook = json.loads((home / "a.ipynb").read_text())
    notebook["cells"][1]["metadata"] = {"replkernel": {"gpus": 4}}
    (home / "a.ipynb").write_text(json.dumps(notebook))
    write_notebook(home / "b.ipynb", "replkernel", "y = 1", gpus=1)
    url = f"{hub.running.url}hub/user/carol/lab/tree"
    browser.do("open", "a", url=f"{url}/a.ipynb?reset", cells=3, height=800, user="carol")
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a").endswith(" durable"))

    browser.do("press", "a", query=TAB)
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: "Running" in browser.line("a", 2))
    browser.wait("a", lambda: "2 hosts" in panel(browser) and "quota reached" in panel(browser))
    assert "GPUs now 4 of 4 quota reached" in panel(browser)
    shoot(browser, "hub-quota-light")

    browser.do("open", "b", url=f"{url}/b.ipynb?reset", cells=1, height=800, user="carol")
    browser.do("run", "b", cell=1, kernel=REPLICATED)
    browser.wait("b", lambda: "Failed: GpusDenied" in browser.line("b"))
    browser.wait("b", lambda: "gpu_quota of carol is 4 GPUs at once" in toasts(browser, "b"))
    browser.do("screenshot", "b", path=str(SHOTS / "quota-refused-light.png"))
    browser.do("close", "b")
    browser.wait("a", lambda: "gpu_quota of carol" in toasts(browser, "a"))

    hub.running.stop_servers("carol")
    browser.wait("a", lambda: "Reconnecting: your cell keeps running" in banner(browser))
    browser.do("screenshot", "a", path=str(SHOTS / "hub-stopped-light.png"))
    # His browser has to show itself at the new server, as the Hub wants; another tab does, this one stays.
    browser.do("tab", "a", other="start", url=f"{hub.running.url}hub/user/carol/lab")
    browser.wait("a", lambda: banner(browser) == "")
    browser.wait("a", lambda: "Running" in browser.line("a", 2))
    (home / "told").touch()
    browser.wait("a", lambda: browser.line("a", 2).endswith(" durable"))
    browser.do("run", "a", cell=3)
    browser.wait("a", lambda: browser.text("a", 3) == "42\n")
    browser.do("screenshot", "a", path=str(SHOTS / "hub-again-light.png"))
    assert browser.do("state", "a")["errors"] == []
