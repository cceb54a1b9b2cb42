"""Which processes a load test measures, and what those used together as looks at them tell it."""

from __future__ import annotations

from replkernel_server.loadtest.figures import memory
from replkernel_server.loadtest.processes import Look, Processes, Used, told_of

from replkernel.protocol.status import KernelStatus, ReplicaStatus


def look(at_s: float, **cpu_s: float) -> Look:
    kernels = {name: Used(1, cpu_s=spent) for name, spent in cpu_s.items() if name != "agents"}
    return Look(at_s, kernels, {"agents": Used(1, cpu_s=cpu_s.get("agents", 0.0))}, len(kernels))


def test_the_work_of_kernels_that_have_ended_counts_and_that_before_the_first_look_does_not() -> None:
    processes = Processes({}, None)
    processes.looks = [
        look(10, agents=5, long=1, short=30),
        look(15, agents=6, long=2, short=32),
        look(20, agents=7, long=3, new=2),
    ]
    assert processes.cores_used() == (1 + 1 + 2 + 1 + 1 + 2) / 10


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


def test_memory_is_that_of_the_fullest_moment_and_the_least_that_of_all_kernels() -> None:
    processes = Processes({}, None)
    processes.looks = [
        Look(0.0, {"a": Used(1, pss_mib=90.0)}, {}, 3),
        Look(5.0, {"a": Used(1, pss_mib=90.0), "b": Used(1, pss_mib=100.0)}, {}, 6),
        Look(9.0, {"a": Used(1, pss_mib=50.0), "b": Used(1, pss_mib=60.0)}, {}, 2),
    ]
    found = memory(processes)
    assert found["pss_total_mib"] == 190.0
    assert found["pss_least_mib"] == 55.0
