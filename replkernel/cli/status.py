"""`replkernel status`: the merged status document as JSON, or as a table for people."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence

from replkernel.cli.booking import describe as describe_bookings
from replkernel.client.inquiry import ask_agents
from replkernel.leasing.request import gpus_in_words, seconds_in_words
from replkernel.leasing.standing import ask_scheduler, join
from replkernel.protocol.status import (
    GpuStatus,
    HostStatus,
    KernelStatus,
    LeaseStatus,
    ReplicaStatus,
    StatusDocument,
    WaitingStatus,
    to_json,
)

COLUMNS = ("REPLICA", "HOST", "ROLE", "RAFT", "TERM", "APPLIED", "PID", "STATE", "PINNED")
GPU_COLUMNS = ("GPU", "MODEL", "MEMORY", "USED", "BUSY", "LEASE")
NARROW_CHARS = 56
"""What half a window has room for."""
LEASE_WORDS = {
    "idle": "free",
    "active": "leased",
    "lingering": "kept between cells",
    "job": "used by a job",
    "reclaiming": "asked back",
}


def run_status(*, as_json: bool) -> int:
    """Print the status of every agent of this user and of the scheduler; 0 even if there is none."""
    document = join(ask_agents(os.environ), *ask_scheduler(os.environ))
    if as_json:
        print(to_json(document).decode())
    else:
        print("\n".join(describe(document)))
    return 0


def describe(document: StatusDocument) -> list[str]:
    """Return the document as lines of text."""
    if not document.hosts and not document.kernels:
        return ["No host agent is running: the first kernel starts one.", *_describe_scheduler(document)]
    holders = {lease.lease: whose_gpus(lease) for lease in document.leases}
    lines = [line for host in document.hosts for line in _describe_host(host, holders)]
    if not document.kernels:
        own = "of yours runs on these hosts" if document.leases else "is running"
        lines.append(f"No replicated kernel {own}.")
    for kernel in document.kernels:
        lines += ["", *_describe_kernel(kernel)]
    about_leases = _describe_scheduler(document)
    return [*lines, "", *about_leases] if about_leases else lines


def describe_narrow(document: StatusDocument) -> list[str]:
    """Return the document as a notebook shows it: kernels first, a fact a line, no upkeep of hosts."""
    holders = {lease.lease: whose_gpus(lease) for lease in document.leases}
    lines: list[str] = []
    for kernel in document.kernels:
        lines += [*_narrow_kernel(kernel), ""]
    for host in document.hosts:
        lines.append(_head(host))
        for gpu in host.gpus:
            uuid, model, memory, used, busy, lease = _gpu_row(gpu, holders)
            lines.append(f"  {uuid}" + ("" if lease == "-" else f": {lease}"))
            used = "" if used == "-" else f", {used} used"
            lines.append(f"    {model}, {memory}{used}" + ("" if busy == "-" else f", {busy} busy"))
        lines += _unleased(host)
    return [part for line in [*lines, *_describe_scheduler(document)] for part in _wrapped(line)]


def _narrow_kernel(kernel: KernelStatus) -> list[str]:
    router = f", router {kernel.router_pid}" if kernel.router_pid else ""
    if kernel.state == "hibernated":
        return [f"kernel {kernel.kernel_id}:", f"  hibernated{router}"]
    lines = [f"kernel {kernel.kernel_id}:", f"  {kernel.state}, {kernel.execution_count} executions{router}"]
    for replica, row in zip(kernel.replicas, _rows(kernel), strict=True):
        name, host, role, raft, term, applied, pid, state, pinned = row
        lines.append(f"  {name} {role} on {host}" + ("" if pid == "-" else f", process {pid}"))
        lines += [f"    {state}"] if state != "-" else []
        lines += [f"    Raft {raft} of term {term}, applied {applied}"] if replica.raft else []
        lines += [f"    pinned: {pinned}"] if pinned != "-" else []
    return [*lines, *_remarks(kernel)]


def _wrapped(line: str) -> list[str]:
    """Break a line between words."""
    deeper = " " * (len(line) - len(line.lstrip()) + 4)
    found = textwrap.wrap(
        line, NARROW_CHARS, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
    )
    return found or [""]


def _describe_scheduler(document: StatusDocument) -> list[str]:
    """Return what is said of the scheduler, the leases in force and the cells that wait."""
    lines: list[str] = []
    scheduler = document.scheduler
    if scheduler is not None:
        leases, waiting = len(document.leases), len(document.waiting)
        held = f"{leases} lease{'' if leases == 1 else 's'}"
        state = scheduler.trouble or f"{held}, {waiting} cell{'' if waiting == 1 else 's'} waiting"
        lines.append(f"scheduler {scheduler.url}: {state}")
    for lease in document.leases:
        where = f"{_part(lease)}{', '.join(lease.gpus)} of {lease.host}"
        lines.append(f"lease {lease.lease}: {where} for {_in_full(lease)}, fence {lease.fence}")
    lines += _others(document)
    for wish in document.waiting:
        gpus = gpus_in_words(wish.gpus)
        why = f" ({wish.why})" if wish.why else ""
        about = "" if wish.estimate_s is None else f", about {seconds_in_words(wish.estimate_s)}"
        lines.append(f"waiting: a cell of {_in_full(wish)} for {gpus}{about}{why}")
    lines += [f"booked: {line}" for line in describe_bookings(document.bookings, time.time())]
    lines += [f"a host is asked for, {one.coming}: {one.why or 'on its way'}" for one in document.coming]
    return lines


def _part(lease: LeaseStatus) -> str:
    """Write which part of a GPU a lease has: ``½ GPU with 8 GiB, ``."""
    memory = f" with {lease.part_gb:g} GiB" if lease.part_gb else ""
    return f"{gpus_in_words(lease.part)}{memory}, " if lease.part else ""


def _others(document: StatusDocument) -> list[str]:
    """Say how many GPUs others hold, of whom nothing may be seen."""
    gpus = [gpu for host in document.hosts for gpu in host.gpus if not gpu.lease]
    count = sum(gpu.state in LEASE_WORDS and gpu.state != "idle" for gpu in gpus)
    return [f"other users hold {count} GPU{'' if count == 1 else 's'}"] if count else []


def whose_gpus(one: LeaseStatus | WaitingStatus) -> str:
    """Name who holds GPUs or waits: the notebook, or its kernel, and the user where that is another."""
    path = one.notebook.replace("\\", "/").rstrip("/")
    name = path.rpartition("/")[2] or f"kernel {one.kernel_id}"
    return name if one.yours or not one.user else f"{name} of {one.user}"


def _in_full(one: LeaseStatus | WaitingStatus) -> str:
    """Name who holds GPUs or waits with the whole path and the kernel's id."""
    user = "" if one.yours or not one.user else f" of {one.user}"
    kernel = f"kernel {one.kernel_id}"
    return f"{one.notebook}{user} ({kernel})" if one.notebook else f"{kernel}{user}"


def _describe_host(host: HostStatus, holders: Mapping[str, str]) -> list[str]:
    """Return a host's line, and a table of its GPUs."""
    gpus = table([GPU_COLUMNS, *(_gpu_row(gpu, holders) for gpu in host.gpus)]) if host.gpus else []
    limits = [f"  cores and memory are not limited: {host.unlimited}"] if host.unlimited else []
    return [_head(host), *gpus, *_unleased(host), *limits]


def _head(host: HostStatus) -> str:
    why = f" ({host.why})" if host.why else ""
    count = len(host.gpus)
    return f"host {host.name}: {host.state}{why}, {count} GPU{'' if count == 1 else 's'}"


def _unleased(host: HostStatus) -> list[str]:
    """Say which processes have memory on GPUs without a lease."""
    return [
        f"  without a lease: process {each.pid} of kernel {each.kernel_id} has "
        f"{format_bytes(each.memory_bytes)} on {gpu.uuid}"
        for gpu in host.gpus
        for each in gpu.processes
        if each.unleased
    ]


def _gpu_row(gpu: GpuStatus, holders: Mapping[str, str]) -> tuple[str, ...]:
    holder = holders.get(gpu.lease, "")
    lease = LEASE_WORDS.get(gpu.state, gpu.state) or ("leased" if gpu.lease else "-")
    if not gpu.lease and gpu.state in LEASE_WORDS and gpu.state != "idle":
        holder = "another user"
    return (
        gpu.uuid,
        gpu.name or "-",
        format_bytes(gpu.memory_bytes),
        "-" if gpu.memory_used_bytes is None else format_bytes(gpu.memory_used_bytes),
        "-" if gpu.utilisation is None else f"{gpu.utilisation:.0%}",
        f"{lease}: {holder}" if holder else lease,
    )


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as indented lines with columns one below the other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _describe_kernel(kernel: KernelStatus) -> list[str]:
    router = f", router {kernel.router_pid}" if kernel.router_pid else ""
    if kernel.state == "hibernated":
        return [f"kernel {kernel.kernel_id}: hibernated{router}"]
    head = f"kernel {kernel.kernel_id}: {kernel.state}, {kernel.execution_count} executions{router}"
    return [head, *table([COLUMNS, *_rows(kernel)]), *_remarks(kernel)]


def _rows(kernel: KernelStatus) -> list[tuple[str, ...]]:
    lost = [lost for replica in kernel.replicas for lost in replica.unfaithful]
    return [
        _row(replica, [pin.name for pin in lost if pin.replica == replica.replica])
        for replica in kernel.replicas
    ]


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
    raft, asked = replica.raft, bool(replica.agent_pid or replica.components)
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
        f"{replica.components} components, {format_bytes(replica.state_bytes)}{unproven}" if asked else "-",
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
