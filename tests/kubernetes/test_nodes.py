"""The chart's holders on three real nodes, whose kubelets run them in containers with probes and restarts.

An agent is its container's first process: who kills it ends the container, and the kubelet begins another.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import SERVER, Cluster, Json, eventually
from tests.kubernetes.conftest import GPUS, NODES, SPACE, counted, holders, install_chart
from tests.kubernetes.network import Network
from tests.kubernetes.node import MISSING, Node, can_run
from tests.support.helm import MISSING as NO_HELM
from tests.support.helm import find_helm

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.one_machine,
    pytest.mark.skipif(not can_run(), reason=MISSING),
    pytest.mark.skipif(find_helm() is None, reason=NO_HELM),
]
OWN_IMAGE = "images.example/replkernel:0.2.0"
WITHIN_S = 300.0
REAL = {"launcher.hosts": "3"}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rk-nodes-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        network = Network()
        stack.callback(network.close)
        made = Cluster(place, SERVER, 443)
        stack.callback(made.close)
        network.name(made)
        made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        nodes: list[Node] = []
        for number, name in enumerate(NODES, 1):
            nodes.append(Node(made, name, number, place / name, (OWN_IMAGE,)))
            stack.callback(nodes[-1].end)
        for node in nodes:
            node.await_ready()
        for name in NODES:
            told = {"status": {"capacity": {"nvidia.com/gpu": str(GPUS)}}}
            made.ask("PATCH", f"/api/v1/nodes/{name}/status", told)
        eventually(lambda: all("nvidia.com/gpu" in allocatable(made, name) for name in NODES))
        with counted(made):
            yield made


def allocatable(cluster: Cluster, node: str) -> Json:
    return dict(cluster.ask("GET", f"/api/v1/nodes/{node}")["status"]["allocatable"])


@pytest.fixture(scope="module")
def chart(cluster: Cluster, place: Path) -> Cluster:
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    cluster.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    url = base64.b64encode(b"sqlite:////srv/replkernel/journal.sqlite").decode()
    secret = {"metadata": {"name": "pg"}, "data": {"url": url}}
    cluster.ask("POST", f"/api/v1/namespaces/{SPACE}/secrets", secret)
    install_chart(cluster, place, REAL)
    return cluster


def ready(pod: Json) -> bool:
    """Say whether the agent in a pod listens, as the kubelet's probe finds."""
    return any(it["ready"] for it in pod["status"].get("containerStatuses", ()))


def processes(pod: Json) -> dict[int, int]:
    """Return the processes of a pod's container: their ids there, and here."""
    (container,) = pod["status"]["containerStatuses"]
    name = container["containerID"].removeprefix("containerd://")
    found: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if name in (entry / "cgroup").read_text():
                status = (entry / "status").read_text()
                ids = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
                found[int(ids[-1])] = int(entry.name)
    return found


def test_the_charts_scheduler_makes_a_holder_on_each_node_whose_agent_listens(chart: Cluster) -> None:
    eventually(lambda: len([it for it in holders(chart) if ready(it)]) == len(NODES), WITHIN_S)
    assert {pod["spec"]["nodeName"] for pod in holders(chart)} == set(NODES)
    assert {node: chart.gpus_of(node) for node in NODES} == dict.fromkeys(NODES, GPUS)
    (scheduler,) = chart.pods(SPACE, "app.kubernetes.io/component=scheduler")
    assert ready(scheduler) and scheduler["status"]["containerStatuses"][0]["restartCount"] == 0


def test_an_agent_that_is_killed_comes_back_in_its_pod_and_its_gpus_stay_counted(chart: Cluster) -> None:
    eventually(lambda: len([it for it in holders(chart) if ready(it)]) == len(NODES), WITHIN_S)
    (pod,) = holders(chart, NODES[0])
    os.kill(processes(pod)[1], signal.SIGKILL)

    def again() -> bool:
        (now,) = holders(chart, NODES[0])
        assert now["metadata"]["uid"] == pod["metadata"]["uid"], "its pod is not another one"
        assert chart.gpus_of(NODES[0]) == GPUS
        return ready(now) and bool(now["status"]["containerStatuses"][0]["restartCount"] == 1)

    eventually(again, WITHIN_S)
