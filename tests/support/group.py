"""The replicas of the one kernel of this environment, as its agents tell of them."""

from __future__ import annotations

import os

import psutil

from replkernel.client.inquiry import ask_agents
from replkernel.protocol.status import ReplicaStatus
from tests.support.live import AGENT_S


def replicas() -> dict[str, ReplicaStatus]:
    """Return what the agents tell of each replica, by name."""
    kernels = ask_agents(os.environ, AGENT_S).kernels
    return {replica.replica: replica for known in kernels for replica in known.replicas}


def standing() -> dict[str, str]:
    """Return the hosts of the replicas whose processes answer, by name."""
    return {
        name: replica.host
        for name, replica in replicas().items()
        if replica.kernel_pid
        and psutil.pid_exists(replica.kernel_pid)
        and replica.role in ("executor", "standby")
    }
