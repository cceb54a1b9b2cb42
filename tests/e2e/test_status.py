"""`replkernel status` and the server extension tell of a running kernel what the kernel tells of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from tests.support.lab import running
from tests.support.stock import OURS

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def client() -> Iterator[BlockingKernelClient]:
    manager = KernelManager(kernel_name=OURS)
    manager.start_kernel(env=dict(os.environ))
    client: BlockingKernelClient = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)


def told(*words: str) -> str:
    command = [sys.executable, "-m", "replkernel.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def settled() -> dict[str, Any]:
    """Return the status document once all three replicas are up, one leads, and all have the first cell."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        document: dict[str, Any] = json.loads(told("status", "--json"))
        replicas = [replica for kernel in document["kernels"] for replica in kernel["replicas"]]
        rafts = [replica["raft"] for replica in replicas if replica["raft"]]
        started = all(replica["role"] != "starting" for replica in replicas)
        counted = all(kernel["execution_count"] > 0 for kernel in document["kernels"])
        # The leadership may just be handed over to the executor's member.
        led = [raft["role"] for raft in rafts].count("leader") == 1
        if len(rafts) == 3 and len({raft["applied"] for raft in rafts}) == 1 and started and counted and led:
            return document
        time.sleep(0.2)
    raise AssertionError(f"the replicas did not settle: {document}")


def test_the_status_of_a_kernel_that_has_run_cells(client: BlockingKernelClient, tmp_path: Path) -> None:
    reply = client.execute_interactive("values = list(range(100))", timeout=60)
    ran_on = reply["metadata"]["replkernel"]
    document = settled()
    (kernel,) = document["kernels"]
    assert kernel["execution_count"] == 1
    assert kernel["state"] == "idle"
    by_name = {replica["replica"]: replica for replica in kernel["replicas"]}
    assert list(by_name) == ["r1", "r2", "r3"]
    assert by_name[ran_on["replica"]]["role"] == "executor"
    assert sorted(replica["role"] for replica in by_name.values()) == ["executor", "standby", "standby"]
    assert [replica["raft"]["role"] for replica in by_name.values()].count("leader") == 1
    for replica in by_name.values():
        os.kill(replica["kernel_pid"], 0)
        os.kill(replica["agent_pid"], 0)
    os.kill(kernel["router_pid"], 0)
    assert by_name[ran_on["replica"]]["host"] == ran_on["host"]
    hosts = {replica["host"] for replica in by_name.values()}
    assert [host["name"] for host in document["hosts"]] == sorted(hosts)
    table = told("status")
    assert all(name in table for name in by_name)
    with running("server", tmp_path, "--ServerApp.jpserver_extensions=replkernel_server=True") as server:
        status, over_http = server.get("replkernel/api/status")
    assert status == 200
    assert over_http["kernels"][0]["kernel_id"] == kernel["kernel_id"]
