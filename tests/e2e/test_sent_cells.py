"""Cells that programs send over HTTP and leave: they run once, and whoever asks later is told."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import eventually
from tests.support.server_life import ServerLife, living
from tests.support.shared_place import _kernel_in_reach as _kernel_in_reach
from tests.support.shared_place import _own_directories as _own_directories
from tests.support.shared_place import place as place
from tests.support.shared_place import shared_scope

pytestmark = pytest.mark.timeout(180)


class Sent:
    """A kernel to which cells are sent by requests."""

    def __init__(self, life: ServerLife, kernel_id: str) -> None:
        self.life, self.kernel_id = life, kernel_id
        self.at = f"replkernel/api/kernels/{kernel_id}/"

    def ask(self, method: str, way: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the document of one request."""
        status, document = self.life.server.call(method, self.at + way, body)
        return status, document

    def send(self, code: str, **more: Any) -> str:
        """Send a cell; return its id."""
        status, told = self.ask("POST", "cells", {"code": code, **more})
        assert status == 200, told
        return str(told["cell"])

    def wait(self, cell: str, **query: Any) -> dict[str, Any]:
        """Return a cell that is over."""
        asked = "&".join(f"{name}={value}" for name, value in ({"wait_s": 60} | query).items())
        status, told = self.ask("GET", f"cells/{cell}?{asked}")
        assert status == 200 and told["over"], told
        return dict(told)

    def run(self, code: str, **query: Any) -> dict[str, Any]:
        """Return a cell after its end."""
        return self.wait(self.send(code), **query)


@pytest.fixture(scope=shared_scope)
def sent(place: Path) -> Iterator[Sent]:
    with living(place) as life:
        found = Sent(life, str(life.open_notebook("sent.ipynb")["kernel"]["id"]))
        assert found.run("zero = 0")["status"] == "ok"
        yield found


def test_a_cell_runs_once_however_often_it_is_sent(sent: Sent) -> None:
    sent.run("times = []")
    for _ in range(3):
        assert sent.send("times.append(1); print(len(times))", cell="once") == "once"
    told = sent.wait("once")
    assert told["outputs"] == [{"source": "stdout", "text": "1\n"}]
    assert sent.send("times.append(1); print(len(times))", cell="once") == "once"
    assert sent.run("print(times)")["outputs"][0]["text"] == "[1]\n"
    status, why = sent.ask("POST", "cells", {"code": "another", "cell": "once"})
    assert (status, why["reason"]) == (409, "taken")
    assert "once" in [each["cell"] for each in sent.ask("GET", "cells")[1]["cells"]]


def test_a_failure_of_a_sent_cell_is_told_as_data(sent: Sent) -> None:
    told = sent.run("1 / 0")
    assert (told["status"], told["reason"]) == ("error", "ZeroDivisionError: division by zero")
    assert "ZeroDivisionError" in told["outputs"][-1]["text"]
    never = sent.ask("GET", "cells/never")[1]
    assert (never["status"], never["over"]) == ("lost", True)
    assert sent.ask("POST", "cells", {"code": "x = 1", "cell": "../../x"})[0] == 400
    assert sent.ask("POST", "cells", {"code": "#" * 300_000})[0] == 400
    assert sent.ask("GET", "cells/never?wait_s=1000")[0] == 400


def test_nobody_is_answered_without_a_token(sent: Sent) -> None:
    for method, way in (("GET", "cells"), ("POST", "cells"), ("GET", "cells/once"), ("GET", "variables")):
        body = b"{}" if method == "POST" else None
        request = urllib.request.Request(sent.life.server.url + sent.at + way, data=body, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        refused.value.close()
        assert refused.value.code == 403


def test_a_cell_is_looked_at_and_interrupted_while_it_runs(sent: Sent) -> None:
    cell = sent.send("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    eventually(lambda: sent.ask("GET", f"cells/{cell}")[1]["outputs"], "its first line")
    told = sent.ask("GET", f"cells/{cell}?wait_s=0.2")[1]
    assert (told["status"], told["over"]) == ("running", False)
    names = {each["name"]: each for each in sent.ask("GET", "variables")[1]["variables"]}
    assert names["zero"] == {"name": "zero", "type": "int", "text": "0"}
    behind = sent.send("after = 1")
    assert sent.ask("GET", f"cells/{behind}")[1]["status"] == "queued"
    assert sent.ask("POST", f"cells/{behind}/interrupt")[1]["reason"] == "not-running"
    assert sent.ask("POST", f"cells/{cell}/interrupt")[0] == 200
    told = sent.wait(cell)
    assert (told["status"], told["reason"][:17]) == ("error", "KeyboardInterrupt")
    assert sent.wait(behind)["status"] == "ok", "what waits goes on"


def test_outputs_are_bounded_and_say_so(sent: Sent) -> None:
    told = sent.run("print('x' * 5000)\nprint('end')", chars=100)
    assert told["chars_left_out"] == 4905
    assert "characters left out here" in told["outputs"][0]["text"]
    assert told["outputs"][0]["text"].endswith("end\n")
    picture = "from IPython.display import Image, display\ndisplay(Image(data=b'\\x89PNG' + bytes(3000)))"
    cell = sent.send(picture)
    assert sent.wait(cell)["outputs"][0]["type"] == "image/png"
    left = sent.wait(cell, image_bytes=100)
    assert left["images_left_out"] == 1 and "image/png of 3,00" in left["outputs"][0]["text"]


def test_the_loss_of_its_process_is_told_of_a_cell(sent: Sent) -> None:
    told = sent.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert told["status"] == "lost"
    assert told["reason"].startswith("ExecutorLost: ")
    assert sent.run("print(zero)")["outputs"][0]["text"] == "0\n"


def test_a_page_that_comes_later_is_not_sent_what_they_put_out(sent: Sent) -> None:
    sent.run("print('for nobody')")
    with sent.life.page(sent.kernel_id, "late") as page:
        assert page.run("print('mine')") == "mine"
