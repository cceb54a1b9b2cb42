"""In the place of a kubelet: keeps nodes Ready, says that bound pods run, ends those that are deleted.

A pod whose container is our agent is a real process here, with the environment that its manifest says; what
else there is (volumes, images, networks, cgroups) is not played. A pod's address is one of loopback.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests.kubernetes.cluster import Cluster, Json, Refused

LOOK_S = 0.3
BEAT_S = 2.0
PORT_FIRST = 8700
MARK = "TEST_POD_UID"
"""In the environment of a pod's agent."""


class Kubelets:
    """Those of all nodes but the ones in `dead`."""

    def __init__(
        self, cluster: Cluster, place: Path, env: Mapping[str, str] | None = None, shared: str = ""
    ) -> None:
        """`env`: what cluster DNS and device plugin would bring to agents; None: pods are no processes.

        `shared`: an address that all pods have, each with ports of its own (`ports`); agents are not reached
        from elsewhere at those of loopback.
        """
        self.ports: dict[str, int] = {}
        self._shared = shared
        self.dead: set[str] = set()
        self.pulls_fail: str = ""
        self._cluster, self._place, self._env = cluster, place, env
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}
        self._beat = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End what stands in, and every process of a pod."""
        self._over.set()
        self._thread.join()
        for uid in [*self._processes]:
            self._end(uid)

    def running(self) -> set[str]:
        """Return the pods whose process runs, by their uid."""
        return set(self._processes)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            with contextlib.suppress(Refused, OSError):  # The API server is away: the next turn asks again.
                self._turn()

    def _turn(self) -> None:
        nodes = [it["metadata"]["name"] for it in self._cluster.ask("GET", "/api/v1/nodes")["items"]]
        if time.monotonic() > self._beat:
            self._beat = time.monotonic() + BEAT_S
            for node in nodes:
                if node not in self.dead:
                    self._ready(node)
        pods = self._cluster.ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName!=")["items"]
        for uid in {*self._processes} - {pod["metadata"]["uid"] for pod in pods}:
            self._end(uid)
        for pod in pods:
            if pod["spec"]["nodeName"] in nodes and pod["spec"]["nodeName"] not in self.dead:
                with contextlib.suppress(Refused):  # It is gone meanwhile.
                    self._keep(pod)

    def _ready(self, node: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "StandIn", "lastHeartbeatTime": now}
        self._cluster.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [ready]}})

    def _keep(self, pod: Json) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        process = self._processes.get(uid)
        if "deletionTimestamp" in meta:
            # The real one waits for the preStop hook, then sends SIGTERM; ours ends at the time that is told.
            until = time.strptime(meta["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ")
            if time.mktime(until) - time.timezone <= time.time():
                self._end(uid)
                self._cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})
        elif pod["status"].get("phase") == "Pending":
            self._begin(pod, path)
        elif process is not None and process.poll() is not None:
            self._processes.pop(uid)
            phase = "Succeeded" if process.returncode == 0 else "Failed"
            self._cluster.ask("PATCH", f"{path}/status", {"status": {"phase": phase}})

    def _begin(self, pod: Json, path: str) -> None:
        name = pod["spec"]["containers"][0]["name"]
        if self.pulls_fail:
            state = {"waiting": {"reason": self.pulls_fail, "message": "the image is not there"}}
            told = {"phase": "Pending", "containerStatuses": [_container(name, state, ready=False)]}
            self._cluster.ask("PATCH", f"{path}/status", {"status": told})
            return
        address = self._addresses.setdefault(pod["metadata"]["uid"], f"127.0.3.{len(self._addresses) + 1}")
        if self._env is not None:
            self._start(pod, address)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        told = {
            "phase": "Running",
            "podIP": address,
            "startTime": now,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("Ready", "Initialized")
            ],
            "containerStatuses": [_container(name, {"running": {"startedAt": now}}, ready=True)],
        }
        self._cluster.ask("PATCH", f"{path}/status", {"status": told})

    def _start(self, pod: Json, address: str) -> None:
        container = pod["spec"]["containers"][0]
        if "replkernel.agent" not in " ".join(container.get("command", [])):
            return
        uid = pod["metadata"]["uid"]
        if uid in self._processes:
            return
        python = Path(sys.executable).parent
        env = {"PATH": f"{python}:{os.environ['PATH']}", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        for it in container["env"]:
            value = it.get("value", "") or self._from(pod, it.get("valueFrom") or {}, address)
            env[it["name"]] = _expanded(value, env)
        home = self._place / uid
        home.mkdir()
        env |= {
            "HOME": str(home),
            MARK: uid,
            "REPLKERNEL_SOCKET_DIR": f"/tmp/rk-{uid[:8]}",
            **(self._env or {}),
        }
        if self._shared:
            first = self.ports.setdefault(uid, PORT_FIRST + 100 * len(self.ports))
            env |= {"REPLKERNEL_BIND": self._shared, "REPLKERNEL_AGENT_PORT": str(first)}
            env["REPLKERNEL_PORTS"] = f"{first}-{first + 99}"
        command = [_expanded(word, env) for word in container["command"]]
        with (self._place / f"{pod['metadata']['name']}.log").open("ab") as log:
            self._processes[uid] = subprocess.Popen(
                command, env=env, cwd=home, stdout=log, stderr=log, start_new_session=True
            )

    def _from(self, pod: Json, source: Json, address: str) -> str:
        if "secretKeyRef" in source:
            path = (
                f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{source['secretKeyRef']['name']}"
            )
            data = self._cluster.ask("GET", path)["data"]
            return base64.b64decode(data[source["secretKeyRef"]["key"]]).decode()
        field = source.get("fieldRef", {}).get("fieldPath", "")
        there = {"spec.nodeName": pod["spec"]["nodeName"], "metadata.name": pod["metadata"]["name"]}
        return {**there, "status.podIP": address}[field]

    def _end(self, uid: str) -> None:
        """End what has a pod's mark; kernel processes do not, and live on, as in no container."""
        process = self._processes.get(uid)
        if process is None:
            return
        mark = f"{MARK}={uid}".encode()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in entry.read_bytes().split(b"\0"):
                    os.kill(int(entry.parent.name), signal.SIGKILL)
        process.wait()
        self._processes.pop(uid, None)


def _container(name: str, state: Json, *, ready: bool) -> Json:
    return {
        "name": name,
        "ready": ready,
        "state": state,
        "image": "",
        "imageID": "",
        "restartCount": 0,
    }


def _expanded(text: str, env: Mapping[str, str]) -> str:
    for name, value in env.items():
        text = text.replace(f"$({name})", value)
    return text
