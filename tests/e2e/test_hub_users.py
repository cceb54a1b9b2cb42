"""A real JupyterHub with Unix users: an agent of each is there before his server, and his cells run as he."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from replkernel.client.inquiry import agent_names
from tests.support import hub as running
from tests.support.ports import free_port
from tests.support.stock import OURS
from tests.support.two_users import ALICE, BOB, HOMES, apart, needs_users

pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.one_machine,
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
    *needs_users,
]
CONFIG = """
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.environment = {{"REPLKERNEL_HOSTS": "one", "REPLKERNEL_REPLICAS": "1"}}
from replkernel_server.hub import setup_replkernel
setup_replkernel(
    c,
    address="http://127.0.0.1:{port}",
    environment={{"JUPYTER_DATA_DIR": "/tmp/scheduler"}},
    agents_on=["one", "nowhere"],
    agents_command=[
        "sh", "-c", "test $2 = one || exit 7; exec {python} -m replkernel.cli agent --as $1 --name $2",
        "start", "{{user}}", "{{host}}",
    ],
)
"""
CELL = "import os; print(os.getuid(), os.getgid())"


def agent_of(name: str) -> tuple[int, int]:
    """Return the process and the user of a user's agent."""
    env = {"HOME": str(HOMES / name)}
    assert agent_names(env) == ["one"]
    pid = int((HOMES / name / ".local/share/jupyter/replkernel/agents/one/agent.lock").read_text())
    return pid, os.stat(f"/proc/{pid}").st_uid


def two_users() -> dict[str, Any]:
    place = Path("/tmp/hub")
    place.mkdir()
    seen: dict[str, Any] = {}
    with running.hub(place, CONFIG.format(port=free_port(), python=sys.executable)) as hub:
        hub.start_servers("alice", "bob")
        for name in ("alice", "bob"):
            before = agent_of(name)
            body = {"path": "n.ipynb", "name": "n", "type": "notebook", "kernel": {"name": OURS}}
            status, model = hub.call("POST", f"user/{name}/api/sessions", body)
            assert status == 201, (status, model, hub.log.read_text()[-3000:])
            with hub.page(name, model["kernel"]["id"]) as page:
                ran = page.run(CELL)
            seen[name] = {"agent": before, "later": agent_of(name), "cell": ran}
        seen["log"] = hub.log.read_text()
    return seen


def test_each_users_agent_is_there_before_his_server_and_his_cells_run_as_he() -> None:
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    seen = apart(two_users)
    for name, uid in (("alice", ALICE), ("bob", BOB)):
        assert seen[name]["agent"][1] == uid
        assert seen[name]["later"] == seen[name]["agent"], "the kernel started another agent"
        assert str(uid) in str(seen[name]["cell"]), seen[name]
        assert f"The agent of {name} on host nowhere was not started: sh ended with 7" in seen["log"]
