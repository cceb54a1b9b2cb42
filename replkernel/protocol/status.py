"""The status document: what `replkernel status --json`, `%replkernel status` and the server extension show.

Each agent answers for its own host; `merge` makes one document of several. Pure: no sockets, no files.
Law: a kernel appears once, with all its replicas, whichever agents told of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replkernel.records import Pin, ReplicaId, Seq


class Section(msgspec.Struct, frozen=True):
    """The base of the document's parts. Unknown fields of newer agents are skipped, absent ones defaulted."""


class GpuProcess(Section, frozen=True):
    """A kernel's process on a GPU, or one that it has started; `unleased`: the kernel has no lease there."""

    pid: int = 0
    memory_bytes: int = 0
    kernel_id: str = ""
    unleased: bool = False


class GpuStatus(Section, frozen=True):
    """One GPU of a host."""

    uuid: str = ""
    name: str = ""
    memory_bytes: int = 0
    fake: bool = False
    utilisation: float | None = None
    """How much it computes, 0 to 1; None where nobody tells."""
    memory_used_bytes: int | None = None
    state: str = ""
    """As the scheduler has it: `idle`, `active`, `lingering`, `job`, `reclaiming`; or empty, not asked."""
    lease: str = ""
    """The lease that holds it, if the asker may see whose that is."""
    processes: tuple[GpuProcess, ...] = ()
    """One's own kernels' processes that use it."""


class HostStatus(Section, frozen=True):
    """One host: `state` is `up` while its agent answers.

    `why` is what one that is being drained waits for, in a clause, as the scheduler tells. `unlimited` is why
    cells may take more cores and memory there than they asked for; empty: they may not, None: nobody tells.
    """

    name: str
    state: str = "up"
    gpus: tuple[GpuStatus, ...] = ()
    why: str = ""
    unlimited: str | None = None


class RaftSection(Section, frozen=True):
    """A replica's place in its kernel's Raft group."""

    role: str = ""
    term: int = 0
    commit: int = 0
    applied: int = 0


class PinnedSection(Section, frozen=True):
    """A variable that cannot leave a replica, and why."""

    name: str
    type_name: str = ""
    reason: str = ""


class UnfaithfulSection(Section, frozen=True):
    """A variable that this replica rebuilt otherwise than captured: `replica` has the true one."""

    name: str
    type_name: str = ""
    replica: str = ""
    seq: int = 0
    reason: str = ""
    cell: int = 0
    path: str = ""

    def pin(self) -> Pin:
        """Return the pin that the replica told."""
        replica, seq = ReplicaId(self.replica), Seq(self.seq)
        return Pin(self.name, self.type_name, replica, seq, self.path, self.reason, self.cell)


class ReplicaStatus(Section, frozen=True):
    """One replica: its processes, its Raft member, the state that it holds."""

    replica: str
    host: str = ""
    role: str = ""
    agent_pid: int = 0
    kernel_pid: int | None = None
    raft: RaftSection | None = None
    components: int = 0
    state_bytes: int = 0
    pinned: tuple[PinnedSection, ...] = ()
    unproven: int = 0
    """How many components it rebuilt without a proof that they are what was captured."""
    unfaithful: tuple[UnfaithfulSection, ...] = ()
    last_death: str = ""
    """Why its last process died, as the cell's error said it."""


class CheckpointSection(Section, frozen=True):
    """The last checkpoint of a kernel: its name in the store, and the execution count that it stands for."""

    name: str = ""
    execution_count: int = 0
    why: str = ""
    """Why a newer one could not be written; empty when none was refused."""


class KernelStatus(Section, frozen=True):
    """One logical kernel with its replicas."""

    kernel_id: str
    state: str = ""
    execution_count: int = 0
    router_pid: int | None = None
    replicas: tuple[ReplicaStatus, ...] = ()
    last_checkpoint: CheckpointSection | None = None
    cwd: str = ""
    """The directory of a kernel at rest."""
    began: float = 0.0
    """The Unix time of its start; 0: not known."""
    rested: float = 0.0
    """Since when one at rest has rested."""
    state_bytes: int = 0
    """How much state one at rest has."""


class LeaseStatus(Section, frozen=True):
    """One GPU lease in force: whose, whether that is the asker, and the path of the kernel's notebook.

    `held_s` is None where the scheduler does not tell, as with the other times.
    """

    lease: str
    kernel_id: str = ""
    host: str = ""
    gpus: tuple[str, ...] = ()
    fence: int = 0
    user: str = ""
    notebook: str = ""
    yours: bool = True
    held_s: float | None = None
    part: float = 0.0
    """With `part_gb` GiB of its memory it is of this part of the one GPU; 0: of all of it."""
    part_gb: float = 0.0


class WaitingStatus(Section, frozen=True):
    """One cell that waits for GPUs, and for what, in a clause; empty: the scheduler does not tell.

    Its place (0: not told), for how long it has waited, and a guess how long it still does.
    """

    request: str
    kernel_id: str = ""
    gpus: int | float = 0
    """A fraction is a part of one."""
    why: str = ""
    user: str = ""
    notebook: str = ""
    yours: bool = True
    position: int = 0
    waited_s: float | None = None
    estimate_s: float | None = None


class ComingStatus(Section, frozen=True):
    """A host that an engine is asked for: what the engine calls that, and what it waits for."""

    coming: str
    why: str = ""


class BookingStatus(Section, frozen=True):
    """GPUs that are booked, for whom; `phase` is planned, gathering or open, times are seconds from now.

    Of its GPUs so many as `ready` says are set aside, or held by its members.
    """

    booking: str
    gpus: int
    whom: str
    begins_in_s: float
    ends_in_s: float
    phase: str
    ready: int
    gpu_model: str = ""


class SchedulerStatus(Section, frozen=True):
    """Which scheduler was asked, and what is wrong with it, if anything.

    `waiting` are all users' requests; the subscription ratio is the GPUs that kernels subscribe to for each
    GPU and replica. None: it does not tell. `refused`: it does not take the token.
    """

    url: str
    trouble: str = ""
    waiting: int | None = None
    subscription_ratio: float | None = None
    refused: bool = False


class StatusDocument(Section, frozen=True):
    """Hosts, kernels and leases; agents know nothing of leases, who waits, hosts that come, the scheduler."""

    hosts: tuple[HostStatus, ...] = ()
    kernels: tuple[KernelStatus, ...] = ()
    leases: tuple[LeaseStatus, ...] = ()
    waiting: tuple[WaitingStatus, ...] = ()
    coming: tuple[ComingStatus, ...] = ()
    bookings: tuple[BookingStatus, ...] = ()
    scheduler: SchedulerStatus | None = None


_decoder = msgspec.json.Decoder(StatusDocument)


def read_document(document: bytes) -> StatusDocument:
    """Parse an agent's document; raises msgspec.ValidationError when it is none."""
    return _decoder.decode(document)


def of_all(own: StatusDocument, others: Iterable[object]) -> StatusDocument:
    """Join a host's own document with those of others, as builtins; raises msgspec.ValidationError."""
    told = [msgspec.convert(other, StatusDocument) for other in others]
    return merge([own, *told]) if told else own


def to_json(document: StatusDocument) -> bytes:
    """Write the document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def merge(documents: Iterable[StatusDocument]) -> StatusDocument:
    """Make one document of several hosts' documents: hosts, kernels, replicas and leases in order of name."""
    hosts: dict[str, HostStatus] = {}
    kernels: dict[str, KernelStatus] = {}
    leases: dict[str, LeaseStatus] = {}
    for document in documents:
        hosts.update((host.name, host) for host in document.hosts)
        leases.update((lease.lease, lease) for lease in document.leases)
        for kernel in document.kernels:
            known = kernels.get(kernel.kernel_id)
            kernels[kernel.kernel_id] = kernel if known is None else _merge_kernel(known, kernel)
    return StatusDocument(
        hosts=tuple(hosts[name] for name in sorted(hosts)),
        kernels=tuple(_in_order(kernels[kernel_id]) for kernel_id in sorted(kernels)),
        leases=tuple(leases[lease] for lease in sorted(leases)),
    )


def _merge_kernel(one: KernelStatus, other: KernelStatus) -> KernelStatus:
    """Join what two agents say of one kernel; who has seen more executions tells the state."""
    ahead, behind = (other, one) if other.execution_count > one.execution_count else (one, other)
    return msgspec.structs.replace(
        ahead,
        router_pid=ahead.router_pid or behind.router_pid,
        replicas=one.replicas + other.replicas,
        last_checkpoint=_newer(ahead.last_checkpoint, behind.last_checkpoint),
    )


def _newer(one: CheckpointSection | None, other: CheckpointSection | None) -> CheckpointSection | None:
    """Return the newer checkpoint: the leader alone writes them, and their names are in order."""
    told = [checkpoint for checkpoint in (one, other) if checkpoint is not None]
    return max(told, key=lambda checkpoint: checkpoint.name, default=None)


def _in_order(kernel: KernelStatus) -> KernelStatus:
    by_name = {replica.replica: replica for replica in kernel.replicas}
    ordered = sorted(by_name, key=lambda name: (len(name), name))
    return msgspec.structs.replace(kernel, replicas=tuple(by_name[name] for name in ordered))
