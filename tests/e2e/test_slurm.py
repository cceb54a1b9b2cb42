"""A Slurm cluster of three nodes: agents are its jobs, replicas on its nodes, one is lost, one given back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from replkernel.cli.draining import run_draining
from replkernel.client.inquiry import ask_agents
from tests.support.group import standing
from tests.support.live import AGENT_S, Live, eventually, kernel
from tests.support.scheduler_service import Service, serving
from tests.support.slurm import NODES, SlurmCluster, slurm, why_not

pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.one_machine,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
OPTIONS = ("hosts=3", "gpus=4", "pretend=yes", "bind=")
START_S = 60.0
AGENTS_S = 180.0
"""Three jobs, of which each imports an agent, share this machine's cores."""
NOTICED_S = 20.0
"""Slurm itself needs far longer than this to give a node up (`SlurmdTimeout`)."""


def hosts(service: Service) -> dict[str, list[dict[str, Any]]]:
    return {host["name"]: host["gpus"] for host in service.rest.get("status")[1]["hosts"]}


def states(service: Service) -> dict[str, str]:
    return {host["name"]: host["state"] for host in service.rest.get("status")[1]["hosts"]}


def test_agents_are_jobs_and_a_lost_nodes_notebook_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with slurm() as cluster:
        for name, value in cluster.env.items():
            monkeypatch.setenv(name, value)
        words = [part for word in OPTIONS for part in ("--launcher-option", word)]
        with serving("--launcher", "slurm", *words) as service:
            eventually(lambda: set(hosts(service)) == set(NODES), "the agents of all nodes", AGENTS_S)
            assert {len(gpus) for gpus in hosts(service).values()} == {4}
            monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", service.url)
            with kernel(tmp_path, REPLKERNEL_HOSTS=",".join(NODES), REPLKERNEL_HOST_LOST_S="2") as live:
                lost = a_cell_leases_gpus_of_a_node(live, service)
                the_node_is_lost(live, service, cluster, lost)
            a_node_is_given_back(service, cluster, min(set(NODES) - {lost}))


def same_log() -> bool:
    """Tell whether all members have applied the same, both cells' results among it."""
    kernels = ask_agents(os.environ, AGENT_S).kernels
    applied = {one.raft.applied if one.raft else -1 for known in kernels for one in known.replicas}
    return all(known.execution_count == 2 for known in kernels) and len(applied) == 1


def a_cell_leases_gpus_of_a_node(live: Live, service: Service) -> str:
    """Return the node of the lease."""
    assert live.value("x = {'a': [1, 2]}; y = x['a']; print(len(y))") == "2"
    where = eventually(lambda: (found := standing()) and len(found) == 3 and found, "three replicas", START_S)
    assert set(where.values()) == set(NODES)
    ran = live.run("%%gpu 2\ny.append(3); print(x)")
    assert ran.status == "ok", ran.error
    node = str(ran.said["host"])
    assert {gpu["uuid"] for gpu in hosts(service)[node]} >= set(ran.said["gpus"])
    assert len(ran.said["gpus"]) == 2
    eventually(same_log, "what it changed is durable")
    return node


def the_node_is_lost(live: Live, service: Service, cluster: SlurmCluster, node: str) -> None:
    cluster.kill_node(node)
    ran = eventually(
        lambda: (tried := live.run("print(x, y is x['a'])")).status == "ok" and tried, "a cell elsewhere"
    )
    assert ran.out.strip() == "{'a': [1, 2, 3]} True"
    assert ran.said["host"] != node
    assert live.value("%%gpu 2\nprint(len(y))") == "3", "a lease elsewhere"
    eventually(lambda: states(service).get(node) == "down", "the scheduler's word of it", NOTICED_S)
    assert "down" not in cluster.states()[node], "Slurm does not know yet"


def a_node_is_given_back(service: Service, cluster: SlurmCluster, node: str) -> None:
    eventually(lambda: all(gpu["state"] == "idle" for gpu in hosts(service)[node]), "its leases' end")
    assert run_draining(node, drained=True) == 0
    eventually(lambda: cluster.states()[node] == "idle", "the node as Slurm has it", 60)
    assert node not in hosts(service)
