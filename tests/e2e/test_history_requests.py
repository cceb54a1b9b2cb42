"""The history of a notebook over HTTP: looked at, gone back to, named; nothing is lost unasked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.client.by_record import ask_kernel, known_record
from tests.support.live import eventually
from tests.support.server_life import Page, ServerLife, living
from tests.support.shared_place import _kernel_in_reach as _kernel_in_reach
from tests.support.shared_place import _own_directories as _own_directories
from tests.support.shared_place import place as place
from tests.support.shared_place import shared_scope

pytestmark = pytest.mark.timeout(180)


class Told:
    """A kernel whose history is asked and changed by requests."""

    def __init__(self, life: ServerLife, page: Page, kernel_id: str) -> None:
        self.life, self.page, self.kernel_id = life, page, kernel_id
        self.at = f"replkernel/api/kernels/{kernel_id}/history"

    def ask(self, method: str = "GET", way: str = "", body: Any = None, **more: Any) -> tuple[int, Any]:
        """Return the status and the document of one request."""
        status, document = self.life.server.call(method, self.at + way, body, **more)
        return status, document

    def look(self) -> Any:
        """Return the history."""
        status, document = self.ask()
        assert status == 200, document
        return document

    def run(self, *cells: str) -> str:
        """Run cells, each a point of its own; return what the last one prints."""
        said = ""
        for code in cells:
            before = self._points_of(code)
            said = self.page.run(code)
            if not code.startswith("print"):
                eventually(lambda: self._points_of(code) > before, f"the point of {code}")
        return said

    def _points_of(self, code: str) -> int:
        """Return how many points are of this cell: the one before it may be late, too."""
        return sum(point["source"] == code for point in self.look()["points"])


@pytest.fixture(scope=shared_scope)
def told(place: Path) -> Iterator[Told]:
    with living(place) as life:
        kernel_id = str(life.open_notebook("a.ipynb")["kernel"]["id"])
        with life.page(kernel_id) as page:
            page.run("zero = 0")
            yield Told(life, page, kernel_id)


def test_points_are_listed_and_gone_to(told: Told) -> None:
    told.run("x = [1]", "x.append(2); later = 1")
    seen = told.look()
    first, second = seen["points"][-2:]
    assert (first["source"], first["changed"][0]) == ("x = [1]", "x")
    assert second["changed"][:2] == ["later", "x"]
    assert second["point"] == seen["here"]
    assert seen["undo"] and not seen["redo"]
    status, now = told.ask("POST", "/undo", {"since": seen["here"]})
    assert status == 200, now
    assert (now["here"], now["redo"]) == (first["point"], True)
    assert {point["point"]: point["past"] for point in now["points"]}[second["point"]] is False
    assert told.run("print(x, 'later' in globals())") == "[1] False"
    status, now = told.ask("POST", "/redo", {})
    assert status == 200, now
    assert now["here"] == second["point"]
    assert told.ask("POST", "/goto", {"to": first["point"]})[1]["here"] == first["point"]
    assert told.ask("POST", "/goto", {"to": str(second["cell"])})[1]["here"] == second["point"]
    assert told.run("print(x, later)") == "[1, 2] 1"


def test_who_has_seen_an_older_state_does_nothing(told: Told) -> None:
    told.run("moved = 1")
    seen = told.look()["here"]
    told.run("moved = 2")
    status, why = told.ask("POST", "/undo", {"since": seen})
    assert (status, why["reason"]) == (409, "moved")
    assert told.run("print(moved)") == "2"


@pytest.mark.slow
def test_names_branches_and_comparison(told: Told) -> None:
    told.run("y = 1")
    point = told.look()["here"]
    assert told.ask("PUT", "/marks/start", {})[1]["marks"]["start"] == point
    told.run("y = 'main'; only_main = 1")
    assert told.ask("PUT", "/marks/earlier", {"point": point})[1]["marks"]["earlier"] == point
    status, now = told.ask("POST", "/goto", {"to": "start"})
    assert status == 200, now
    assert told.ask("PUT", "/branches/other")[1]["branch"] == "other"
    assert told.ask("PUT", "/branches/other")[0] == 409, "there is one"
    told.run("y = 'other'")
    status, found = told.ask("GET", "/compare?one=main&other=other")
    assert status == 200
    named = {each["name"]: each for each in found["differences"]}
    assert "after" not in named["only_main"] and named["y"]["before"] > 0
    assert told.ask("DELETE", "/branches/other")[1]["reason"] == "refused"
    assert told.ask("POST", "/switch", {"to": "main"})[1]["branch"] == "main"
    assert told.run("print(y)") == "main"
    assert "other" not in told.ask("DELETE", "/branches/other")[1]["branches"]
    assert told.ask("DELETE", "/marks/earlier")[1]["marks"].keys() >= {"start"}
    assert told.ask("GET", "/compare?one=main&other=other")[0] == 409


def test_an_undo_that_loses_variables_names_them_until_somebody_confirms(told: Told) -> None:
    told.run("kept = 1", "import socket; line = socket.socket()")
    status, why = told.ask("POST", "/undo", {})
    assert (status, why["reason"]) == (409, "confirm"), why
    assert why["lost"] == [{"name": "line", "type": "socket.socket"}]
    assert told.run("print(line.fileno() > 0)") == "True"
    status, now = told.ask("POST", "/undo", {"confirm": True})
    assert status == 200, now
    assert told.run("print('line' in globals(), kept)") == "False 1"


def test_a_busy_kernel_tells_its_history_and_changes_nothing(told: Told, tmp_path: Path) -> None:
    told.run("before = 1")
    began = tmp_path / "began"
    running = told.page.send(f"import pathlib, time; pathlib.Path({str(began)!r}).touch(); time.sleep(30)")
    eventually(began.exists, "the cell")  # A request that overtook it would undo something.
    assert told.ask("POST", "/undo")[1]["reason"] == "busy"
    assert told.ask("PUT", "/marks/now", {})[1]["reason"] == "busy"
    assert told.look()["points"]
    ask_kernel(known_record(told.kernel_id, os.environ), "interrupt_request")
    told.page.answer(running, 30)
    assert told.run("print(before)") == "1"


def test_strangers_and_nonsense_are_refused(told: Told) -> None:
    for method, way in (("GET", ""), ("POST", "/undo"), ("PUT", "/marks/a"), ("DELETE", "/branches/a")):
        assert told.ask(method, way, token="wrong")[0] == 403
        assert told.ask(method, way, token="")[0] == 403
    assert told.life.server.call("GET", told.at.replace(told.kernel_id, "unknown"))[0] == 404
    assert told.life.server.call("GET", told.at.replace(told.kernel_id, "..%2F.."))[0] == 404
    assert told.ask("POST", "/goto", {"to": "a --yes"})[0] == 400
    assert told.ask("POST", "/goto", {"to": ""})[0] == 400
    assert told.ask("POST", "/undo", {"steps": 0})[0] == 400
    assert told.ask("PUT", "/marks/1%20x", {})[0] == 400
    assert told.ask("GET", "/undo")[0] == 405
    document = told.life.server.get("replkernel/api/openapi.json")[1]
    assert "/replkernel/api/kernels/{kernel}/history/compare" in document["paths"]


def test_a_kernel_at_rest_is_not_resumed_for_a_look(told: Told) -> None:
    told.run("rested = 1")
    ask_kernel(known_record(told.kernel_id, os.environ), "replkernel_hibernate_request")
    assert told.ask()[1]["reason"] == "hibernated"
    assert told.ask("POST", "/undo")[1]["reason"] == "hibernated"
    assert known_record(told.kernel_id, os.environ).state == "hibernated"
    assert told.page.run("print(rested)") == "1"  # So it is awake for the tests that come behind.
