"""Notebooks whose replicas are pods of a real Kubernetes: with leases, and as plain pods of a namespace.

Pods are processes of this machine with the environment that Kubernetes gives them (`kubelet.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from replkernel_server.launchers.kubernetes_pods import KubernetesOptions

from tests.kubernetes.cluster import MISSING, Cluster, eventually, there
from tests.kubernetes.conftest import GPUS, NODES, PODS, SPACE, holders, remove_pods
from tests.kubernetes.kubelet import Kubelets
from tests.support.group import standing
from tests.support.helm import MISSING as NO_HELM
from tests.support.helm import find_helm
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
