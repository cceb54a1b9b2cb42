"""What an agent tells of its host: the status document's parts, read from keepers. Changes nothing."""

from __future__ import annotations

import msgspec

from replkernel.agent.core.process_life import Phase
from replkernel.agent.io.host_kernel import HostKernel
from replkernel.agent.io.keeper_driver import KeeperDriver
from replkernel.protocol.status import (
    CheckpointSection,
    KernelStatus,
    PinnedSection,
    RaftSection,
    ReplicaStatus,
    UnfaithfulSection,
)


def describe_kernel(kernel: HostKernel, agent_pid: int) -> KernelStatus:
    """Return the status of a kernel's part on this host."""
    summaries = [driver.group.summary() for driver in kernel.drivers.values()]
    return KernelStatus(
        kernel_id=kernel.spec.kernel_id,
        state=_state(kernel, any(summary.busy for summary in summaries)),
        execution_count=max((summary.whole_count for summary in summaries), default=0),
        router_pid=kernel.router_pid or None,
        replicas=tuple(_describe_replica(kernel.drivers[name], agent_pid) for name in sorted(kernel.drivers)),
        last_checkpoint=_describe_checkpoint(kernel),
    )


def with_others(described: KernelStatus, kernel: HostKernel) -> KernelStatus:
    """Add the replicas of other hosts, as far as the log names them: that they are members, and where."""
    summaries = [driver.group.summary() for driver in kernel.drivers.values()]
    latest = max(summaries, key=lambda summary: summary.applied, default=None)
    if latest is None:
        return described
    others = tuple(
        ReplicaStatus(replica, host, "executor" if latest.executor == replica else "elsewhere")
        for replica, host in latest.members
        if replica not in kernel.drivers
    )
    return msgspec.structs.replace(described, replicas=described.replicas + others)


def _describe_checkpoint(kernel: HostKernel) -> CheckpointSection | None:
    last, why = kernel.checkpoints.last, kernel.checkpoints.why
    if last is None:
        return CheckpointSection(why=why) if why else None
    return CheckpointSection(last.name, last.execution_count, why)


def _state(kernel: HostKernel, busy: bool) -> str:
    phases = {driver.core.life.phase for driver in kernel.drivers.values()}
    if kernel.ending:
        return "ending"
    if kernel.custody.orphaned:
        return "orphaned"
    if phases and phases <= {Phase.GIVEN_UP}:
        return "dead"
    if Phase.LIVE not in phases:
        return "idle" if phases and phases <= {Phase.DISMISSED, Phase.DORMANT} else "starting"
    running = any(driver.core.running for driver in kernel.drivers.values())
    return "busy" if busy or running else "idle"


def _describe_replica(driver: KeeperDriver, agent_pid: int) -> ReplicaStatus:
    core, summary, raft = driver.core, driver.group.summary(), driver.group.raft_status()
    held = core.held
    return ReplicaStatus(
        replica=core.replica,
        host=core.host,
        role=_role(driver, summary.executor == core.replica),
        agent_pid=agent_pid,
        kernel_pid=core.life.pid or None,
        raft=None if raft is None else RaftSection(raft.role, raft.term, raft.commit, raft.applied),
        components=held.components if held.seq else summary.components,
        state_bytes=held.state_bytes if held.seq else summary.state_bytes,
        pinned=tuple(
            PinnedSection(pin.name, pin.type_name, pin.reason)
            for pin in summary.pins
            if pin.replica == core.replica
        ),
        unproven=held.unproven,
        unfaithful=tuple(
            UnfaithfulSection(pin.name, pin.type_name, pin.replica, pin.seq, pin.reason, pin.cell, pin.path)
            for pin in held.unfaithful
        ),
        last_death=driver.last_death,
    )


def _role(driver: KeeperDriver, last_executor: bool) -> str:
    phase = driver.core.life.phase
    if driver.core.life.is_dormant:
        return str(Phase.DORMANT.value)
    if phase is Phase.DISMISSED:  # It is recalled already.
        return str(Phase.STARTING.value)
    if phase is not Phase.LIVE:
        return str(phase.value)
    return "executor" if driver.core.running or last_executor else "standby"
