"""Two users of a JupyterHub with KubeSpawner on four real nodes, whose kubelets run all pods in containers.

What users see when processes, pods and nodes end under their notebooks. At every moment no node has more GPUs
given by Kubernetes than it has, nor more leased by the scheduler. The tests follow one another on one Hub.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException

import pytest
from replkernel_server.launchers.kubernetes_pods import USER

from tests.kubernetes.cluster import Cluster, Json, eventually
from tests.kubernetes.conftest import GPUS, PODS, SPACE, holders, install_with_journal, real_nodes
from tests.kubernetes.hub_in_cluster import start_hub
from tests.kubernetes.node import MISSING, can_run
from tests.kubernetes.notebooks import LOOK, STATE, WITHIN_S, Notebook
from tests.kubernetes.real_nodes import RealNodes, make_home, processes, ready
from tests.support.helm import MISSING as NO_HELM
from tests.support.helm import find_helm
from tests.support.hub import Hub

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.one_machine,
    pytest.mark.skipif(not can_run(), reason=MISSING),
    pytest.mark.skipif(find_helm() is None, reason=NO_HELM),
    pytest.mark.skipif(
        importlib.util.find_spec("kubespawner") is None,
        reason="kubespawner is not installed: make .venv/kubespawner",
    ),
]
USERS = ("alice", "bob")
NODES = ("node-1", "node-2", "node-3", "node-4")
"""One more than a notebook has replicas: those of a node that is drained have somewhere to go."""
HOME = NODES[0]
"""The Hub, its users' servers and the scheduler are on this node; it is drained, and never lost."""
REAL = {
    "launcher.hosts": str(len(NODES)),
    "launcher.most": str(len(NODES)),
    "launcher.graceSeconds": "45",
    r"scheduler.nodeSelector.kubernetes\.io/hostname": HOME,
}


@pytest.fixture(scope="module")
def real() -> Iterator[RealNodes]:
    yield from real_nodes(NODES)


@pytest.fixture(scope="module")
def cluster(real: RealNodes) -> Cluster:
    return real.cluster


@pytest.fixture(scope="module")
def hub(real: RealNodes) -> Iterator[Hub]:
    notes = install_with_journal(real.cluster, real.place, REAL)
    homes = real.place / "homes"
    for user in USERS:
        make_home(homes, user)
    found = start_hub(real.cluster, SPACE, notes, homes, HOME)
    found.start_servers(*USERS)
    with leases_counted(found):
        yield found


class leases_counted:
    """Counts each node's leased GPUs, as the scheduler tells its administrators, time and again."""

    def __init__(self, hub: Hub) -> None:
        self.most, self.times, self._hub = dict.fromkeys(NODES, 0), 0, hub
        self.twice: list[Json] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *what: object) -> None:
        self._over.set()
        self._thread.join()
        print(f"Leases counted {self.times} times; the most GPUs that were leased: {self.most}")
        assert self.times > 10 and self.twice == []
        assert 0 < max(self.most.values()) <= GPUS

    def _run(self) -> None:
        while not self._over.wait(0.2):
            with contextlib.suppress(OSError, HTTPException):  # The Hub is busy.
                status, told = self._hub.call("GET", "services/replkernel/api/v1/status")
                if status == 200:
                    self._count(told["leases"])

    def _count(self, leases: list[Json]) -> None:
        self.times += 1
        held = Counter((lease["host"], gpu) for lease in leases for gpu in lease["gpus"])
        if held and max(held.values()) > 1:
            self.twice += leases
        for host, count in Counter(lease["host"] for lease in leases for _ in lease["gpus"]).items():
            self.most[host] = max(self.most[host], count)


@pytest.fixture(scope="module")
def books(hub: Hub, cluster: Cluster) -> dict[str, Notebook]:
    return {
        user: Notebook(f"{hub.url}user/{user}/", hub.token, partial(pods_of, cluster, user)) for user in USERS
    }


def pods_of(cluster: Cluster, user: str, node: str) -> list[Json]:
    """Return the running pod of a user's agent on a node, if it is there."""
    return [
        it
        for it in cluster.pods(SPACE, USER)
        if it["spec"].get("nodeName") == node
        and ready(it)
        and any(
            volume.get("hostPath", {}).get("path", "").endswith(f"/{user}")
            for volume in it["spec"]["volumes"]
        )
    ]


def comes_back(cluster: Cluster, of: str, pod: Json) -> None:
    """Wait until the container of a pod was started again, in the same pod."""

    def again() -> bool:
        (now,) = [it for it in cluster.pods(SPACE, of) if it["metadata"]["uid"] == pod["metadata"]["uid"]]
        return ready(now) and bool(now["status"]["containerStatuses"][0]["restartCount"] == 1)

    eventually(again, WITHIN_S)


def lose_pod_of_executor(cluster: Cluster, book: Notebook, user: str) -> tuple[str, Json]:
    """Delete the pod that runs a notebook's cells, and wait until it has ended; return its host, and it."""
    executor = book.executor()
    (pod,) = pods_of(cluster, user, executor["host"])
    cluster.ask("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    eventually(lambda: not processes(pod))
    book.goes_on()
    book.stands(without=[executor["replica"]])
    return executor["host"], pod


def test_two_users_have_replicas_in_pods_on_several_nodes_and_lease_gpus(
    cluster: Cluster, books: dict[str, Notebook]
) -> None:
    for book in books.values():
        book.begins()
    for book in books.values():
        assert book.run("import os; print(os.environ['HOME'], os.getuid())", gpus=2) == "/home/jovyan 1000"
    assert {node: cluster.gpus_of(node) for node in NODES} == dict.fromkeys(NODES, GPUS)
    assert {pod["spec"]["nodeName"] for pod in holders(cluster)} == set(NODES)


def test_a_kernel_process_that_is_killed_in_its_pod_takes_its_cell_along_and_nothing_else(
    real: RealNodes, cluster: Cluster, books: dict[str, Notebook]
) -> None:
    book = books["alice"]
    executor = book.executor()
    (pod,) = pods_of(cluster, "alice", executor["host"])
    with book.page() as page:
        began = page.send("import time; open('/home/jovyan/begun', 'w').close(); time.sleep(120)")
        eventually((real.place / "homes/alice/begun").exists)
        os.kill(processes(pod)[executor["kernel_pid"]], signal.SIGKILL)
        content, _ = page.answer(began, WITHIN_S)
    assert (content["status"], content["ename"]) == ("error", "ExecutorLost")
    book.goes_on()
    book.stands()
    (after,) = pods_of(cluster, "alice", executor["host"])
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0, "its agent makes another process"


def test_an_agent_that_is_killed_has_its_container_started_again_and_its_replica_comes_back(
    cluster: Cluster, books: dict[str, Notebook]
) -> None:
    book = books["bob"]
    (pod,) = pods_of(cluster, "bob", book.executor()["host"])
    os.kill(processes(pod)[1], signal.SIGKILL)
    book.goes_on()
    comes_back(cluster, USER, pod)
    book.stands()
    book.goes_on(gpus=1)


def test_a_holder_whose_container_restarts_leases_its_gpus_again(
    cluster: Cluster, books: dict[str, Notebook]
) -> None:
    book = books["alice"]
    book.goes_on(gpus=1)
    host = book.executor()["host"]
    (pod,) = holders(cluster, host)
    os.kill(processes(pod)[1], signal.SIGKILL)
    comes_back(cluster, "replkernel.io/holder", pod)
    assert cluster.gpus_of(host) == GPUS
    book.goes_on(gpus=GPUS)


def test_a_users_pod_that_is_deleted_is_made_again_and_the_notebook_goes_on(
    cluster: Cluster, books: dict[str, Notebook]
) -> None:
    host, pod = lose_pod_of_executor(cluster, books["alice"], "alice")

    def another() -> bool:
        after = pods_of(cluster, "alice", host)
        return bool(after) and bool(after[0]["metadata"]["uid"] != pod["metadata"]["uid"])

    eventually(another, WITHIN_S)
    books["alice"].goes_on(gpus=1)


def test_a_node_that_is_drained_gives_notice_and_the_notebooks_leave_it_without_a_lost_cell(
    cluster: Cluster, books: dict[str, Notebook]
) -> None:
    book = books["bob"]
    host = book.executor()["host"]
    cluster.ask("PATCH", f"/api/v1/nodes/{host}", {"spec": {"unschedulable": True}})
    try:
        for pod in cluster.pods(SPACE, "replkernel.io/launcher"):
            if pod["spec"].get("nodeName") == host:
                name = pod["metadata"]["name"]
                evicted = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
                cluster.ask("POST", f"{PODS}/{name}/eviction", evicted)
        eventually(lambda: book.run(LOOK) == STATE and book.executor()["host"] != host)
        assert book.run(LOOK, gpus=1) == STATE
        assert books["alice"].run(LOOK, gpus=1) == STATE
        eventually(lambda: not holders(cluster, host), WITHIN_S)
        assert book.run(LOOK) == STATE and books["alice"].run(LOOK) == STATE
    finally:
        cluster.ask("PATCH", f"/api/v1/nodes/{host}", {"spec": {"unschedulable": None}})
    eventually(lambda: {it["spec"].get("nodeName") for it in holders(cluster)} == set(NODES), WITHIN_S)
    for book in books.values():
        book.stands()


def test_a_node_that_loses_power_takes_its_cell_along_and_the_notebook_goes_on_elsewhere(
    real: RealNodes, cluster: Cluster, books: dict[str, Notebook]
) -> None:
    book = books["alice"]
    while book.executor()["host"] == HOME:
        lose_pod_of_executor(cluster, book, "alice")
    host = book.executor()["host"]
    gone = {
        user: [it["replica"] for it in one.replicas() if it["host"] == host] for user, one in books.items()
    }
    had = {it["metadata"]["uid"] for it in holders(cluster, host)}
    real.cut_power(host)
    for user, one in books.items():
        one.goes_on()
        assert one.executor()["host"] != host
        one.goes_on(gpus=1)
        one.stands(without=gone[user])
    real.start_again(host)
    eventually(
        lambda: any(ready(it) and it["metadata"]["uid"] not in had for it in holders(cluster, host)), WITHIN_S
    )
    for one in books.values():
        one.goes_on(gpus=GPUS)


def test_cells_run_and_lease_while_the_api_server_is_away_and_after_it_was(
    cluster: Cluster, books: dict[str, Notebook]
) -> None:
    cluster.end_api()
    try:
        for book in books.values():
            assert book.run(LOOK, gpus=1).endswith(STATE)
    finally:
        cluster.start_api()
    for book in books.values():
        assert book.run(LOOK, gpus=1).endswith(STATE)
