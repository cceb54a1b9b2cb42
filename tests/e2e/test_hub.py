"""JupyterHub stops and starts the servers of its users at once: each finds his notebook as he left it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import hub as running
from tests.support.breadth import first_of
from tests.support.live import eventually
from tests.support.ports import of_the_system
from tests.support.stock import OURS

USERS = ("alice", "bob", "carol")
PROVISIONERS = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        "replkernel-provisioner" not in PROVISIONERS.names,
        reason="the package is not installed: pip install -e .",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
]


@pytest.fixture
def hub(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[running.Hub]:
    """Return a running hub; its users' kernels wait for their servers, however long these take to start."""
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("REPLKERNEL_ORPHAN_GRACE_S", "300")
    with running.hub(short_dir) as found:
        yield found


@pytest.mark.parametrize("count", first_of(2, 3))
def test_users_find_their_variables_after_their_servers_were_stopped_and_started(
    hub: running.Hub, count: int
) -> None:
    users = USERS[:count]
    hub.start_servers(*users)
    sessions = {user: open_notebook(hub, user) for user in users}
    before = {}
    for user, (_, kernel_id) in sessions.items():
        with hub.page(user, kernel_id) as page:
            before[user] = page.run(f"import os; name = {user!r}; print(name, os.getpid())")
    hub.stop_servers(*users)
    hub.start_servers(*users)
    for user, (session, kernel_id) in sessions.items():
        _, models = hub.call("GET", f"user/{user}/api/sessions")
        assert [(model["id"], model["kernel"]["id"]) for model in models] == [(session, kernel_id)]
        with hub.page(user, kernel_id) as page:
            assert page.run("print(name, os.getpid())") == before[user]
        assert hub.call("DELETE", f"user/{user}/api/sessions/{session}")[0] == 204
    ports = hub.server_ports()
    assert len(ports) == 2 * count
    assert not set(of_the_system()) & set(ports), "another program may take such a port"


def open_notebook(hub: running.Hub, user: str) -> tuple[str, str]:
    """Make a session of a replicated kernel at a user's server; return its id and the kernel's."""
    body = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": OURS}}
    status, model = hub.call("POST", f"user/{user}/api/sessions", body)
    assert status == 201, status
    eventually(lambda: hub.call("GET", f"user/{user}/api/kernels")[1], "the kernel")
    return model["id"], model["kernel"]["id"]
