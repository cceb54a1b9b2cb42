"""An agent trains a model by the SDK's client, while client, MCP server and Jupyter Server come and go."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from replkernel_server.mcp.access import TOKEN as TOKEN_NAME
from replkernel_server.mcp.access import URL

from tests.support.lab import TOKEN
from tests.support.server_life import living
from tests.support.shared_place import _kernel_in_reach as _kernel_in_reach
from tests.support.shared_place import _own_directories as _own_directories
from tests.support.shared_place import place as place

if TYPE_CHECKING:
    from mcp import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(360)]

NOTEBOOK = "training.ipynb"
BEGIN = """
import time
import numpy as np
rng = np.random.default_rng(0)
inputs = rng.normal(size=(200, 3))
targets = inputs @ np.array([1.0, -2.0, 0.5])
weights = np.zeros(3)
epochs = []
"""
TRAIN = """
for epoch in range(20):
    weights -= 0.05 * inputs.T @ (inputs @ weights - targets) / len(inputs)
    epochs.append(len(epochs))
    print(f"epoch {epochs[-1]}", flush=True)
    time.sleep(0.1)
"""


class Agent:
    """One connection of an agent: a client, and an MCP server of its own behind it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """Return the document of one tool."""
        answer = await self._client.call_tool(tool, {"notebook": NOTEBOOK} | given)
        assert not answer.is_error, answer
        return dict(answer.structured_content)

    async def end(self, cell: str) -> dict[str, Any]:
        """Return a cell that is over."""
        while not (told := await self.call("wait_cell", cell=cell)).get("over"):
            assert told["status"] in ("queued", "running"), told
        return told

    async def run(self, code: str) -> str:
        """Run a cell that must succeed; return what it printed."""
        told = await self.end((await self.call("send_cell", code=code))["cell"])
        assert told["status"] == "ok", told
        return "".join(each["text"] for each in told["outputs"])


@asynccontextmanager
async def agent(url: str, token: str = TOKEN) -> AsyncIterator[Agent]:
    """Connect an agent, by a process that knows nothing of those before it."""
    from mcp import Client, StdioServerParameters

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "replkernel_server.mcp"],
        env={URL: url, TOKEN_NAME: token},
    )
    async with Client(command) as client:
        yield Agent(client)


def trained(epochs: int) -> np.ndarray[Any, Any]:
    """Return the weights after so many epochs."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 3))
    targets = inputs @ np.array([1.0, -2.0, 0.5])
    weights = np.zeros(3)
    for _ in range(epochs):
        weights -= 0.05 * inputs.T @ (inputs @ weights - targets) / len(inputs)
    return weights


async def test_a_model_is_trained_over_three_reconnects_with_the_server_killed_in_between(
    place: Path,
) -> None:
    with living(place) as life:
        url = life.server.url
        async with agent(url, "another") as stranger:
            told = await stranger.call("open_notebook")
            assert (told["status"], told["why"]) == ("refused", "token")
        async with agent(url) as first:
            assert (await first.call("open_notebook"))["new"] is True
            await first.run(BEGIN)
            assert (await first.call("send_cell", code=TRAIN, cell="train-1"))["status"] in (
                "queued",
                "running",
            )
        life.stop(signal.SIGKILL)
        async with agent(url) as second:
            assert (await second.call("wait_cell", cell="train-1"))["status"] == "unreachable"
            life.start()
            assert (await second.call("open_notebook"))["new"] is False
            told = await second.end("train-1")
            assert told["status"] == "ok"
            assert told["outputs"][0]["text"].splitlines() == [f"epoch {number}" for number in range(20)]
            assert (await second.call("send_cell", code=TRAIN, cell="train-1"))["over"], "it is not run again"
            await second.call("mark_point", name="half")
            await second.call("send_cell", code=TRAIN, cell="train-2")
        life.restart(signal.SIGKILL)
        async with agent(url) as third:
            assert (await third.end("train-2"))["status"] == "ok"
            assert (await third.call("read_cell", cell="train-1"))["status"] == "ok"
            assert (await third.call("read_cell", cell="never"))["status"] == "lost"
            rows = (await third.call("list_variables"))["variables"]
            assert {each["name"]: each for each in rows}["weights"] == {
                "name": "weights", "type": "numpy.ndarray", "shape": [3], "dtype": "float64",
            }  # fmt: skip
            assert await third.run("print(epochs == list(range(40)))") == "True\n"
            found = await third.run("print(*weights.tolist())")
            assert [float(word) for word in found.split()] == trained(40).tolist()
        life.restart(signal.SIGKILL)
        async with agent(url) as fourth:
            told = await fourth.call("go_back", how="goto", to="half")
            assert told["status"] == "ok", told
            found = await fourth.run("print(*weights.tolist(), len(epochs))")
            assert [float(word) for word in found.split()] == [*trained(20).tolist(), 20]
            sent = [each["cell"] for each in (await fourth.call("list_cells"))["cells"]]
            assert (sent.count("train-1"), sent.count("train-2")) == (1, 1)
            assert (await fourth.call("end_notebook"))["status"] == "ok"
            assert (await fourth.call("read_cell", cell="train-1"))["status"] == "lost"
