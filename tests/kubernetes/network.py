"""The network of real nodes: one bridge for all pods, the API server's address, and names of services.

It stands in for kube-proxy and CoreDNS: a service's name is the addresses of the pods behind it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading

from tests.kubernetes.cluster import SERVER, Cluster, Refused
from tests.kubernetes.node import BRIDGE, GATEWAY

ZONE = ".svc.cluster.local"
A, NO_SUCH_NAME = 1, 3


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


class Network:
    """It is made before the cluster, for the API server listens there."""

    def __init__(self) -> None:
        """Make the bridge and its addresses; one that an earlier run has left is replaced."""
        _ip("link", "del", BRIDGE, check=False)
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{GATEWAY}/16", "dev", BRIDGE)
        _ip("addr", "add", f"{SERVER}/32", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        self._over = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((GATEWAY, 53))
        self._socket.settimeout(0.3)
        self._thread: threading.Thread | None = None

    def name(self, cluster: Cluster) -> None:
        """Answer for the names of a cluster's services from now on."""
        self._thread = threading.Thread(target=self._run, args=(cluster,))
        self._thread.start()

    def close(self) -> None:
        """Remove all of it."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._socket.close()
        _ip("link", "del", BRIDGE, check=False)

    def _run(self, cluster: Cluster) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError, OSError, ValueError, struct.error, IndexError):
                asked, who = self._socket.recvfrom(512)
                self._socket.sendto(answer(asked, cluster), who)


def answer(asked: bytes, cluster: Cluster) -> bytes:
    """Return DNS's answer to a question."""
    labels, at = [], 12
    while asked[at]:
        labels.append(asked[at + 1 : at + 1 + asked[at]].decode())
        at += 1 + asked[at]
    (kind,) = struct.unpack(">H", asked[at + 1 : at + 3])
    question = asked[12 : at + 5]
    found = addresses(".".join(labels), cluster)
    told = found if kind == A else []
    flags = 0x8580 | (0 if found else NO_SUCH_NAME)
    head = asked[:2] + struct.pack(">HHHHH", flags, 1, len(told), 0, 0)
    records = (b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 1, 4) + socket.inet_aton(it) for it in told)
    return head + question + b"".join(records)


def addresses(name: str, cluster: Cluster) -> list[str]:
    """Return the addresses of `SERVICE.NAMESPACE` or `POD.SERVICE.NAMESPACE`, in the cluster's zone."""
    parts = name.lower().removesuffix(ZONE).split(".")
    if not name.lower().endswith(ZONE) or len(parts) not in (2, 3):
        return []
    try:
        ends = cluster.ask("GET", f"/api/v1/namespaces/{parts[-1]}/endpoints/{parts[-2]}")
    except (Refused, OSError):
        return []
    there = [it for subset in ends.get("subsets") or () for it in subset.get("addresses") or ()]
    return [it["ip"] for it in there if len(parts) == 2 or it.get("hostname") == parts[0]]
