"""The router's link to an agent tells that the agent is gone, also one that died before it was reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from replkernel.router.io.links import AgentLink

PATIENCE_MS = 20_000


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


def tells_of_its_end(link: AgentLink) -> bool:
    told = bool(link.monitor.poll(PATIENCE_MS))
    link.close()
    return told


def test_an_agent_that_died_between_its_being_found_and_the_connection_is_gone(
    context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert tells_of_its_end(AgentLink(context, f"ipc://{path}", 0))


def test_an_agent_that_dies_before_it_takes_the_connection_up_is_gone(
    context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        link = AgentLink(context, f"ipc://{path}", 0)
        assert not link.monitor.poll(200)
    assert tells_of_its_end(link)
