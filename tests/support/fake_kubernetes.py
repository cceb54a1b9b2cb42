"""An API server that is none: the REST routes for pods that the launcher uses, nodes with GPUs, a scheduler.

It says `PodScheduled: Unschedulable` as the real one does, counts a resource on each node, keeps
anti-affinity and grants verbs; it validates nothing and runs no container. What it does not know it answers
with 501.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from tests.support.ports import free_port

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


class FakeKubernetes:
    """One cluster; `async with` serves it at `address`."""

    def __init__(self, nodes: dict[str, int]) -> None:
        self.nodes, self.pods = nodes, dict[str, Json]()
        self.verbs = {"list", "create", "delete"}
        self.cordoned: set[str] = set()
        self.most_seen: dict[str, int] = {}
        self.pulls: str = ""
        """The reason why images do not come, if they do not."""
        self.quota: int | None = None
        """So many GPUs all pods may have, if that is bounded."""
        self.over_quota = 0
        """So many pods were refused for it."""
        self.denied = ""
        """An admission webhook refuses pods with a label of this value."""
        self._port = free_port()

    async def __aenter__(self) -> FakeKubernetes:
        await self.serve()
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.away()

    async def serve(self) -> None:
        """Answer, at the same port each time."""
        self.address = f"http://127.0.0.1:{self._port}"
        path = r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?"
        self._server = HTTPServer(Application([(path, Pods, {"cluster": self}), (r".*", Unknown)]))
        self._server.add_sockets(bind_sockets(self._port, "127.0.0.1"))

    async def away(self) -> None:
        """Answer no more."""
        self._server.stop()
        await self._server.close_all_connections()
        await asyncio.sleep(0)

    def used(self, node: str) -> int:
        """Return how many GPUs of a node the pods on it have."""
        return sum(gpus_of(pod) for pod in self.pods.values() if pod["spec"].get("nodeName") == node)

    def move(self) -> None:
        """Bind what fits, run what is bound, remove what has ended."""
        now = time.time()
        for name, pod in list(self.pods.items()):
            if pod.get("ends_at", now + 1) <= now:
                del self.pods[name]
            elif not pod["spec"].get("nodeName"):
                self._bind(pod)
            elif pod["status"]["phase"] == "Pending" and not self.pulls:
                pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for node in self.nodes:
            self.most_seen[node] = max(self.most_seen.get(node, 0), self.used(node))

    def _bind(self, pod: Json) -> None:
        node = next((node for node in self.nodes if self._fits(pod, node)), None)
        if node is None:
            why = {"reason": "Unschedulable", "message": f"0/{len(self.nodes)} nodes: Insufficient {GPU}"}
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **why}]
            return
        pod["spec"]["nodeName"] = node
        waiting = {"reason": self.pulls or "ContainerCreating"}
        pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}

    def _fits(self, pod: Json, node: str) -> bool:
        affinity = pod["spec"].get("affinity") or {}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = (affinity.get("nodeAffinity") or {}).get(required, {}).get("nodeSelectorTerms", [])
        named = [field["values"] for term in terms for field in term["matchFields"]]
        others = [it for it in self.pods.values() if it["spec"].get("nodeName") == node]
        apart = (affinity.get("podAntiAffinity") or {}).get(required, [])
        alone = not any(
            fits(other["metadata"]["labels"], term["labelSelector"]["matchLabels"])
            for term in apart
            for other in others
        )
        room = self.used(node) + gpus_of(pod) <= self.nodes[node]
        return alone and room and node not in self.cordoned and all(node in names for names in named)

    def delete(self, name: str, grace_s: float) -> None:
        """Have a pod end, as an eviction does."""
        pod = self.pods[name]
        at = time.time() + grace_s
        pod["ends_at"] = min(pod.get("ends_at", at), at)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(pod["ends_at"]))
        pod["metadata"].setdefault("deletionTimestamp", stamp)


def gpus_of(pod: Json) -> int:
    limits = [it.get("resources", {}).get("limits", {}) for it in pod["spec"]["containers"]]
    return sum(int(limit.get(GPU, 0)) for limit in limits)


def fits(labels: dict[str, str], wanted: dict[str, str]) -> bool:
    return wanted.items() <= labels.items()


class Unknown(RequestHandler):
    """What this is not."""

    def prepare(self) -> None:
        self.send_error(501)


class Pods(RequestHandler):
    """Lists, makes and deletes."""

    def initialize(self, cluster: FakeKubernetes) -> None:
        self.cluster = cluster

    def may(self, verb: str) -> bool:
        self.cluster.move()
        if verb not in self.cluster.verbs:
            self.refuse(403, f'cannot {verb} resource "pods"')
        return verb in self.cluster.verbs

    def refuse(self, status: int, message: str) -> None:
        self.set_status(status)
        self.finish({"kind": "Status", "status": "Failure", "message": message, "code": status})

    def get(self, namespace: str, name: str | None) -> None:
        if not self.may("list"):
            return
        words = [word.partition("=") for word in self.get_argument("labelSelector", "").split(",") if word]
        wanted = {key: value for key, _, value in words}
        found = [it for it in self.cluster.pods.values() if fits(it["metadata"]["labels"], wanted)]
        self.finish(json.dumps({"kind": "PodList", "items": found}))

    def post(self, namespace: str, name: str | None) -> None:
        if not self.may("create"):
            return
        pod = json.loads(self.request.body)
        if pod["metadata"]["name"] in self.cluster.pods:
            self.refuse(409, "already exists")
            return
        if self.cluster.denied in pod["metadata"]["labels"].values():
            self.refuse(403, 'admission webhook "policy" denied the request: not this one')
            return
        used = sum(map(gpus_of, self.cluster.pods.values()))
        if self.cluster.quota is not None and gpus_of(pod) and used + gpus_of(pod) > self.cluster.quota:
            self.cluster.over_quota += 1
            what = f"requested: {GPU}={gpus_of(pod)}, used: {GPU}={used}, limited: {GPU}={self.cluster.quota}"
            self.refuse(403, f'pods "{pod["metadata"]["name"]}" is forbidden: exceeded quota: gpus, {what}')
            return
        pod["status"] = {"phase": "Pending"}
        self.cluster.pods[pod["metadata"]["name"]] = pod
        self.set_status(201)
        self.finish(json.dumps(pod))

    def delete(self, namespace: str, name: str) -> None:
        if not self.may("delete"):
            return
        if name not in self.cluster.pods:
            self.refuse(404, "not found")
            return
        body = json.loads(self.request.body or b"{}")
        grace = self.get_argument("gracePeriodSeconds", body.get("gracePeriodSeconds", 30))
        self.cluster.delete(name, min(float(grace), 0.3))
        self.finish({"kind": "Status", "status": "Success"})
