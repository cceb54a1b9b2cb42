"""What the modules on a real Kubernetes share: the cluster with three nodes, and the chart installed on it.

Law: GPUs that Kubernetes counts as given, read time and again, are never more than a node has.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from replkernel_server.launchers.kubernetes_pods import HOLDER, KubernetesOptions, read_options

from tests.kubernetes.cluster import Cluster, Json, Refused, eventually
from tests.kubernetes.kubelet import Kubelets
from tests.kubernetes.real_nodes import RealNodes
from tests.support.helm import ROOT, find_helm

SPACE, GPUS = "jhub", 4
NODES = ("node-1", "node-2", "node-3")
PODS = f"/api/v1/namespaces/{SPACE}/pods"
SETS = {
    "launcher.enabled": "true",
    "launcher.hosts": "2",
    "launcher.most": "3",
    "launcher.gpus": str(GPUS),
    "launcher.runtimeClass": "nvidia",
    "launcher.graceSeconds": "5",
    "journal.databaseSecret.name": "pg",
    "podDisruptionBudget.enabled": "false",  # policy/v1 is newer than the Kubernetes that Debian has.
}


def holders(cluster: Cluster, node: str = "") -> list[Json]:
    pods = cluster.pods(SPACE, HOLDER)
    return [pod for pod in pods if node in ("", pod["spec"].get("nodeName"))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        for node in NODES:
            made.make_node(node, GPUS)
        eventually(lambda: made.ask("GET", f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"))
        with counted(made):
            yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def real() -> Iterator[RealNodes]:
    """Three nodes that run pods in containers."""
    yield from real_nodes(NODES)


def real_nodes(names: Sequence[str]) -> Iterator[RealNodes]:
    made = RealNodes(names, GPUS)
    try:
        made.cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        with counted(made.cluster, names):
            yield made
    finally:
        made.close()


class counted:
    """Counts each node's GPUs as given by Kubernetes, time and again."""

    def __init__(self, cluster: Cluster, nodes: Sequence[str] = NODES) -> None:
        self.most, self.times, self._cluster = dict.fromkeys(nodes, 0), 0, cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *what: object) -> None:
        self._over.set()
        self._thread.join()
        print(f"GPUs of nodes counted {self.times} times; the most that were given: {self.most}")
        assert self.times > 10 and max(self.most.values()) <= GPUS

    def _run(self) -> None:
        while not self._over.wait(0.2):
            try:
                for node in self.most:
                    self.most[node] = max(self.most[node], self._cluster.gpus_of(node))
                    self.times += 1
            except (Refused, OSError):
                continue  # The API server is away.


def install_chart(cluster: Cluster, place: Path, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Install the chart by real Helm; return the notes that it prints."""
    chart = place / "chart" / "replkernel"
    shutil.copytree(ROOT / "deploy/helm/replkernel", chart)
    about = chart / "Chart.yaml"
    about.write_text(about.read_text().replace(">=1.30.0-0", ">=1.20.0-0"))
    sets = [f"--set={name}={value}" for name, value in {**SETS, **more}.items()]
    command = [str(find_helm()), "install", "rk", str(chart), f"--namespace={SPACE}", *sets]
    command += [f"--kubeconfig={cluster.kubeconfig}", "--disable-openapi-validation", "--server-side=false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "setup_replkernel(c, service_token=" in done.stdout
    return done.stdout


def install_with_journal(cluster: Cluster, place: Path, more: Mapping[str, str]) -> str:
    """Install the chart, its journal in its pod; return the notes that it prints."""
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    cluster.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    url = base64.b64encode(b"sqlite:////srv/replkernel/journal.sqlite").decode()
    secret = {"metadata": {"name": "pg"}, "data": {"url": url}}
    cluster.ask("POST", f"/api/v1/namespaces/{SPACE}/secrets", secret)
    return install_chart(cluster, place, more)


@pytest.fixture(scope="module")
def options(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> KubernetesOptions:
    """Install the chart; return what it tells the launcher."""
    place = tmp_path_factory.mktemp("chart")
    install_chart(cluster, place)
    told = cluster.ask("GET", f"/api/v1/namespaces/{SPACE}/configmaps/rk-launcher")["data"]["launcher.json"]
    file = place / "launcher.json"
    file.write_text(told)
    return read_options({"file": str(file)})


@pytest.fixture
def kubelets(cluster: Cluster, tmp_path: Path) -> Iterator[Kubelets]:
    made = Kubelets(cluster, tmp_path)
    yield made
    remove_pods(cluster)
    made.close()


def remove_pods(cluster: Cluster) -> None:
    for pod in cluster.pods(SPACE, "replkernel.io/launcher"):
        cluster.ask("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    eventually(lambda: not cluster.pods(SPACE, "replkernel.io/launcher"))
