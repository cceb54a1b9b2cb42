"""What a load test's processes used together, as looks at them from time to time tell it."""

from __future__ import annotations

from replkernel_server.loadtest.processes import Look, Processes, Used


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
