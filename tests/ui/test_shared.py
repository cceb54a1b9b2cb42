"""Cells that the server sends for the page, by jupyter-server-nbmodel or jupyter-server-documents.

Each wants a Python of its own with that package, JupyterLab and this project; elsewhere it is left out.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.ui.driven import IN_BROWSER, SHOTS, Browser, Lab, write_notebook

REPLICATED = "Python 3 (replicated)"
SENDERS = ("jupyter_server_nbmodel", "jupyter_server_documents")
pytestmark = [
    *IN_BROWSER,
    pytest.mark.skipif(
        all(importlib.util.find_spec(name) is None for name in SENDERS),
        reason="nobody sends cells for the page: pip install jupyter-collaboration jupyter-server-nbmodel, "
        "or, in another Python, jupyter-server-documents",
    ),
]
TELLS = "import os\nprint(os.environ.get('CUDA_VISIBLE_DEVICES', '').count(',') + 1, 'seen')"
SLOW = "import time\nfor number in range(40):\n    print('line', number, flush=True)\n    time.sleep(0.25)"


def ask_for_gpus(path: str, lab: Lab, cell: int, gpus: int) -> None:
    """Write what a cell asks for into its metadata."""
    place = lab.directory / path
    notebook = json.loads(place.read_text())
    notebook["cells"][cell - 1]["metadata"] = {"replkernel": {"gpus": gpus}}
    place.write_text(json.dumps(notebook))


def test_cells_sent_by_the_server_have_lines_and_their_metadatas_gpus(
    desk: tuple[Lab, Browser],
) -> None:
    lab, browser = desk
    write_notebook(lab.directory / "a.ipynb", "replkernel", "x = 41", TELLS, "x + 1", "x + 1")
    ask_for_gpus("a.ipynb", lab, 2, 2)
    browser.do("open", "a", url=lab.url("lab/tree/a.ipynb") + "&reset", cells=4)
    browser.do("run", "a", cell=1, kernel=REPLICATED)
    browser.wait("a", lambda: browser.line("a", 1).endswith(" durable"))
    browser.do("run", "a", cell=2)
    browser.wait("a", lambda: browser.text("a", 2) == "2 seen\n")
    browser.wait("a", lambda: "2 GPUs" in browser.line("a", 2))
    browser.do("run", "a", cell=4)
    browser.wait("a", lambda: browser.text("a", 4) == "42")
    browser.wait("a", lambda: browser.line("a", 4) != "")
    assert browser.line("a", 3) == ""
    browser.do("screenshot", "a", path=str(SHOTS / "shared-light.png"))
