"""What a page is told live by a real Jupyter Server of real kernels: who may listen, and what it hears."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket

from tests.support.lab import TOKEN
from tests.support.live import eventually
from tests.support.server_life import Page, ServerLife, living, record_path

PROVISIONERS = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        "replkernel-provisioner" not in PROVISIONERS.names,
        reason="the package is not installed: pip install -e .",
    ),
]
LIVE = "replkernel/api/live"
PATIENCE_S = 60.0
LONG_S = 1.0
"""So long a cell goes on after a page has heard that it runs."""


class Listener:
    """A page's connection, and everything that it was told, put together."""

    def __init__(self, life: ServerLife, token: str = TOKEN) -> None:
        url = f"{life.server.url.replace('http', 'ws', 1)}{LIVE}/channel"
        self._socket = websocket.create_connection(
            url, header=[f"Authorization: token {token}"], timeout=PATIENCE_S
        )
        self.seqs: list[int] = []
        self.at: list[float] = []
        self.executions: dict[str, Any] = {}
        self.states: list[tuple[str, str]] = []
        self.kernels: dict[str, Any] = {}
        self.hosts: dict[str, Any] = {}

    def hear(self) -> dict[str, Any]:
        """Take one message."""
        message: dict[str, Any] = json.loads(self._socket.recv())
        self.seqs.append(message["seq"])
        self.at.append(time.monotonic())
        for one in message.get("executions", ()):
            self.executions[one["cell_id"]] = one
            self.states.append((one["state"], one["safety"]))
        self.kernels |= {one["kernel_id"]: one for one in message.get("kernels", ())}
        self.hosts |= {one["name"]: one for one in message.get("hosts", ())}
        return message

    def until(self, told: Callable[[], bool]) -> None:
        """Listen until something has been told."""
        deadline = time.monotonic() + PATIENCE_S
        while not told():
            assert time.monotonic() < deadline, (self.executions, self.kernels)
            self.hear()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


@contextlib.contextmanager
def listening(life: ServerLife) -> Iterator[Listener]:
    listener = Listener(life)
    try:
        yield listener
    finally:
        listener.close()


def notebook(life: ServerLife) -> str:
    return str(life.open_notebook("a.ipynb")["kernel"]["id"])


def run(page: Page, code: str, cell: str, gpus: int = 0) -> None:
    page.answer(page.send(code, gpus, cell), PATIENCE_S)


def test_a_page_hears_of_a_cell_from_its_beginning_until_it_is_durable(tmp_path: Path) -> None:
    with living(tmp_path) as life, listening(life) as listener:
        assert listener.hear()["type"] == "snapshot"
        kernel_id = notebook(life)
        go = tmp_path / "go"
        code = f"import os, time; x = 1\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)"
        with life.page(kernel_id) as page:
            asked = page.send(code, cell="one")
            listener.until(lambda: ("running", "pending") in listener.states)
            time.sleep(LONG_S)
            go.touch()
            page.answer(asked, PATIENCE_S)
            listener.until(lambda: listener.executions["one"]["safety"] == "durable")
        one = listener.executions["one"]
        assert (one["kernel_id"], one["status"], one["count"]) == (kernel_id, "ok", 1)
        steps = [one[step] for step in ("accepted_at", "sent_at", "began_at", "ended_at", "durable_at")]
        assert steps == sorted(steps)
        assert one["ended_at"] - one["began_at"] >= LONG_S
        assert abs(time.time() - one["durable_at"]) < 60
        listener.until(lambda: len(listener.kernels[kernel_id]["replicas"]) == 3)
        assert one["replica"] in [r["replica"] for r in listener.kernels[kernel_id]["replicas"]]
        assert listener.seqs == list(range(listener.seqs[0], listener.seqs[0] + len(listener.seqs)))
        gaps = [later - earlier for earlier, later in zip(listener.at, listener.at[1:], strict=False)]
        assert len(gaps) < 6 * (listener.at[-1] - listener.at[0]) + 5

        status, snapshot = life.server.get(LIVE)
        assert status == 200
        assert [told["msg_id"] for told in snapshot["executions"]] == [one["msg_id"]]


@pytest.mark.slow
def test_without_listeners_a_page_may_ask_from_time_to_time(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        kernel_id = notebook(life)
        with life.page(kernel_id) as page:
            run(page, "x = 1", "one")

            def durable() -> bool:
                told = life.server.get(LIVE)[1]["executions"]
                return [one["safety"] for one in told] == ["durable"]

            eventually(durable, "the cell's safety", PATIENCE_S)


def test_only_who_may_look_at_kernels_may_listen(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        assert life.server.get(LIVE, token="wrong")[0] == 403
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            Listener(life, "wrong")
        assert refused.value.status_code == 403


@pytest.mark.slow
def test_listening_keeps_no_kernel_from_being_put_to_rest(tmp_path: Path) -> None:
    culls = ("--MappingKernelManager.cull_idle_timeout=3", "--MappingKernelManager.cull_interval=1")
    with living(tmp_path, *culls) as life, listening(life) as listener:
        kernel_id = notebook(life)
        with life.page(kernel_id) as page:
            run(page, "x = 42", "one")
        listener.until(lambda: listener.kernels.get(kernel_id, {}).get("rest") == "asleep")
        assert json.loads(record_path(kernel_id).read_text())["state"] == "hibernated"
        with life.page(kernel_id) as page:
            assert page.run("print(x)") == "42"


@pytest.mark.slow
def test_two_notebooks_on_one_gpu_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLKERNEL_FAKE_GPUS", "1")
    with living(tmp_path) as life, listening(life) as listener:
        first, second = notebook(life), str(life.open_notebook("b.ipynb")["kernel"]["id"])
        with life.page(first) as one, life.page(second, "other") as other:
            over = tmp_path / "over"
            one.send(f"import os, time\nwhile not os.path.exists({str(over)!r}): time.sleep(0.05)", 1, "one")
            listener.until(lambda: listener.executions.get("one", {}).get("state") == "running")
            waits = other.send("y = 2", 1, "two")
            listener.until(lambda: listener.executions.get("two", {}).get("position") == 1)
            two = listener.executions["two"]
            assert (two["state"], two["wanted"], two["kernel_id"]) == ("waiting", 1, second)
            assert len(listener.executions["one"]["gpus"]) == 1
            over.touch()
            other.answer(waits, PATIENCE_S)
            listener.until(lambda: listener.executions["two"]["safety"] == "durable")
            assert listener.executions["two"]["granted_at"] >= two["wished_at"]
            gpus = [gpu for host in listener.hosts.values() for gpu in host["gpus"]]
            assert len(gpus) == 1
            listener.until(lambda: bool(listener.kernels[second]["holdings"]))
