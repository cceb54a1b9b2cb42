"""`replkernel status`: the merged status document as JSON, or as a table for people."""

from __future__ import annotations

import os
from collections.abc import Iterable

from replkernel.inquiry import ask_agents
from replkernel.status import KernelStatus, ReplicaStatus, StatusDocument, to_json

COLUMNS = ("REPLICA", "HOST", "ROLE", "RAFT", "TERM", "APPLIED", "PID", "STATE", "PINNED")


def run_status(*, as_json: bool) -> int:
    """Print the status of every agent of this user; the exit code is 0 even if there is none."""
    document = ask_agents(os.environ)
    if as_json:
        print(to_json(document).decode())
    else:
        print("\n".join(describe(document)))
    return 0


def describe(document: StatusDocument) -> list[str]:
    """Return the document as lines of text."""
    if not document.hosts and not document.kernels:
        return ["No host agent is running: the first kernel starts one."]
    lines = [f"host {host.name}: {host.state}, {len(host.gpus)} GPUs" for host in document.hosts]
    if not document.kernels:
        lines.append("No replicated kernel is running.")
    for kernel in document.kernels:
        lines += ["", *_describe_kernel(kernel)]
    if document.leases:
        lines.append("")
    for lease in document.leases:
        gpus = ", ".join(lease.gpus)
        lines.append(
            f"lease {lease.lease}: {gpus} of {lease.host} for kernel {lease.kernel_id}, fence {lease.fence}"
        )
    return lines


def _describe_kernel(kernel: KernelStatus) -> list[str]:
    router = f", router {kernel.router_pid}" if kernel.router_pid else ""
    lost = [lost for replica in kernel.replicas for lost in replica.unfaithful]
    rows: list[tuple[str, ...]] = [COLUMNS]
    for replica in kernel.replicas:
        rows.append(_row(replica, [pin.name for pin in lost if pin.replica == replica.replica]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    table = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]
    if kernel.state == "hibernated":
        return [f"kernel {kernel.kernel_id}: hibernated{router}"]
    head = f"kernel {kernel.kernel_id}: {kernel.state}, {kernel.execution_count} executions{router}"
    return [head, *(line.rstrip() for line in table), *_remarks(kernel)]


def _remarks(kernel: KernelStatus) -> list[str]:
    """Return what is worth a line of its own: the last checkpoint, and why processes died."""
    found: list[str] = []
    checkpoint = kernel.last_checkpoint
    if checkpoint is not None and checkpoint.name:
        found.append(f"  last checkpoint: after cell [{checkpoint.execution_count}]")
    if checkpoint is not None and checkpoint.why:
        found.append(f"  no newer checkpoint: {checkpoint.why}")
    found += [
        f"  {replica.replica} was started anew: {replica.last_death}"
        for replica in kernel.replicas
        if replica.last_death
    ]
    return found


def _row(replica: ReplicaStatus, true_here: Iterable[str]) -> tuple[str, ...]:
    """Return one replica's row; `true_here` are variables that others rebuilt otherwise."""
    raft = replica.raft
    unproven = f", {replica.unproven} not proven" if replica.unproven else ""
    pinned = dict.fromkeys([*(pin.name for pin in replica.pinned), *true_here])
    return (
        replica.replica,
        replica.host,
        replica.role,
        raft.role if raft else "-",
        str(raft.term) if raft else "-",
        f"{raft.applied}/{raft.commit}" if raft else "-",
        str(replica.kernel_pid or "-"),
        f"{replica.components} components, {format_bytes(replica.state_bytes)}{unproven}",
        ", ".join(pinned) or "-",
    )


def format_bytes(size: int) -> str:
    """Write a number of bytes as people read it."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
