"""Notebooks whose replicas are pods of a real Kubernetes: with leases, and as plain pods of a namespace.

Pods are processes of this machine with the environment that Kubernetes gives them (`kubelet.py`).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from replkernel_server.launchers.kubernetes_pods import KubernetesOptions

from tests.kubernetes.cluster import MISSING, Cluster, eventually, there
from tests.kubernetes.conftest import GPUS, NODES, PODS, SPACE, holders, remove_pods
from tests.kubernetes.kubelet import Kubelets
from tests.support.group import standing
from tests.support.helm import MISSING as NO_HELM
from tests.support.helm import ROOT, find_helm
from tests.support.live import kernel
from tests.support.scheduler_service import Service, serving

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.one_machine,
    pytest.mark.skipif(not there(), reason=MISSING),
    pytest.mark.skipif(find_helm() is None, reason=NO_HELM),
]


def hosts(service: Service) -> dict[str, list[dict[str, Any]]]:
    return {host["name"]: host["gpus"] for host in service.rest.get("status")[1]["hosts"]}


def test_a_notebook_in_pods_leases_gpus_that_kubernetes_counts_and_outlives_its_pod(
    cluster: Cluster, options: KubernetesOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = cluster.kubeconfig_of(cluster.token_of(SPACE, "rk"), "rk")
    monkeypatch.setenv("KUBECONFIG", str(account))
    file = tmp_path / "launcher.json"
    file.write_bytes(msgspec.json.encode({**msgspec.to_builtins(options), "hosts": 3, "users": False}))
    words = ("--launcher", "kubernetes", "--launcher-option", f"file={file}")
    with serving(*words) as service:
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", service.url)
        given = {
            "REPLKERNEL_SCHEDULER_URL": service.url,
            "REPLKERNEL_FAKE_GPUS": str(GPUS),
            "JUPYTER_DATA_DIR": os.environ["JUPYTER_DATA_DIR"],  # As a ReadWriteMany home.
            "REPLKERNEL_SOCKET_DIR": os.environ.get("REPLKERNEL_SOCKET_DIR", ""),
        }
        given["REPLKERNEL_SCHEDULER_TOKEN"] = service.rest.token
        kubelets = Kubelets(cluster, tmp_path, {name: value for name, value in given.items() if value})
        try:
            eventually(lambda: set(hosts(service)) == set(NODES))
            with kernel(tmp_path, REPLKERNEL_HOSTS=",".join(NODES), REPLKERNEL_HOST_LOST_S="2") as live:
                assert live.value("x = {'a': [1, 2]}; y = x['a']; print(len(y))") == "2"
                where = eventually(lambda: (found := standing()) and len(found) == 3 and found)
                assert set(where.values()) == set(NODES)
                ran = live.run("%%gpu 2\ny.append(3); print(x)")
                assert ran.status == "ok", ran.error
                host = str(ran.said["host"])
                assert {gpu["uuid"] for gpu in hosts(service)[host]} >= set(ran.said["gpus"])
                assert cluster.gpus_of(host) == GPUS
                cluster.end_api()
                assert live.value("%%gpu 1\nprint(len(y))") == "3", "a lease while the API server is away"
                cluster.start_api()
                (pod,) = holders(cluster, host)
                cluster.ask("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
                ran = eventually(lambda: (r := live.run("print(x, y is x['a'])")).status == "ok" and r)
                assert ran.out.strip() == "{'a': [1, 2, 3]} True"
                assert live.value("%%gpu 2\nprint(len(y))") == "3", "a lease after it"
                eventually(lambda: len(holders(cluster)) == 3 and holders(cluster, host))
        finally:
            remove_pods(cluster)
            kubelets.close()


# -- without GPUs and without rights -------------------------------------------------------------------


def own_address() -> str:
    """Return this machine's address beyond loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address beyond loopback")
        return str(probe.getsockname()[0])


def test_replicas_are_plain_pods_that_a_user_of_one_namespace_makes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = "plain"
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    eventually(lambda: cluster.ask("GET", f"/api/v1/namespaces/{space}/serviceaccounts/default"))
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}/rolebindings"
    edits = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    who = {"kind": "ServiceAccount", "name": "default", "namespace": space}
    cluster.ask("POST", rbac, {"metadata": {"name": "user"}, "roleRef": edits, "subjects": [who]})
    token, secret, store = cluster.token_of(space, "default"), "s" * 64, f"file://{tmp_path}/store"
    eventually(lambda: cluster.ask("GET", f"/api/v1/namespaces/{space}/pods", token=token))
    made = {"metadata": {"name": "replicas"}, "stringData": {"hosts.secret": secret}}
    cluster.ask("POST", f"/api/v1/namespaces/{space}/secrets", made, token=token)
    for it in yaml.safe_load_all((ROOT / "docs/deployments/kubernetes/replicas.yaml").read_text()):
        if it["kind"] != "PodDisruptionBudget":
            group = "/api/v1" if it["apiVersion"] == "v1" else f"/apis/{it['apiVersion']}"
            path = f"{group}/namespaces/{space}/{it['kind'].lower()}s"
            cluster.ask("POST", path, it, token=token)
    kubelets = Kubelets(cluster, tmp_path, {"REPLKERNEL_STORE": store}, shared=own_address())

    def ports() -> dict[str, int]:
        pods = cluster.pods(space)
        return {it["metadata"]["name"]: kubelets.ports.get(it["metadata"]["uid"], 0) for it in pods}

    try:
        eventually(lambda: len(ports()) == 3 and all(ports().values()))
        file = Path(os.environ["JUPYTER_DATA_DIR"], "replkernel", "hosts.secret")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(secret)
        file.chmod(0o600)
        named = ",".join(f"{name}={own_address()}:{port}" for name, port in ports().items())
        settings = {"REPLKERNEL_HOSTS": named, "REPLKERNEL_STORE": store, "REPLKERNEL_HOST_LOST_S": "2"}
        with kernel(tmp_path, **settings) as live:
            ran = eventually(lambda: (r := live.run("x = [1]; y = x; print(len(y))")).status == "ok" and r)
            where = eventually(lambda: (found := standing()) and len(found) == 3 and found)
            assert set(where.values()) == set(ports()) and ran.said["host"] in ports()
    finally:
        path = f"/apis/apps/v1/namespaces/{space}/statefulsets/replicas"
        cluster.ask("DELETE", path, {"propagationPolicy": "Background"})
        for pod in cluster.pods(space):
            cluster.ask(
                "DELETE",
                f"/api/v1/namespaces/{space}/pods/{pod['metadata']['name']}",
                {"gracePeriodSeconds": 0},
            )
        kubelets.close()
