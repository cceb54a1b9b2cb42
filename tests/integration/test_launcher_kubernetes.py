"""The launcher of Kubernetes, by its own client, against a stand-in for the API server that runs no pods."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
from replkernel_server.launchers.kubernetes import KubernetesLauncher
from replkernel_server.launchers.kubernetes_pods import HOLDER, USER, KubernetesOptions, user_of
from replkernel_server.launchers.protocol import (
    HostComing,
    HostEnding,
    HostJoined,
    HostLost,
    Launcher,
    LauncherFailed,
)
from replkernel_server.testing import PATIENCE_S, Heard, LauncherContract

from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.needs import need

need("kubernetes_asyncio")
IMAGE = "images.example/replkernel:1"


def launcher_of(cluster: FakeKubernetes, **options: Any) -> KubernetesLauncher:
    plain = {"image": IMAGE, "hosts": 2, "most": 4, "gpus": 4, "api": cluster.address}
    return KubernetesLauncher(KubernetesOptions(**{**plain, **options}))


@pytest.fixture
async def cluster() -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes({"node-1": 4, "node-2": 4, "node-3": 4}) as it:
        yield it
        it.move()
        assert all(it.most_seen.get(node, 0) <= gpus for node, gpus in it.nodes.items())


class TestKubernetesLauncher(LauncherContract):
    """A pod that is ready stands for an agent that listens."""

    agents_come_along = True

    @pytest.fixture
    async def launcher(self, cluster: FakeKubernetes) -> AsyncIterator[Launcher]:
        self.cluster = cluster
        made = launcher_of(cluster)
        yield made
        await made.close()

    def listens(self, host: str) -> bool:
        self.cluster.move()
        return any(
            pod["spec"].get("nodeName") == host and pod["status"]["phase"] == "Running"
            for pod in self.cluster.pods.values()
        )


@pytest.fixture
async def opened(cluster: FakeKubernetes) -> AsyncIterator[tuple[KubernetesLauncher, Heard]]:
    made, heard = launcher_of(cluster), Heard()
    await made.open(heard)
    await heard.until(lambda: len(heard.hosts()) == 2)
    yield made, heard
    await made.close()


def holder_of(cluster: FakeKubernetes, node: str) -> str:
    (name,) = [
        name
        for name, pod in cluster.pods.items()
        if pod["spec"].get("nodeName") == node and HOLDER in pod["metadata"]["labels"]
    ]
    return name


async def test_a_node_that_is_drained_is_ending_then_lost_and_another_takes_its_place(
    cluster: FakeKubernetes, opened: tuple[KubernetesLauncher, Heard]
) -> None:
    _, heard = opened
    cluster.cordoned.add("node-1")
    holder = holder_of(cluster, "node-1")
    cluster.delete(holder, 60.0)
    await heard.until(lambda: any(isinstance(word, HostEnding) for word in heard.words))
    cluster.delete(holder, 0.0)
    await heard.until(lambda: any(isinstance(word, HostLost) for word in heard.words))
    await heard.until(lambda: heard.hosts() == {"node-2", "node-3"})
    kinds = [type(word) for word in heard.words if getattr(word, "host", "") == "node-1"]
    assert kinds[-2:] == [HostEnding, HostLost]


async def test_a_host_that_is_given_back_is_not_told_to_end_and_not_replaced_when_pods_are_listed_meanwhile(
    cluster: FakeKubernetes, opened: tuple[KubernetesLauncher, Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, heard = opened
    delete = launcher._api.delete

    async def answered_late(name: str, grace_s: int) -> None:
        await delete(name, grace_s)
        launcher._poke.set()
        await asyncio.sleep(0.3)  # Pods are listed within this, if they may be.

    monkeypatch.setattr(launcher._api, "delete", answered_late)
    host = min(heard.hosts())
    await launcher.give_back(host)
    await launcher.ask_hosts(0)
    told = [type(word) for word in heard.words if getattr(word, "host", "") == host]
    assert told == [HostJoined, HostLost]
    assert len([pod for pod in cluster.pods.values() if HOLDER in pod["metadata"]["labels"]]) == 1


async def test_a_pods_wait_is_explained_in_kubernetes_words(
    cluster: FakeKubernetes, opened: tuple[KubernetesLauncher, Heard]
) -> None:
    launcher, heard = opened
    cluster.nodes.pop("node-3")
    await launcher.ask_hosts(1)
    await heard.until(lambda: any("Insufficient nvidia.com/gpu" in word.why for word in coming(heard)))
    cluster.pulls = "ImagePullBackOff"
    cluster.nodes["node-4"] = 4
    await heard.until(lambda: any("ImagePullBackOff" in word.why for word in coming(heard)))
    cluster.pulls = ""
    await heard.until(lambda: "node-4" in heard.hosts() and coming(heard)[-1].over)


def coming(heard: Heard) -> list[HostComing]:
    return [word for word in heard.words if isinstance(word, HostComing)]


async def another_host(launcher: KubernetesLauncher) -> bool:
    """Ask for one more host; tell whether that could be asked."""
    try:
        await launcher.ask_hosts(1)
    except LauncherFailed:
        return False
    return True


async def test_an_api_server_that_restarts_takes_no_host_away(
    cluster: FakeKubernetes, opened: tuple[KubernetesLauncher, Heard], caplog: pytest.LogCaptureFixture
) -> None:
    launcher, heard = opened
    await cluster.away()
    await heard.until(lambda: "cannot be asked" in caplog.text)
    assert len(heard.hosts()) == 2
    await cluster.serve()
    async with asyncio.timeout(PATIENCE_S):
        # It asks again by itself; a person may be sooner than that.
        while not await another_host(launcher):  # noqa: ASYNC110 - the API server tells nobody
            await asyncio.sleep(0.05)
    await heard.until(lambda: len(heard.hosts()) == 3)


@pytest.mark.parametrize("verb", ["list", "create", "delete"])
async def test_each_verb_of_its_role_is_needed_and_named_where_it_lacks(
    cluster: FakeKubernetes, verb: str
) -> None:
    made, heard = launcher_of(cluster), Heard()
    cluster.verbs.discard(verb)

    async def play() -> None:
        await made.open(heard)
        await heard.until(lambda: len(heard.hosts()) == 2)
        await made.give_back(min(heard.hosts()))

    with pytest.raises(LauncherFailed, match=f"needs the verb {verb} for pods"):
        await play()
    await made.close()


SERVER = {
    "metadata": {
        "name": "jupyter-alice",
        "labels": {"component": "singleuser-server", "hub.jupyter.org/username": "alice"},
    },
    "spec": {
        "securityContext": {"fsGroup": 100},
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-alice"}}],
        "containers": [
            {
                "name": "notebook",
                "image": "images.example/alice:1",
                "securityContext": {"runAsUser": 1000},
                "env": [
                    {"name": "JUPYTERHUB_API_TOKEN", "value": "secret"},
                    {"name": "REPLKERNEL_SCHEDULER_URL", "value": "http://s"},
                    {"name": "OWN", "value": "1"},
                ],
                "volumeMounts": [{"name": "home", "mountPath": "/home/jovyan"}],
            }
        ],
    },
    "status": {"phase": "Running"},
}


async def test_a_users_agents_stand_beside_each_holder_with_his_image_uid_and_volumes(
    cluster: FakeKubernetes,
) -> None:
    cluster.pods["jupyter-alice"] = copy.deepcopy(SERVER)
    made, heard = launcher_of(cluster, users=True), Heard()
    await made.open(heard)
    mine: list[dict[str, Any]] = []

    def there() -> bool:
        mine[:] = [pod for pod in cluster.pods.values() if USER in pod["metadata"]["labels"]]
        return {pod["spec"].get("nodeName") for pod in mine} == heard.hosts() and len(mine) == 2

    await heard.until(there)
    (container,) = mine[0]["spec"]["containers"]
    assert container["image"] == "images.example/alice:1"
    assert container["securityContext"] == {"runAsUser": 1000}
    assert container["volumeMounts"] == [{"name": "home", "mountPath": "/home/jovyan"}]
    names = {it["name"] for it in container["env"]}
    assert "OWN" in names and not names & {"JUPYTERHUB_API_TOKEN", "REPLKERNEL_SCHEDULER_URL"}
    assert "secret" not in str(mine)
    # His server ends: his agents stay until they end by themselves, and come back no more.
    del cluster.pods["jupyter-alice"]
    for pod in mine:
        pod["status"] = {"phase": "Succeeded"}
    await heard.until(lambda: not any(USER in it["metadata"]["labels"] for it in cluster.pods.values()))
    await made.close()


@pytest.fixture
async def for_users(cluster: FakeKubernetes) -> AsyncIterator[tuple[KubernetesLauncher, Heard]]:
    made, heard = launcher_of(cluster, users=True), Heard()
    await made.open(heard)
    await heard.until(lambda: len(heard.hosts()) == 2)
    yield made, heard
    await made.close()


def server_starts(cluster: FakeKubernetes, user: str) -> None:
    pod = copy.deepcopy(SERVER)
    pod["metadata"]["name"] = f"jupyter-{user}"  # type: ignore[index]
    pod["metadata"]["labels"]["hub.jupyter.org/username"] = user  # type: ignore[index]
    cluster.pods[f"jupyter-{user}"] = pod


def agents_of(cluster: FakeKubernetes, user: str) -> int:
    name = user_of({"metadata": {"name": user}})
    return sum(pod["metadata"]["labels"].get(USER) == name for pod in cluster.pods.values())


async def test_a_quota_that_is_used_up_is_named_and_keeps_no_user_from_his_agents(
    cluster: FakeKubernetes, for_users: tuple[KubernetesLauncher, Heard]
) -> None:
    launcher, heard = for_users
    cluster.quota = 8
    with pytest.raises(LauncherFailed, match=r"\(403\): exceeded quota: gpus, requested: nvidia.com/gpu=4"):
        await launcher.ask_hosts(1)
    tried = cluster.over_quota
    server_starts(cluster, "alice")
    await heard.until(lambda: agents_of(cluster, "alice") == 2)
    assert cluster.over_quota == tried, "a holder was asked for that nobody awaits any more"


async def test_a_users_pod_that_is_refused_is_named_and_keeps_nobody_elses_from_being_made(
    cluster: FakeKubernetes, for_users: tuple[KubernetesLauncher, Heard], caplog: pytest.LogCaptureFixture
) -> None:
    launcher, heard = for_users
    cluster.denied = user_of({"metadata": {"name": "alice"}})
    server_starts(cluster, "alice")
    await heard.until(lambda: "denied the request: not this one" in caplog.text)
    server_starts(cluster, "bob")
    await launcher.ask_hosts(1)
    await heard.until(lambda: agents_of(cluster, "bob") == 3 and len(heard.hosts()) == 3)
    assert agents_of(cluster, "alice") == 0
    assert caplog.text.count("denied the request") == 1, "it is said at each turn, or for each host"


async def test_a_scheduler_that_comes_back_to_a_quota_that_is_used_up_has_the_hosts_that_are_there(
    cluster: FakeKubernetes, opened: tuple[KubernetesLauncher, Heard], caplog: pytest.LogCaptureFixture
) -> None:
    await opened[0].close()
    cluster.quota = 8
    launcher, heard = launcher_of(cluster, hosts=3), Heard()
    try:
        await launcher.open(heard)
        await heard.until(lambda: len(heard.hosts()) == 2 and cluster.over_quota >= 2)
        assert caplog.text.count("exceeded quota") == 1, "it is said at each turn"
        cluster.quota = 12
        await heard.until(lambda: len(heard.hosts()) == 3)
    finally:
        await launcher.close()
