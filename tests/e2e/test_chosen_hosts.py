"""REPLKERNEL_HOSTS=auto: the scheduler chooses the hosts of a new kernel; without it the kernel runs here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import find_agent
from replkernel.hosts.places import own_host
from tests.support.group import standing
from tests.support.live import eventually, kernel
from tests.support.scheduler_service import Service, serving

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_machine]
LAUNCHER = ("--launcher", "local", "--launcher-option", "hosts=5", "--launcher-option", "gpus=1")
START_S = 60.0


def places(service: Service) -> set[str]:
    return {host["name"] for host in service.rest.get("status")[1]["hosts"] if host["state"] == "up"}


def test_a_kernels_replicas_are_where_the_scheduler_says_and_stay_there(tmp_path: Path) -> None:
    with serving(*LAUNCHER) as service:
        eventually(lambda: len(places(service)) == 5, "five hosts", START_S)
        assert service.rest.call("POST", "hosts/local-2/draining")[0] == 200
        eventually(lambda: len(places(service)) == 4, "a host that drains")
        with kernel(tmp_path, REPLKERNEL_HOSTS="auto") as live:
            assert live.value("x = [1]; print(len(x))") == "1"
            where = eventually(lambda: (found := standing()) and len(found) == 3 and found, "replicas", 60)
            assert len(set(where.values())) == 3
            eventually(lambda: set(where.values()) <= places(service), "none that drains or is down")
            ran = live.run("%%gpu 1\nx.append(2); print(x)", 60)
            assert (ran.error, ran.out.strip()) == ("", "[1, 2]")
            assert ran.said["host"] in where.values()
            assert "REPLKERNEL_HOSTS=auto" not in live.terminal


@pytest.mark.slow
def test_without_a_scheduler_the_kernel_runs_on_its_own_machine_and_says_so(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_HOSTS="auto") as live:
        ran = live.run("print(1)")
        assert (ran.status, ran.out.strip()) == ("ok", "1")
        told = "REPLKERNEL_HOSTS=auto: all replicas of this kernel are on this machine, for no scheduler runs"
        eventually(lambda: told in live.terminal, "why they are here")
        assert set(standing().values()) == {own_host(os.environ)}
        assert find_agent("auto", os.environ) is None
