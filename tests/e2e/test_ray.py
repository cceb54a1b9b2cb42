"""A Ray cluster of four nodes: replicas on its nodes, leases in its accounting, a node lost, one more."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from replkernel.agent.io.lookup import find_agent
from tests.support.group import standing
from tests.support.live import Live, eventually, kernel
from tests.support.ray_cluster import NEEDS, RayCluster, ray_cluster
from tests.support.scheduler_service import Service, serving

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow, pytest.mark.one_machine, NEEDS]

START_S = 120.0


def options(cluster: RayCluster, *more: str) -> list[str]:
    words = [f"address={cluster.address}", "pretend=yes", *more]
    return ["--launcher", "ray", *(part for word in words for part in ("--launcher-option", word))]


def hosts(service: Service) -> dict[str, list[dict[str, Any]]]:
    return {host["name"]: host["gpus"] for host in service.rest.get("status")[1]["hosts"]}


def leased(service: Service) -> dict[str, int]:
    """Return how many GPUs of each host are leased, to notebooks or other jobs."""
    return {name: sum(gpu["state"] != "idle" for gpu in gpus) for name, gpus in hosts(service).items()}


@contextlib.contextmanager
def running(tmp_path: Path, *names: str, more: tuple[str, ...] = ()) -> Iterator[tuple[RayCluster, Service]]:
    """Start a cluster and a scheduler on it; return once each node's agent offers its GPUs."""
    with (
        ray_cluster(*names, log=tmp_path / "ray.log") as cluster,
        serving(*options(cluster, *more)) as service,
    ):
        wanted = {f"ray-{name}" for name in names}
        eventually(lambda: set(hosts(service)) == wanted, "the agents of all nodes", START_S)
        yield cluster, service


class Use(NamedTuple):
    """Who had which GPU, from when it knew to when it gave it back."""

    who: str
    gpu: str
    begin: float
    end: float


class Load:
    """Cells that lease GPUs of one host over and over, beside whatever else happens."""

    def __init__(self, service: Service, host: str, askers: int) -> None:
        self.uses: list[Use] = []
        self._service, self._host = service, host
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(askers)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        call, round_ = self._service.rest.call, 0
        while not self._over.is_set():
            round_ += 1
            name = f"load-{number}-{round_}"
            wish = {"request": name, "kernel_id": f"load-{number}", "gpus": 1 + round_ % 2, "ttl_s": 60.0}
            code, said = call("POST", "leases", wish | {"hosts": [self._host]})
            until = time.monotonic() + START_S
            while code == 202 and time.monotonic() < until:
                time.sleep(0.05)
                code, said = call("POST", "leases", wish | {"hosts": [self._host]})
            assert code == 201, said
            lease, began = said["lease"], time.monotonic()
            time.sleep(0.2)
            self.uses += [Use(name, gpu, began, time.monotonic()) for gpu in lease["gpus"]]
            call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")


def overlaps(uses: list[Use]) -> list[tuple[Use, Use]]:
    """Return whoever had the same GPU at the same time."""
    ordered = sorted(uses, key=lambda use: (use.gpu, use.begin))
    return [(one, two) for one, two in pairwise(ordered) if one.gpu == two.gpu and two.begin < one.end]


def test_leases_are_what_ray_counts_and_a_lost_nodes_kernels_go_on(tmp_path: Path) -> None:
    with running(tmp_path, "a", "b", "c", "d") as (cluster, service):
        names = "ray-a,ray-b,ray-c,ray-d"
        with kernel(tmp_path, REPLKERNEL_HOSTS=names, REPLKERNEL_HOST_LOST_S="2") as live:
            replicas_on_three_nodes(live)
            leases_equal_rays_count(live, cluster, service)
            a_killed_raylet_loses_nothing(live, cluster, service)


def replicas_on_three_nodes(live: Live) -> None:
    assert live.value("x = {'a': [1, 2]}; y = x['a']; print(len(y))") == "2"
    where = eventually(lambda: (found := standing()) and len(found) == 3 and found, "three replicas", 60)
    assert len(set(where.values())) == 3


def leases_equal_rays_count(live: Live, cluster: RayCluster, service: Service) -> None:
    assert cluster.used() == dict.fromkeys("abcd", 0.0)
    ran = live.run("%%gpu 2\nprint(x)")
    assert ran.status == "ok", ran.error
    host = ran.said["host"].removeprefix("ray-")
    assert len(ran.said["gpus"]) == 2
    others = dict.fromkeys(set("abcd") - {host}, 0.0)
    eventually(lambda: cluster.used() == {**others, host: 2.0}, "Ray's count of the lingering lease")
    assert leased(service)[f"ray-{host}"] == 2
    taken = cluster.job(host, 2)
    assert not {f"GPU-fake-ray-{host}-{number}" for number in taken} & set(ran.said["gpus"])
    eventually(lambda: leased(service)[f"ray-{host}"] == 4, "the job's GPUs as leased to it")
    assert cluster.used()[host] == 4.0
    for count in (1, 3, 2, 4, 1):
        more = live.run(f"%%gpu {count}\nprint(x['a'][-1])", 120)
        assert more.status == "ok", more.error
        if more.said["host"] == f"ray-{host}":
            assert not {f"GPU-fake-ray-{host}-{number}" for number in taken} & set(more.said["gpus"])
    nobody_has_a_gpu_twice(cluster, service)
    cluster.job_over()
    equal = {name.removeprefix("ray-"): float(count) for name, count in leased(service).items()}

    def same() -> bool:
        equal.update({name.removeprefix("ray-"): float(n) for name, n in leased(service).items()})
        return cluster.used() == equal and not any(
            gpu["state"] == "active" for gpus in hosts(service).values() for gpu in gpus
        )

    eventually(same, "Ray's count equal to the leases", 30)


def nobody_has_a_gpu_twice(cluster: RayCluster, service: Service) -> None:
    """Three who lease and a job of Ray's that comes and goes want the same four GPUs."""
    idle = next(name for name, used in sorted(cluster.used().items()) if not used)
    jobs: list[Use] = []
    with Load(service, f"ray-{idle}", askers=3) as load:
        for number in range(8):
            gpus, began = cluster.job(idle, 1 + number % 2), time.monotonic()
            time.sleep(0.5)
            jobs += [Use("job", f"GPU-fake-ray-{idle}-{gpu}", began, time.monotonic()) for gpu in gpus]
            cluster.job_over("newest")
        eventually(lambda: len({use.who for use in load.uses}) >= 12, "leases under load", 60)
    print(f"{len({use.who for use in load.uses})} leases beside {len(jobs)} GPUs of jobs")
    assert not overlaps(load.uses + jobs)
    eventually(lambda: cluster.used()[idle] == 0.0 == leased(service)[f"ray-{idle}"], "an idle host", 30)


def a_killed_raylet_loses_nothing(live: Live, cluster: RayCluster, service: Service) -> None:
    ran = live.run("x['a'].append(3); print(x)")
    assert ran.status == "ok", ran.error
    where = standing()
    host = ran.said["host"]
    time.sleep(1.0)  # What must survive is committed by now.
    cluster.kill(host.removeprefix("ray-"))
    began = time.monotonic()
    again = live.run("print(x['a'], y is x['a'])", 60)
    while again.status != "ok" or again.said["host"] == host:  # Its process may not have died yet.
        assert time.monotonic() - began < 60, again.error
        again = live.run("print(x['a'], y is x['a'])", 60)
    print(f"went on after {time.monotonic() - began:.2f} s")
    assert again.out.strip() == "[1, 2, 3] True"
    eventually(lambda: host not in hosts(service), "the end of the host for the scheduler", 60)
    print(f"host gone after {time.monotonic() - began:.2f} s")

    def replaced() -> bool:
        now = standing()
        return len(now) == 3 and host not in now.values() and set(now) != set(where)

    eventually(replaced, "a replica on the fourth node", 60)
    print(f"replaced after {time.monotonic() - began:.2f} s")
    assert find_agent(host, os.environ) is None
    assert live.value("y.append(4); print(x['a'])") == "[1, 2, 3, 4]"


def test_a_node_more_is_asked_for_when_no_host_has_the_gpus_and_is_used_when_it_comes(tmp_path: Path) -> None:
    with running(tmp_path, "a", "b", "c", more=("scale=yes", "gpus=4", "most=4")) as (cluster, service):
        for name in "abc":
            cluster.job(name, 3)
        eventually(lambda: all(leased(service)[f"ray-{name}"] == 3 for name in "abc"), "busy hosts")
        assert cluster.requested() == [{"GPU": 4}] * 3, "nodes with agents are not given back as idle"
        cluster.autoscale()
        with kernel(tmp_path, REPLKERNEL_HOSTS="ray-a,ray-b,ray-c") as live:
            assert live.value("x = 1; print(x)") == "1"
            eventually(lambda: len(standing()) == 3, "three replicas", 60)
            ran = live.run("%%gpu 2\nprint(x)", 180)
            assert ran.status == "ok", ran.error
            assert ran.said["host"] == "ray-more3"
            eventually(lambda: len(cluster.requested()) == 4, "what is requested")
            assert service.rest.call("POST", "hosts/ray-more3/draining")[0] == 200
            eventually(lambda: "ray-more3" not in hosts(service), "the drained host's end", 90)
            eventually(
                lambda: len(found := standing()) == 3 and "ray-more3" not in found.values(), "replicas", 60
            )
            eventually(lambda: find_agent("ray-more3", os.environ) is None, "the end of its agent")
            eventually(lambda: len(cluster.requested()) == 3, "one node less that is requested")


TENSOR = """%%gpu 3
import torch
from replkernel.gpu.fake import put
x = put(torch.arange(1000.0))
row = x[10:20]
print(x.sum().item())
"""


@pytest.mark.parametrize("group", [False, True], ids=["actor", "placement group"])
def test_a_job_that_waits_has_the_gpus_of_a_notebook_between_cells_and_its_tensors_return(
    tmp_path: Path, group: bool
) -> None:
    pytest.importorskip("torch")
    with (
        running(tmp_path, "a") as (cluster, service),
        kernel(tmp_path, REPLKERNEL_HOSTS="ray-a", REPLKERNEL_REPLICAS="1") as live,
    ):
        assert live.value(TENSOR) == "499500.0"
        eventually(lambda: cluster.used() == {"a": 3.0}, "Ray's count of the lingering lease")
        time.sleep(3.0)
        assert leased(service) == {"ray-a": 3}, "nobody else waits"
        began = time.monotonic()
        cluster.job_waits(2, group=group)
        eventually(cluster.job_runs, "the job's GPUs", 30)
        print(f"the job had its GPUs after {time.monotonic() - began:.2f} s")
        eventually(lambda: leased(service) == {"ray-a": 2}, "the job's GPUs as leased to it")
        assert live.value("print('no lease')") == "no lease"
        cluster.job_ends()
        ran = live.run("%%gpu 3\nx[10] = -1\nprint(row[0].item(), x.sum().item())", 60)
        assert ran.status == "ok", ran.error
        assert ran.out.strip() == "-1.0 499489.0"
        assert ran.said["resumed_bytes"] == 4000


def test_a_scheduler_that_was_killed_goes_on_with_what_ray_counts(tmp_path: Path) -> None:
    with ray_cluster("a", log=tmp_path / "ray.log") as cluster:
        with serving(*options(cluster)) as service:
            eventually(lambda: len(hosts(service).get("ray-a", [])) == 4, "the agent", START_S)
            taken = cluster.job("a", 1)
            eventually(lambda: leased(service)["ray-a"] == 1, "the job's GPU")
            wish = {"request": "r", "kernel_id": "k", "gpus": 2, "ttl_s": 600.0, "hosts": ["ray-a"]}
            eventually(lambda: service.rest.call("POST", "leases", wish)[0] == 201, "a lease", 60)
            lease = service.rest.call("POST", "leases", wish)[1]["lease"]
            assert not {f"GPU-fake-ray-a-{number}" for number in taken} & set(lease["gpus"])
            service.kill()
        assert cluster.used() == {"a": 3.0}
        cluster.job_over()
        with serving(*options(cluster)) as service:
            eventually(lambda: len(hosts(service).get("ray-a", [])) == 4, "the agent again", START_S)
            eventually(lambda: leased(service)["ray-a"] == 2, "that the job is over")

            def gpus() -> list[str]:
                said = service.rest.call("POST", "leases", wish)
                return list(said[1]["lease"]["gpus"]) if said[0] == 201 else []

            eventually(lambda: gpus() == lease["gpus"], "the same GPUs")
            assert cluster.used() == {"a": 2.0}
            service.rest.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")
            eventually(lambda: cluster.used() == {"a": 0.0}, "nothing that Ray counts")
