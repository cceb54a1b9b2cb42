"""Ray's own autoscaler: a cell has it start a node, runs there, and the node that was drained is ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from replkernel.agent.lookup import find_agent
from tests.support.group import standing
from tests.support.live import eventually, kernel
from tests.support.ray_autoscaler import HEAD, Scaled, scaling_cluster
from tests.support.ray_cluster import NEEDS
from tests.support.scheduler_service import Service, serving

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, pytest.mark.one_machine, NEEDS]

WORDS = ("pretend=yes", "scale=yes", "gpus=4", "most=2")
START_S = 120.0


def hosts(service: Service) -> dict[str, list[dict[str, Any]]]:
    return {host["name"]: host["gpus"] for host in service.rest.get("status")[1]["hosts"]}


def ray_options(cluster: Scaled) -> list[str]:
    options = [f"address={cluster.address}", *WORDS]
    return ["--launcher", "ray", *(part for word in options for part in ("--launcher-option", word))]


def test_a_cell_has_a_node_started_and_the_drained_node_is_ended(tmp_path: Path) -> None:
    with scaling_cluster(tmp_path) as cluster, serving(*ray_options(cluster)) as service:
        home = f"ray-{HEAD}"
        eventually(lambda: home in hosts(service), "the agent of the first node", START_S)
        assert cluster.hosts() == [HEAD]
        with kernel(tmp_path, REPLKERNEL_HOSTS=home, REPLKERNEL_REPLICAS="2") as live:
            assert live.value("x = 41; print(x)") == "41"
            ran = live.run("%%gpu 2\nx += 1\nprint(x)", 240)
            assert ran.status == "ok", ran.error
            assert ran.out.strip() == "42"
            came = ran.said["host"]
            assert came != home and len(ran.said["gpus"]) == 2
            assert len(cluster.hosts()) == 2, "the autoscaler started one"
            assert service.rest.call("POST", f"hosts/{came}/draining")[0] == 200
            eventually(lambda: came not in hosts(service), "the drained host's end", 90)
            eventually(lambda: find_agent(came, os.environ) is None, "the end of its agent")
            eventually(lambda: cluster.hosts() == [HEAD], "the end of the node, by the autoscaler", 120)
            assert set(standing().values()) == {home}
            assert live.value("print(x)") == "42"
