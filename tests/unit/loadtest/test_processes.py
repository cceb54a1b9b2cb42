"""Which processes a load test measures: those of this machine; replicas elsewhere are counted alone."""

from __future__ import annotations

from replkernel_server.loadtest.processes import told_of

from replkernel.status import KernelStatus, ReplicaStatus


def replica(name: str, host: str, kernel_pid: int | None, agent_pid: int) -> ReplicaStatus:
    return ReplicaStatus(name, host, kernel_pid=kernel_pid, agent_pid=agent_pid)


def test_replicas_on_other_machines_are_counted_and_not_measured() -> None:
    replicas = (replica("r1", "here", 11, 1), replica("r2", "gpu2", 11, 2), replica("r3", "gpu3", None, 3))
    known = [
        KernelStatus("k", router_pid=10, replicas=replicas),
        KernelStatus("not of the test", router_pid=9),
    ]
    told = told_of(known, {"k"}, {"here"})
    assert (told.kernels, told.agents) == ({"k": {10, 11}}, {1})
    assert (told.replicas, told.elsewhere) == (2, 1)
