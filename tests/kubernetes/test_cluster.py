"""On a real Kubernetes: the chart by real Helm, the launcher as its ServiceAccount, a notebook in pods.

The API server, its controllers and its scheduler are real; nodes are objects, and pods run as `kubelet.py`
says. At every moment of the module no node has more GPUs given than it has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from replkernel_server.launchers.kubernetes import KubernetesLauncher
from replkernel_server.launchers.kubernetes_pods import USER, KubernetesOptions
from replkernel_server.launchers.protocol import HostComing, HostEnding, HostLost, Launcher, LauncherFailed
from replkernel_server.testing import Heard, LauncherContract

from tests.kubernetes.cluster import MISSING, Cluster, eventually, there
from tests.kubernetes.conftest import GPUS, NODES, PODS, SPACE, holders
from tests.kubernetes.kubelet import Kubelets
from tests.support.helm import MISSING as NO_HELM
from tests.support.helm import find_helm

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.one_machine,
    pytest.mark.skipif(not there(), reason=MISSING),
    pytest.mark.skipif(find_helm() is None, reason=NO_HELM),
]


@pytest.fixture
async def launcher(
    cluster: Cluster, options: KubernetesOptions, kubelets: Kubelets, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesLauncher]:
    """Make the launcher as what the chart's ServiceAccount is."""
    account = cluster.kubeconfig_of(cluster.token_of(SPACE, "rk"), "rk")
    monkeypatch.setenv("KUBECONFIG", str(account))
    made = KubernetesLauncher(options)
    yield made
    await made.close()


@pytest.fixture
async def opened(launcher: KubernetesLauncher) -> tuple[KubernetesLauncher, Heard]:
    heard = Heard()
    await launcher.open(heard)
    await heard.until(lambda: len(heard.hosts()) == 2)
    return launcher, heard


# -- the chart ---------------------------------------------------------------------------------------


def may(cluster: Cluster, verb: str, resource: str, group: str = "", space: str = SPACE) -> bool:
    what = {"verb": verb, "resource": resource, "group": group, "namespace": space}
    who = f"system:serviceaccount:{SPACE}:rk"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{SPACE}", "system:authenticated"]
    spec = {"user": who, "groups": groups, "resourceAttributes": what}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(cluster.ask("POST", path, body)["status"]["allowed"])


def test_the_chart_is_taken_and_its_scheduler_gets_a_node(
    cluster: Cluster, options: KubernetesOptions, kubelets: Kubelets
) -> None:
    def runs() -> bool:
        (pod,) = cluster.pods(SPACE, "app.kubernetes.io/component=scheduler")
        return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] == "Running"

    eventually(runs)
    assert (options.hosts, options.gpus, options.namespace) == (2, GPUS, SPACE)
    policies = cluster.ask("GET", f"/apis/networking.k8s.io/v1/namespaces/{SPACE}/networkpolicies")["items"]
    assert {it["metadata"]["name"] for it in policies} == {"rk-agents", "rk-scheduler", "rk-users"}


def test_its_account_may_list_make_and_delete_pods_here_and_nothing_else(
    cluster: Cluster, options: KubernetesOptions
) -> None:
    assert all(may(cluster, verb, "pods") for verb in ("list", "create", "delete"))
    others = ("get", "watch", "update", "patch", "deletecollection")
    assert not any(may(cluster, verb, "pods") for verb in others)
    for resource in ("secrets", "configmaps", "nodes", "serviceaccounts", "persistentvolumeclaims", "events"):
        assert not any(may(cluster, verb, resource) for verb in ("get", "list", "create", "delete"))
    assert not any(may(cluster, verb, "pods", space="default") for verb in ("list", "create", "delete"))
    assert not may(cluster, "create", "rolebindings", "rbac.authorization.k8s.io")


def test_the_doctor_reads_it_and_what_he_may_not_read_is_no_fault(
    cluster: Cluster, options: KubernetesOptions
) -> None:
    command = [sys.executable, "-m", "replkernel.cli", "doctor", "--kubernetes", f"--namespace={SPACE}"]

    def asked(config: Path) -> str:
        env = os.environ | {"KUBECONFIG": str(config)}
        done = subprocess.run([*command, "--release=rk"], capture_output=True, text=True, timeout=60, env=env)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    said = asked(cluster.kubeconfig)
    assert "ok     rights            the ServiceAccount rk may list, create and delete pods" in said
    assert "wrong  holders" in said, "no launcher runs by now"
    assert "node-1: 4, node-2: 4, node-3: 4" in said and "ok     network           rk-users" in said
    said = asked(cluster.kubeconfig_of(cluster.token_of(SPACE, "rk"), "rk"))
    assert "note   rights" in said and "note   GPU nodes" in said and "wrong  holders" in said


@pytest.mark.parametrize("verb", ["list", "create", "delete"])
async def test_each_verb_of_its_role_is_needed(
    cluster: Cluster, launcher: KubernetesLauncher, verb: str
) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}/roles/rk"
    role = cluster.ask("GET", path)
    kept = [it for it in role["rules"][0]["verbs"] if it != verb]
    heard = Heard()

    async def play() -> None:
        await launcher.open(heard)
        await heard.until(lambda: len(heard.hosts()) == 2)
        await launcher.give_back(min(heard.hosts()))

    cluster.ask("PATCH", path, {"rules": [{**role["rules"][0], "verbs": kept}]})
    try:
        eventually(lambda: not may(cluster, verb, "pods"))
        with pytest.raises(LauncherFailed, match=f"needs the verb {verb} for pods"):
            await play()
    finally:
        cluster.ask("PATCH", path, {"rules": role["rules"]})
        eventually(lambda: may(cluster, verb, "pods"))


# -- the launcher ------------------------------------------------------------------------------------


class TestKubernetesLauncher(LauncherContract):
    agents_come_along = True

    @pytest.fixture
    async def launcher(self, cluster: Cluster, launcher: KubernetesLauncher) -> Launcher:
        self.cluster = cluster
        return launcher

    def listens(self, host: str) -> bool:
        return any(pod["status"].get("phase") == "Running" for pod in holders(self.cluster, host))


async def test_a_pod_that_is_deleted_is_ending_then_lost_and_another_takes_its_place(
    cluster: Cluster, opened: tuple[KubernetesLauncher, Heard]
) -> None:
    _, heard = opened
    lost = min(heard.hosts())
    (pod,) = holders(cluster, lost)
    cluster.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")
    await heard.until(lambda: any(isinstance(word, HostEnding) for word in heard.words))
    await heard.until(lambda: any(isinstance(word, HostLost) for word in heard.words))
    await heard.until(lambda: len(heard.hosts()) == 2)


async def test_a_node_that_is_drained_gives_its_host_away_and_gets_no_other(
    cluster: Cluster, opened: tuple[KubernetesLauncher, Heard]
) -> None:
    _, heard = opened
    lost = min(heard.hosts())
    cluster.ask("PATCH", f"/api/v1/nodes/{lost}", {"spec": {"unschedulable": True}})
    try:
        (pod,) = holders(cluster, lost)
        name = pod["metadata"]["name"]
        evicted = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
        cluster.ask("POST", f"{PODS}/{name}/eviction", evicted)
        await heard.until(lambda: HostEnding in [type(w) for w in heard.words])
        await heard.until(lambda: heard.hosts() == set(NODES) - {lost})
        assert not holders(cluster, lost)
    finally:
        cluster.ask("PATCH", f"/api/v1/nodes/{lost}", {"spec": {"unschedulable": None}})


async def test_a_holders_wait_is_explained_in_the_real_schedulers_words(
    cluster: Cluster, opened: tuple[KubernetesLauncher, Heard], kubelets: Kubelets
) -> None:
    launcher, heard = opened
    (free,) = set(NODES) - heard.hosts()
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "c", "image": "i", "resources": limits}
    job = {"metadata": {"name": "job"}, "spec": {"nodeName": free, "containers": [container]}}
    cluster.ask("POST", PODS, job)

    def why() -> str:
        return next((it.why for it in reversed(heard.words) if isinstance(it, HostComing) and it.why), "")

    try:
        await launcher.ask_hosts(1)
        await heard.until(lambda: "Insufficient nvidia.com/gpu" in why())
        kubelets.pulls_fail = "ImagePullBackOff"
        cluster.ask("DELETE", f"{PODS}/job", {"gracePeriodSeconds": 0})
        await heard.until(lambda: "ImagePullBackOff: the image is not there" in why())
        kubelets.pulls_fail = ""
        # The real kubelet tries again by itself; ours has left the pod as Pending, and does so as well.
        await heard.until(lambda: heard.hosts() == set(NODES))
    finally:
        kubelets.pulls_fail = ""


async def test_an_api_server_that_restarts_takes_no_host_away(
    cluster: Cluster, opened: tuple[KubernetesLauncher, Heard], caplog: pytest.LogCaptureFixture
) -> None:
    launcher, heard = opened
    before = heard.hosts()
    cluster.end_api()
    try:
        await heard.until(lambda: "cannot be asked" in caplog.text)
    finally:
        cluster.start_api()
    assert heard.hosts() == before

    async def asked() -> bool:
        try:
            await launcher.ask_hosts(1)
        except LauncherFailed:
            return False
        return True

    for _ in range(60):
        if await asked():
            break
    await heard.until(lambda: heard.hosts() == set(NODES))


async def test_a_users_agents_are_pods_that_kubernetes_takes_and_counts_no_gpu_for(
    cluster: Cluster, opened: tuple[KubernetesLauncher, Heard]
) -> None:
    _, heard = opened
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    cluster.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    for user in ("alice", "bob"):
        labels = {"app.kubernetes.io/instance": "hub", "app.kubernetes.io/component": "singleuser-server"}
        labels["hub.jupyter.org/username"] = user
        container = {"name": "notebook", "image": f"images.example/{user}:1"}
        server = {
            "metadata": {"name": f"jupyter-{user}", "labels": labels},
            "spec": {"securityContext": {"runAsUser": 1000}, "containers": [container]},
        }
        cluster.ask("POST", PODS, server)

    def agents() -> set[tuple[str, str]]:
        return {
            (pod["spec"]["containers"][0]["image"], pod["spec"].get("nodeName", ""))
            for pod in cluster.pods(SPACE, USER)
        }

    wanted = {(f"images.example/{u}:1", host) for u in ("alice", "bob") for host in heard.hosts()}
    try:
        await heard.until(lambda: agents() == wanted)
        assert {cluster.gpus_of(host) for host in heard.hosts()} == {GPUS}
    finally:
        for user in ("alice", "bob"):
            cluster.ask("DELETE", f"{PODS}/jupyter-{user}", {"gracePeriodSeconds": 0})
