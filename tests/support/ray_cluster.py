"""A Ray cluster of invented nodes on this machine, in a process of its own (`python -m` this module).

Law: Ray stays out of the tests' process; the cluster ends with it. Its autoscaler is a stand-in: where more
is requested than there is, and while it is switched on, a node comes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

NEEDS = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'replkernel[ray]')"
)
GPUS = 4
LABEL = "replkernel.io/host"
STORE_BYTES = 80 * 2**20
LOOK_S = 0.3
TRIES = 3
SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class RayCluster:
    """What a test asks of the cluster; answers are JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = str(self._line())

    def _line(self) -> Any:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("> "):
                return json.loads(line[2:])
        raise ClusterEnded("the Ray cluster has ended")

    def ask(self, *words: object) -> Any:
        """Have something done, and return what is answered."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._line()

    def used(self) -> dict[str, float]:
        """Return how many GPUs of each host Ray counts as used."""
        return dict(self.ask("used"))

    def job(self, host: str, gpus: int) -> list[str]:
        """Have another job use GPUs of a host; return which."""
        return list(self.ask("job", host, gpus))

    def job_waits(self, gpus: int, *, group: bool = False) -> None:
        """Have another job want GPUs of any host, by a placement group of its own or as an actor."""
        self.ask("job_waits", gpus, group)

    def job_runs(self) -> bool:
        """Tell whether the job that waited has its GPUs."""
        return bool(self.ask("job_runs"))

    def job_ends(self) -> None:
        """End the job that waited."""
        self.ask("job_ends")

    def job_over(self, which: Literal["oldest", "newest"] = "oldest") -> None:
        """End one of these jobs."""
        self.ask("job_over", which)

    def kill(self, host: str) -> None:
        """Kill a node's raylet with -9."""
        self.ask("kill", host)

    def autoscale(self) -> None:
        """Let nodes come from now on that are requested."""
        self.ask("autoscale")

    def requested(self) -> list[dict[str, Any]]:
        """Return what the autoscaler is asked for."""
        return list(self.ask("requested"))


class ClusterEnded(AssertionError):
    """The process of a cluster has ended."""


@contextlib.contextmanager
def ray_cluster(*hosts: str, log: Path, env: Mapping[str, str] | None = None) -> Iterator[RayCluster]:
    """Start one with these hosts; Ray gives a node 30 s to start, which a loaded machine may need twice."""
    environment = {**os.environ, **(env or {}), **SETTINGS}
    with contextlib.ExitStack() as ends:
        for left in reversed(range(TRIES)):
            process = ends.enter_context(_process(hosts, log, environment))
            try:
                cluster = RayCluster(process)
                break
            except ClusterEnded:
                if not left:
                    raise
        yield cluster


@contextlib.contextmanager
def _process(
    hosts: tuple[str, ...], log: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, *hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class _Cluster:
    """The cluster itself."""

    def __init__(self, hosts: list[str]) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self._ray = ray
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"include_dashboard": False, "resources": {}, **self._node(hosts[0])},
        )
        self._nodes = {hosts[0]: self._cluster.head_node}
        for host in hosts[1:]:
            self._add(host)
        ray.init(address=self._cluster.address, namespace="others", log_to_driver=False)
        self._jobs: list[Any] = []
        self._waiting: Any = None
        self._runs: Any = None
        self.address = self._cluster.address
        self.scales = False

    def _node(self, host: str) -> dict[str, Any]:
        labels = {LABEL: host}
        sizes = {"num_cpus": 1, "num_gpus": GPUS, "object_store_memory": STORE_BYTES}
        return {**sizes, "labels": labels}

    def _add(self, host: str) -> None:
        self._nodes[host] = self._cluster.add_node(**self._node(host))

    def do(self, what: str, *arguments: Any) -> Any:
        """Do what a test asked for."""
        return getattr(self, f"do_{what}")(*arguments)

    def _ids(self) -> dict[str, str]:
        alive = [entry for entry in self._ray.nodes() if entry["Alive"]]
        return {entry["NodeID"]: entry["Labels"][LABEL] for entry in alive}

    def do_used(self) -> dict[str, float]:
        from ray._private.state import available_resources_per_node

        ids = self._ids()
        free = {
            ids[name]: entry.get("GPU", 0.0)
            for name, entry in available_resources_per_node().items()
            if name in ids
        }
        return {host: GPUS - count for host, count in free.items()}

    def do_job(self, host: str, gpus: int) -> list[str]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        class Job:
            def gpus(self) -> list[str]:
                import ray

                return list(ray.get_runtime_context().get_accelerator_ids()["GPU"])

        where = {host: name for name, host in self._ids().items()}[host]
        job = (
            self._ray.remote(num_cpus=0, num_gpus=gpus)(Job)
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(where, soft=False))
            .remote()
        )
        self._jobs.append(job)
        return list(self._ray.get(job.gpus.remote(), timeout=60))

    def do_job_waits(self, gpus: int, group: bool) -> None:
        from ray.util.placement_group import placement_group

        class Job:
            def runs(self) -> bool:
                return True

        if group:
            self._waiting = placement_group([{"GPU": 1}] * gpus, strategy="STRICT_PACK", name="a job")
            self._runs = self._waiting.ready()
        else:
            self._waiting = self._ray.remote(num_cpus=0, num_gpus=gpus)(Job).remote()
            self._runs = self._waiting.runs.remote()

    def do_job_runs(self) -> bool:
        return bool(self._ray.wait([self._runs], timeout=0)[0])

    def do_job_ends(self) -> None:
        from ray.util.placement_group import PlacementGroup, remove_placement_group

        if isinstance(self._waiting, PlacementGroup):
            remove_placement_group(self._waiting)
        else:
            self._ray.kill(self._waiting)

    def do_job_over(self, which: str) -> None:
        self._ray.kill(self._jobs.pop(0 if which == "oldest" else -1))

    def do_kill(self, host: str) -> None:
        self._nodes[host].all_processes["raylet"][0].process.kill()

    def do_requested(self) -> list[dict[str, Any]]:
        from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
        from ray.experimental.internal_kv import _internal_kv_get

        return list(json.loads(_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL) or b"[]"))

    def do_autoscale(self) -> None:
        self.scales = True

    def scale(self) -> None:
        """Have a node come if more is requested than there is."""
        if self.scales and len(self.do_requested()) > len(self._ids()):
            self._add(f"more{len(self._nodes)}")

    def end(self) -> None:
        self._ray.shutdown()
        self._cluster.shutdown()


def main() -> None:
    """Serve a test until it closes our input."""
    cluster = _Cluster(sys.argv[1:])
    print("> " + json.dumps(cluster.address), flush=True)
    read = b""
    while True:
        if select.select([0], [], [], LOOK_S)[0]:
            more = os.read(0, 64 * 1024)
            if not more:
                break
            *lines, read = (read + more).split(b"\n")
            for line in lines:
                print("> " + json.dumps(cluster.do(*json.loads(line))), flush=True)
        cluster.scale()
    cluster.end()


if __name__ == "__main__":
    main()
