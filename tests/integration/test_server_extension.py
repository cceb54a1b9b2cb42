"""The server extension in a real Jupyter Server: who may ask for the status, and what comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import Server, running

STATUS = "replkernel/api/status"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running("server", tmp_path, "--ServerApp.jpserver_extensions=replkernel_server=True") as found:
        yield found


def test_the_status_is_for_those_with_the_token_and_starts_no_agent(server: Server) -> None:
    assert server.get(STATUS, token="")[0] == 403
    assert server.get(STATUS, token="wrong")[0] == 403
    empty = {
        "hosts": [],
        "kernels": [],
        "leases": [],
        "waiting": [],
        "coming": [],
        "bookings": [],
        "scheduler": None,
    }
    assert server.get(STATUS) == (200, empty)
    assert not (Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "agents").exists()
