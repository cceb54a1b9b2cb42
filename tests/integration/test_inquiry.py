"""Asking agents for their status: each answers for itself, whatever the others do."""

from __future__ import annotations

import os
import signal

import pytest

from replkernel.agent.io.death import start_time
from replkernel.agent.io.lookup import find_or_start, stop_agent
from replkernel.client.inquiry import ask_agents, with_records
from replkernel.launch.kernel_record import KernelRecord, this_machine, write_record
from replkernel.protocol.status import KernelStatus, StatusDocument
from replkernel.records import KernelId
from replkernel.settings import data_dir
from tests.support.live import eventually

NAMES = ("first", "second")


@pytest.mark.parametrize("frozen", NAMES)
def test_an_agent_that_does_not_answer_hides_no_other(frozen: str) -> None:
    agents = {name: find_or_start(name, os.environ) for name in NAMES}
    os.kill(agents[frozen].pid, signal.SIGSTOP)
    wanted = {name: "not answering" if name == frozen else "up" for name in NAMES}
    try:  # The other one may be late as well where the machine is busy.
        eventually(lambda: states() == wanted, "an answer of the other agent")
    finally:
        os.kill(agents[frozen].pid, signal.SIGCONT)
        for name in NAMES:
            stop_agent(name, os.environ)


def states() -> dict[str, str]:
    return {host.name: host.state for host in ask_agents(os.environ, 0.5).hosts}


@pytest.mark.parametrize("machine", ["this one", "another"])
def test_a_router_here_is_told_though_its_replicas_hosts_are_elsewhere(machine: str) -> None:
    record = KernelRecord(
        KernelId("k"), "replkernel", "one", {"key": "a"}, "", "/",
        machine=this_machine() if machine == "this one" else machine,
        router_pid=os.getpid(), router_started=start_time(os.getpid()) or 0, began=12.0,
    )  # fmt: skip
    write_record(data_dir(os.environ), record)
    told = StatusDocument(
        kernels=(KernelStatus("k"), KernelStatus("unknown"), KernelStatus("near", router_pid=7))
    )
    kernels = with_records(told, os.environ).kernels
    pids = [kernel.router_pid for kernel in kernels]
    assert pids == [os.getpid() if machine == "this one" else None, None, 7]
    assert [kernel.began for kernel in kernels] == [12.0, 0.0, 0.0]
