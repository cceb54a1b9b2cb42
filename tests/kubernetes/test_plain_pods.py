"""Replicas as plain pods of somebody who has nothing but a namespace: `replicas.yaml`, on three real nodes.

Law: everything is made by an account with Kubernetes' own role `edit`, and no pod asks for a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.kubernetes.cluster import ROOT, Cluster, Json, Refused, eventually
from tests.kubernetes.conftest import NODES, PODS, SPACE
from tests.kubernetes.node import MISSING, can_run
from tests.kubernetes.notebooks import WITHIN_S, Notebook
from tests.kubernetes.real_nodes import UID, USERS_IMAGE, RealNodes, make_home, processes, ready
from tests.support.lab import TOKEN
from tests.support.server_life import EXTENSION

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.one_machine,
    pytest.mark.skipif(not can_run(), reason=MISSING),
]
FILE = ROOT / "docs/deployments/kubernetes/replicas.yaml"
HOSTS = ("replicas-0", "replicas-1", "replicas-2")
PLACES = {
    "Service": f"/api/v1/namespaces/{SPACE}/services",
    "StatefulSet": f"/apis/apps/v1/namespaces/{SPACE}/statefulsets",
}
SERVER = """umask 077
place="$HOME/.local/share/jupyter/replkernel"
mkdir -p "$place" && printf %s "$HOSTS_SECRET" > "$place/hosts.secret"
unset HOSTS_SECRET
exec python -P -m jupyter_server --no-browser --ip=0.0.0.0 --port=8888 --IdentityProvider.token={token} \\
  {extension}
"""


@pytest.fixture(scope="module")
def cluster(real: RealNodes) -> Cluster:
    return real.cluster


@pytest.fixture(scope="module")
def token(cluster: Cluster) -> str:
    """Return what stands for somebody with a namespace."""
    accounts = f"/api/v1/namespaces/{SPACE}/serviceaccounts"
    cluster.ask("POST", accounts, {"metadata": {"name": "ada"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "ada", "namespace": SPACE}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}/rolebindings"
    cluster.ask("POST", path, {"metadata": {"name": "ada"}, "roleRef": role, "subjects": [subject]})
    eventually(lambda: cluster.ask("GET", f"{accounts}/default"))
    return cluster.token_of(SPACE, "ada")


def shared(pod: Json, place: str) -> Json:
    """Have a pod use the image that there is, and a folder of this machine where the file says S3."""
    (container,) = pod["containers"]
    container["image"] = USERS_IMAGE
    env = [it for it in container["env"] if it["name"] != "REPLKERNEL_STORE"]
    container["env"] = [*env, {"name": "REPLKERNEL_STORE", "value": "file:///srv/store"}]
    container["volumeMounts"].append({"name": "store", "mountPath": "/srv/store"})
    pod["volumes"].append({"name": "store", "hostPath": {"path": place}})
    return pod


def server(hosts: str) -> Json:
    """Return the pod of the Jupyter Server, as the head of the file describes it."""
    env: list[Any] = [
        {"name": "HOME", "value": "/srv/home"},
        {"name": "HOSTS_SECRET", "valueFrom": {"secretKeyRef": {"name": "replicas", "key": "hosts.secret"}}},
        {"name": "REPLKERNEL_HOSTS", "value": hosts},
    ]
    container = {
        "name": "server",
        "env": env,
        "command": ["sh", "-c", SERVER.format(token=TOKEN, extension=EXTENSION)],
        "workingDir": "/srv/home",
        "readinessProbe": {"tcpSocket": {"port": 8888}, "periodSeconds": 1},
        "volumeMounts": [{"name": "home", "mountPath": "/srv/home"}],
    }
    return {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsUser": UID, "fsGroup": UID},
        "containers": [container],
        "volumes": [{"name": "home", "emptyDir": {}}],
    }


def pods_of(cluster: Cluster, host: str) -> list[Json]:
    return [it for it in cluster.pods(SPACE) if it["metadata"]["name"] == host and ready(it)]


@pytest.fixture(scope="module")
def book(real: RealNodes, cluster: Cluster, token: str) -> Notebook:
    make_home(real.place / "stores", "ada")
    store = str(real.place / "stores/ada")
    secrets = f"/api/v1/namespaces/{SPACE}/secrets"
    made = {"metadata": {"name": "replicas"}, "stringData": {"hosts.secret": "5" * 64}}
    cluster.ask("POST", secrets, made, token=token)
    for one in yaml.safe_load_all(FILE.read_text()):
        if one["kind"] == "StatefulSet":
            shared(one["spec"]["template"]["spec"], store)
        if one["kind"] in PLACES:  # policy/v1, of the PodDisruptionBudget, is newer than this Kubernetes.
            cluster.ask("POST", PLACES[one["kind"]], one, token=token)
    hosts = ",".join(f"{name}={name}.replicas:7700" for name in HOSTS)
    pod = {"metadata": {"name": "server"}, "spec": shared(server(hosts), store)}
    cluster.ask("POST", PODS, pod, token=token)
    eventually(lambda: all(pods_of(cluster, name) for name in (*HOSTS, "server")), WITHIN_S)
    (there,) = pods_of(cluster, "server")
    return Notebook(f"http://{there['status']['podIP']}:8888/", TOKEN, lambda host: pods_of(cluster, host))


def test_a_namespace_is_all_that_it_takes(cluster: Cluster, token: str, book: Notebook) -> None:
    with pytest.raises(Refused, match="403"):
        cluster.ask("GET", "/api/v1/nodes", token=token)
    with pytest.raises(Refused, match="403"):
        cluster.ask("GET", "/api/v1/namespaces/default/pods", token=token)
    book.begins()
    assert {it["host"] for it in book.replicas()} == set(HOSTS)
    assert {it["spec"]["nodeName"] for name in HOSTS for it in pods_of(cluster, name)} == set(NODES)
    assert [cluster.gpus_of(node) for node in NODES] == [0, 0, 0]


def test_a_pod_that_is_lost_takes_no_state_along_and_another_replica_stands_in_the_next(
    cluster: Cluster, token: str, book: Notebook
) -> None:
    executor = book.executor()
    host = executor["host"]
    (pod,) = pods_of(cluster, host)
    cluster.ask("DELETE", f"{PODS}/{host}", {"gracePeriodSeconds": 0}, token=token)
    eventually(lambda: not processes(pod))
    book.goes_on()
    assert book.executor()["host"] != host
    book.stands(without=[executor["replica"]])
    (after,) = pods_of(cluster, host)
    assert after["metadata"]["uid"] != pod["metadata"]["uid"]
    book.goes_on()
