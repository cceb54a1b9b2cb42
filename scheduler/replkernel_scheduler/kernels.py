"""Live kernels, the hosts of their replicas, and those that wait for hosts.

Law: a kernel has at most one replica on a host; each replica is on its host's account for as long as it is
here.
"""

from __future__ import annotations

from replkernel_scheduler.host_index import Hosts
from replkernel_scheduler.hosts import Host
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, RequestId


class Kernel:
    """One live kernel; `last` ran its last cell with GPUs, `missing` replicas still need a host.

    One that is `reported` has its replicas where it says: none is placed by us, and none is missing; it moves
    them itself when it is told to, if it is `movable`.
    """

    __slots__ = ("hosts", "last", "missing", "movable", "pinned", "placed", "reported", "spec", "told")

    def __init__(self, spec: KernelSpec) -> None:
        """Start without replicas."""
        self.spec = spec
        self.hosts: list[Host] = []
        self.last: HostName | None = None
        self.pinned: HostName | None = None
        self.missing = spec.replicas
        self.placed = self.reported = self.movable = False
        self.told = 0


class Kernels:
    """All live kernels."""

    def __init__(self, hosts: Hosts) -> None:
        """Start with none."""
        self.by_id: dict[KernelId, Kernel] = {}
        self.short: dict[KernelId, Kernel] = {}
        self.asks: dict[KernelId, dict[RequestId, None]] = {}
        self._hosts = hosts

    def asks_of(self, kernel_id: KernelId) -> list[RequestId]:
        """Return the kernel's requests that wait or are served, oldest first; it need not be known."""
        return list(self.asks.get(kernel_id, ()))

    def asked(self, kernel_id: KernelId, request: RequestId) -> None:
        """Note that a request of the kernel waits or is served."""
        asks = self.asks.get(kernel_id)
        if asks is None:
            self.asks[kernel_id] = {request: None}
        else:
            asks[request] = None

    def answered(self, kernel_id: KernelId, request: RequestId) -> None:
        """Note that a request neither waits nor is served any more."""
        asks = self.asks[kernel_id]
        del asks[request]
        if not asks:
            del self.asks[kernel_id]

    def settle(self, kernel: Kernel, host: Host) -> None:
        """Give the kernel a replica on `host`."""
        kernel.hosts.append(host)
        self._hosts.subscribe(host, kernel.spec, 1)

    def leave(self, kernel: Kernel, host: Host) -> None:
        """Take the kernel's replica off `host`."""
        kernel.hosts.remove(host)
        self._hosts.subscribe(host, kernel.spec, -1)
        if kernel.pinned == host.name:
            kernel.pinned = None

    def wants(self, kernel: Kernel, missing: int) -> None:
        """Let the kernel wait for so many more hosts (none: it is complete)."""
        kernel.missing = missing
        if missing:
            self.short[kernel.spec.kernel_id] = kernel
        else:
            self.short.pop(kernel.spec.kernel_id, None)
