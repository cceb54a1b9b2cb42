"""A user's notebook at a server in a pod: what he runs and sees, and where its replicas' processes run.

Law: what counts is what the user is told, and what runs in the pods that are there by now.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tests.kubernetes.cluster import Json, eventually
from tests.kubernetes.real_nodes import processes
from tests.support.lab import Server
from tests.support.server_life import Page
from tests.support.stock import OURS

FIRST = "x = {'a': [1, 2]}; y = x['a']; print(len(y))"
LOOK, STATE = "print(x, y is x['a'])", "{'a': [1, 2]} True"
"""A cell that shows the state which FIRST made, and what it prints."""
REPLICAS = 3
WITHIN_S = 240.0


class Notebook:
    """One notebook; each cell is run by a page of its own, for one that nobody reads is closed."""

    def __init__(self, url: str, token: str, pods: Callable[[str], list[Json]]) -> None:
        """Open it; `pods` returns what runs the replica of a host by now."""
        self._server, self._pods = Server(url, token, Path(os.devnull)), pods
        body = {"path": "n.ipynb", "name": "n.ipynb", "type": "notebook", "kernel": {"name": OURS}}
        status, model = self._server.call("POST", "api/sessions", body)
        assert status == 201, (status, model)
        self.kernel = str(model["kernel"]["id"])

    @contextlib.contextmanager
    def page(self) -> Iterator[Page]:
        page = Page(self._server.url, self._server.token, self.kernel, "page")
        try:
            yield page
        finally:
            page.close()

    def run(self, code: str, gpus: int = 0) -> str:
        """Run a cell that must succeed; return what it printed."""
        with self.page() as page:
            return page.run(code, WITHIN_S, gpus)

    def begins(self) -> None:
        """Make a state, and wait until all replicas stand."""
        assert self.run(FIRST) == "2"
        self.stands()

    def goes_on(self, gpus: int = 0) -> None:
        """Run the next cell, once more where one was lost on the way: the state is all there."""

        def ran() -> bool:
            with self.page() as page:
                content, printed = page.answer(page.send(LOOK, gpus), WITHIN_S)
            return bool(content["status"] == "ok" and printed == STATE)

        eventually(ran, WITHIN_S)

    def replicas(self) -> list[Json]:
        """Return the kernel's replicas, as JupyterLab's panel shows them."""
        status, told = self._server.get("replkernel/api/status")
        if status != 200:
            raise OSError(f"{status}: {told}")
        return [it for one in told["kernels"] if one["kernel_id"] == self.kernel for it in one["replicas"]]

    def executor(self) -> Json:
        found: Json = eventually(
            lambda: next((it for it in self.replicas() if it["role"] == "executor"), None)
        )
        return found

    def stands(self, without: Collection[str] = ()) -> None:
        """Wait until all replicas' processes run in pods that are there by now, each on a host of its own.

        `without`: replicas that are gone for good.
        """

        def all_of_them() -> bool:
            there = [it for it in self.replicas() if it["role"] in ("executor", "standby")]
            return (
                len({it["host"] for it in there}) == REPLICAS
                and not {it["replica"] for it in there} & {*without}
                and all(
                    any(it["kernel_pid"] in processes(pod) for pod in self._pods(it["host"])) for it in there
                )
            )

        eventually(all_of_them, WITHIN_S)
