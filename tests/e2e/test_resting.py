"""A kernel at rest, as a page sees and treats it: served again with all its variables, or deleted."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from replkernel.carrying.container import StateFile
from replkernel.client.by_record import ask_kernel, known_record
from replkernel.launch.kernel_record import read_record, router_lives
from replkernel.settings import data_dir
from tests.support.lab import TOKEN
from tests.support.live import eventually
from tests.support.server_life import ServerLife, living
from tests.support.shared_place import _kernel_in_reach, _own_directories, place

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

PROVISIONERS = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        "replkernel-provisioner" not in PROVISIONERS.names,
        reason="the package is not installed: pip install -e .",
    ),
]


def address(kernel_id: str) -> str:
    return f"replkernel/api/kernels/{kernel_id}"


def rest(kernel_id: str) -> None:
    """Put a kernel to rest."""
    ask_kernel(known_record(kernel_id, os.environ), "replkernel_hibernate_request")


def told(life: ServerLife, kernel_id: str) -> dict[str, Any]:
    """Return what a page is told of a kernel."""
    kernels = life.server.get("replkernel/api/live")[1]["kernels"]
    return next((kernel for kernel in kernels if kernel["kernel_id"] == kernel_id), {})


def lose(life: ServerLife, kernel_id: str) -> None:
    """Have the server start anew without its kernel, as after its machine did and its sessions were lost."""
    record = known_record(kernel_id, os.environ)
    life.stop()
    if router_lives(record):
        os.kill(record.router_pid, signal.SIGKILL)
    eventually(lambda: not router_lives(record), "the router's end")
    for path in Path(data_dir(os.environ)).glob("server/*/sessions*.json"):
        path.unlink()
    life.start()


def test_a_kernel_at_rest_that_nobody_serves_is_served_again_or_deleted(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        kernel_id = str(life.open_notebook("a.ipynb")["kernel"]["id"])
        with life.page(kernel_id) as page:
            page.run("x = 41")
        assert life.server.call("DELETE", address(kernel_id))[0] == 409, "it lives"
        assert told(life, kernel_id)["served"]
        rest(kernel_id)
        assert life.server.call("DELETE", address(kernel_id), token="wrong")[0] == 403
        assert life.server.call("POST", address(kernel_id), token="")[0] == 403
        lose(life, kernel_id)
        seen = told(life, kernel_id)
        assert (seen["state"], seen["served"], seen["routed"]) == ("hibernated", False, False)
        assert seen["cwd"] == str(tmp_path)
        assert life.server.call("POST", address(kernel_id)) == (201, {"id": kernel_id, "name": "replkernel"})
        with life.page(kernel_id) as page:
            assert page.run("print(x + 1)") == "42"
        rest(kernel_id)
        lose(life, kernel_id)
        assert life.server.call("DELETE", address(kernel_id))[0] == 204
        assert read_record(data_dir(os.environ), kernel_id) is None
        assert told(life, kernel_id) == {}
        assert life.server.call("DELETE", address(kernel_id))[0] == 404


def test_a_kernel_at_rest_tells_variables_and_history_once_it_is_resumed(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        kernel_id = str(life.open_notebook("a.ipynb")["kernel"]["id"])
        with life.page(kernel_id) as page:
            page.run("x = 41")
        rest(kernel_id)
        ways = [f"{address(kernel_id)}/{way}" for way in ("variables", "history")]
        for way in ways:
            status, answer = life.server.call("GET", way)
            assert (status, answer["reason"]) == (409, "hibernated")
        assert life.server.call("POST", address(kernel_id))[0] == 201
        told_variables, told_history = (life.server.call("GET", way) for way in ways)
        assert told_variables[0] == told_history[0] == 200
        assert [point["cell"] for point in told_history[1]["points"]] == [1]
        assert [row["name"] for row in told_variables[1]["variables"]] == ["x"]


@pytest.mark.slow
def test_a_kernel_at_rest_that_is_served_is_deleted_with_its_session(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        kernel_id = str(life.open_notebook("a.ipynb")["kernel"]["id"])
        with life.page(kernel_id) as page:
            page.run("x = 41")
        rest(kernel_id)
        assert life.server.call("POST", address(kernel_id))[0] == 201, "it is served already"
        assert life.server.call("DELETE", address(kernel_id))[0] == 409, "it was resumed"
        rest(kernel_id)
        assert life.server.call("DELETE", address(kernel_id))[0] == 204
        assert life.sessions() == []
        eventually(lambda: read_record(data_dir(os.environ), kernel_id) is None, "the record's end")


def test_a_kernel_is_forked_by_a_request_and_the_fork_is_served(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        kernel_id = str(life.open_notebook("a.ipynb")["kernel"]["id"])
        with life.page(kernel_id) as page:
            page.run("x = 41")
        forks = f"{address(kernel_id)}/forks"
        for way in (forks, f"{address(kernel_id)}/state"):
            assert life.server.call("POST", way, token="wrong")[0] == 403
        assert life.server.call("POST", f"{address('unknown')}/forks")[0] == 404
        assert life.server.call("POST", forks, {"count": 0})[0] == 409
        assert life.server.call("POST", forks, {"count": "x"})[0] == 400
        for way in (forks, f"{address(kernel_id)}/state"):
            assert life.server.call("POST", way, {"at": "nowhere"})[0] == 409
        status, made = life.server.call("POST", forks, {"count": 2, "reseed": True})
        assert (status, len(made["ids"]), made["behind"]) == (201, 2, False)
        request = urllib.request.Request(
            f"{life.server.url}{address(kernel_id)}/state",
            data=b"",
            headers={"Authorization": f"token {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            (tmp_path / "state.rkz").write_bytes(answer.read())
        with StateFile(tmp_path / "state.rkz") as file:
            assert {one.name: one.type for one in file.manifest.names}["x"] == "int"
        fork = made["ids"][0]
        assert told(life, fork)["state"] == "hibernated"
        assert life.server.call("POST", address(fork))[0] == 201
        with life.page(fork) as page:
            assert page.run("x += 1; print(x)") == "42"
        with life.page(kernel_id) as page:
            assert page.run("print(x)") == "41"
