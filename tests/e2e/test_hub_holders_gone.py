"""A real Hub: the agent that offers GPUs is started anew under a cell; all of a user's processes die."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from replkernel.leasing.wire import Granted
from tests.support import hub as running
from tests.support.lease_clients import Router, opened
from tests.support.lease_history import read_history
from tests.support.live import eventually
from tests.support.server_life import Page
from tests.support.shared_hub import ADMIN, SharedHub, shared_hub, start_agent

START_S = 180.0
SPAWNED = 'c.Spawner.environment |= {"REPLKERNEL_HOSTS": "one", "REPLKERNEL_REPLICAS": "1"}\n'
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
]


def state(hub: SharedHub) -> str:
    hosts = hub.ask(hub.token(ADMIN), "GET", "status")[1]["hosts"]
    return "".join(host["state"] for host in hosts)


@pytest.mark.slow
def test_agents_come_and_go_under_a_cell_and_a_users_death_frees_his_gpu(short_dir: Path) -> None:
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with shared_hub(short_dir, SPAWNED) as hub:
        scene(hub, short_dir)
    ends_of = read_history(hub.journal).ends
    assert ends_of.get("holder gone") == 1 and "not given back" not in ends_of and "host down" not in ends_of


def scene(hub: SharedHub, short_dir: Path) -> None:
    """Have the agent end in order, then by a kill, under a cell of alice's; kill all that is hers."""
    agent = start_agent(hub, short_dir / "agents", "one", 1)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: ends(agent))
        eventually(lambda: state(hub) == "up", "the agent")
        hub.running.start_servers("alice", "bob")
        kernels = {user: hub.open_notebook(user, number) for number, user in enumerate(("alice", "bob"))}
        pages = [
            stack.enter_context(hub.running.page(user, kernel_id)) for user, kernel_id in kernels.items()
        ]
        for page in pages:
            page.run("x = 0", within_s=START_S)
        for number, sign in enumerate((signal.SIGTERM, signal.SIGKILL), 1):
            began, over = short_dir / f"began-{sign}", short_dir / f"over-{sign}"
            cell = long_cell(pages[0], began, over)
            eventually(began.exists, "the cell")
            agent.send_signal(sign)
            agent.wait(30)
            eventually(lambda: state(hub) == "down", "that the host is listed as down")
            agent = start_agent(hub, short_dir / "agents", "one", 1)
            eventually(lambda: state(hub) == "up", "the agent")
            over.touch()
            content, printed = pages[0].answer(cell, 60.0)
            assert (content["status"], printed.strip()) == ("ok", "done"), content
            asked = time.monotonic()
            assert pages[number % 2].run("print('next')", gpus=1).strip() == "next"
            print(f"after {sign.name} of the agent under a cell: waited {time.monotonic() - asked:.2f} s")
        kill_all_of("alice")
        asked = time.monotonic()
        assert pages[1].run("print('here')", gpus=1).strip() == "here"
        print(f"kill -9 of all processes of a Hub user: waited {time.monotonic() - asked:.2f} s")
        asked = time.monotonic()
        hub.running.call("DELETE", f"user/bob/api/kernels/{kernels['bob']}")
        asyncio.run(has_a_gpu(hub))
        print(f"a notebook that is culled with a lingering lease: waited {time.monotonic() - asked:.2f} s")


async def has_a_gpu(hub: SharedHub) -> None:
    """Have a cell of carol's ask for the GPU."""
    router = Router(hub.url, hub.token("carol"), "carols", ("one",))
    async with opened(router):
        assert isinstance(await router.ask(1, within_s=60.0), Granted)


def long_cell(page: Page, began: Path, over: Path) -> str:
    """Have a cell with a GPU run until a file is there."""
    code = f"""
import pathlib, time
pathlib.Path({str(began)!r}).touch()
while not pathlib.Path({str(over)!r}).exists():
    time.sleep(0.05)
print("done")
"""
    return page.send(code, gpus=1)


def kill_all_of(user: str) -> None:
    """Kill every process that the Hub has started for a user, and what these have started."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"JUPYTERHUB_USER={user}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def ends(agent: subprocess.Popen[bytes]) -> None:
    agent.terminate()
    agent.wait(30)
