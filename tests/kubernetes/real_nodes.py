"""A cluster whose nodes are real: three of them, on one network, each with GPUs that Kubernetes counts.

Law: it needs root, and one of it can be on a machine at a time; all of it ends with `close`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes.cluster import SERVER, Cluster, Json, eventually
from tests.kubernetes.network import Network
from tests.kubernetes.node import Node

OWN_IMAGE = "images.example/replkernel:0.2.0"
HUB_IMAGE, USERS_IMAGE = "images.example/hub:1", "images.example/notebook:1"
IMAGES = (OWN_IMAGE, HUB_IMAGE, USERS_IMAGE)
UID = 1000


class RealNodes:
    """The nodes, by name, and the cluster that they are of."""

    def __init__(self, names: Sequence[str], gpus: int) -> None:
        """Start all of it, and wait until each node is ready and has its GPUs."""
        self._gpus, self._stack = gpus, contextlib.ExitStack()
        self._nodes: dict[str, Node] = {}
        self.place = Path(tempfile.mkdtemp(prefix="rk-nodes-", dir="/tmp"))
        self._stack.callback(shutil.rmtree, self.place, ignore_errors=True)
        self.place.chmod(0o755)
        try:
            network = Network()
            self._stack.callback(network.close)
            self.cluster = Cluster(self.place, SERVER, 443)
            self._stack.callback(self.cluster.close)
            network.name(self.cluster)
            self._stack.callback(self._end_nodes)
            for number, name in enumerate(names, 1):
                self._begin(name, number)
            for name in names:
                self._await(name)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """End all of it."""
        self._stack.close()

    def cut_power(self, name: str) -> None:
        """End a node, and every process of its pods, with no notice to anybody."""
        self._nodes[name].end()

    def start_again(self, name: str) -> None:
        """Start a node that was ended, once Kubernetes has seen that; it has lost what its containers had."""
        eventually(lambda: not self._nodes[name].ready())
        self._begin(name, [*self._nodes].index(name) + 1)
        self._await(name)

    def _begin(self, name: str, number: int) -> None:
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.place)) / "node"
        place.parent.chmod(0o755)
        self._nodes[name] = Node(self.cluster, name, number, place, IMAGES)

    def _await(self, name: str) -> None:
        self._nodes[name].await_ready()
        told = {"status": {"capacity": {"nvidia.com/gpu": str(self._gpus)}}}
        path = f"/api/v1/nodes/{name}"

        def has_them() -> bool:
            # A kubelet that has just begun takes them off once: it knows of no device plugin.
            self.cluster.ask("PATCH", f"{path}/status", told)
            size = self.cluster.ask("GET", path)["status"]["allocatable"]
            return bool(size.get("nvidia.com/gpu") == str(self._gpus))

        eventually(has_them)

    def _end_nodes(self) -> None:
        for node in self._nodes.values():
            node.end()


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


def ready(pod: Json) -> bool:
    """Say whether what runs in a pod listens, as the kubelet's probe finds."""
    return any(it["ready"] for it in pod["status"].get("containerStatuses", ()))


def make_home(homes: Path, user: str) -> None:
    """Make a user's home, which lies on this machine as a ReadWriteMany volume does."""
    home = homes / user
    home.mkdir(parents=True)
    os.chown(home, UID, UID)
    homes.chmod(0o755)
