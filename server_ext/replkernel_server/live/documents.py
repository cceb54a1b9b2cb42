"""What pages are told: one snapshot, then changes. The page's TypeScript types are made from these structs.

Law: every list is bounded; times are Unix times, comparable with `now` of the same message.
"""

from __future__ import annotations

import msgspec

from replkernel.protocol.progress import Safety, State

KERNELS_MAX = 1_000
EXECUTIONS_MAX = 500
"""So many of the last executions of each kernel are told: as many as its router remembers."""
HOSTS_MAX = 2_000
GPUS_MAX = 64
QUEUE_MAX = 500
BOOKED_MAX = 50
LEASES_MAX = 2_000
PINS_MAX = 100
JOBS_MAX = 100
RESHAPES_MAX = 20
JOBS_OVER_MAX = 20
"""So many of the last ones that are over."""


class Pin(msgspec.Struct, frozen=True):
    """A variable that keeps the notebook on a replica, and why."""

    name: str
    reason: str


class Replica(msgspec.Struct, frozen=True):
    """One replica; `lag` is how many log entries it is behind, `pid` its process's number (0: none now)."""

    replica: str
    host: str
    role: str
    raft_role: str
    lag: int
    state_bytes: int
    pins: list[Pin]
    last_death: str
    pid: int


class Holding(msgspec.Struct, frozen=True):
    """GPUs that a kernel holds; they linger when `cell` (a message's id) is empty.

    `part` of the one GPU with `part_gb` GiB of its memory; 0: all of it.
    """

    lease: str
    host: str
    gpus: list[str]
    cell: str
    since: float
    part: float
    part_gb: float


class Move(msgspec.Struct, frozen=True):
    """A replica's move to a host; `trouble` says why it came to nothing, empty while it is under way."""

    host: str
    trouble: str


class Kernel(msgspec.Struct, frozen=True):
    """One replicated kernel. `answers` is false while its router does not.

    `served` tells whether this server has it, `routed` whether its router runs on this machine. `began` is
    the Unix time of its start (0: not known). Of one at rest `cwd` is the directory, `rested` since when it
    rests, `state_bytes` its size.
    """

    kernel_id: str
    state: str
    served: bool
    routed: bool
    cwd: str
    began: float
    rested: float
    state_bytes: int
    rest: str
    answers: bool
    executor: str
    execution_count: int
    default_gpus: int | float
    default_vram_gb: float
    scheduler_trouble: str
    checkpoint_trouble: str
    replicas: list[Replica]
    holdings: list[Holding]
    move: Move | None


class Execution(msgspec.Struct, frozen=True):
    """One run of a cell, with the time of each step that has come and was seen."""

    kernel_id: str
    msg_id: str
    cell_id: str
    code_digest: str
    state: State
    safety: Safety
    status: str
    ename: str
    count: int | None
    replica: str
    host: str
    gpus: list[str]
    part: float
    part_gb: float
    wanted: int | float
    model: str
    position: int | None
    estimate_s: float | None
    awaits: str
    told_at: float | None
    paused: bool
    trouble: str
    unaudited: list[str]
    accepted_at: float | None
    wished_at: float | None
    granted_at: float | None
    election_at: float | None
    sent_at: float | None
    began_at: float | None
    ended_at: float | None
    durable_at: float | None
    capture_s: float | None
    bind_s: float | None
    cost: float | None
    currency: str


class Gpu(msgspec.Struct, frozen=True):
    """One GPU; `lease` is empty where nobody holds it, or somebody of whom this user may see nothing."""

    uuid: str
    model: str
    memory_bytes: int
    memory_used_bytes: int | None
    utilisation: float | None
    state: str
    lease: str


class Host(msgspec.Struct, frozen=True):
    """One host with its GPUs; `why` is what one that is being drained waits for."""

    name: str
    state: str
    gpus: list[Gpu]
    why: str = ""


class Lease(msgspec.Struct, frozen=True):
    """One lease that this user may see: his own, an administrator's everybody's; `since` 0 is not told."""

    lease: str
    kernel_id: str
    host: str
    gpus: list[str]
    user: str
    notebook: str
    yours: bool
    since: float
    part: float
    part_gb: float


class Waiting(msgspec.Struct, frozen=True):
    """One request that waits, and that this user may see; of a `position` or `since` of 0 nothing is told."""

    request: str
    kernel_id: str
    gpus: int | float
    user: str
    notebook: str
    yours: bool
    position: int
    since: float
    estimate_s: float | None


class Booked(msgspec.Struct, frozen=True):
    """GPUs that are booked, for whom, from when until when (Unix times), and how many are ready."""

    gpus: int
    whom: str
    model: str
    begins: float
    ends: float
    ready: int | None
    """Null: it is not begun to set them aside."""


class Scheduler(msgspec.Struct, frozen=True):
    """Which scheduler was asked, and what is wrong with it, if anything; without a URL there is none.

    How many requests of all users wait, and the subscription ratio; null where it does not tell.
    """

    url: str
    trouble: str
    waiting: int | None
    subscription_ratio: float | None
    booked: list[Booked] = []


class Account(msgspec.Struct, frozen=True):
    """What this user has used, saved and may have; no quota is null.

    `gpu_hours` are those of leases that ended.
    """

    user: str
    gpu_hours: float
    saved_gpu_hours: float
    gpu_hours_month: float
    gpu_hours_month_quota: float | None
    gpus_held: int | float
    gpu_quota: int | None
    spent_month: float | None
    """With `currency`: where the scheduler has prices."""
    budget_month: float | None
    currency: str


class JobEnd(msgspec.Struct, frozen=True):
    """In how many seconds a job would be done with so many GPUs all along."""

    gpus: int
    seconds: float


class JobReshape(msgspec.Struct, frozen=True):
    """From the Unix time `at` on a job has had so many GPUs, or cores; `why` is a clause."""

    at: float
    gpus: int
    why: str


class Job(msgspec.Struct, frozen=True):
    """A job that this user may see; `gpus` is how many it runs with, `said` a clause about how it stands.

    `cpus`: it wants no GPU but so many cores, and its `reshapes` are of these.
    """

    job: str
    state: str
    user: str
    yours: bool
    host: str
    gpus: int
    shapes: list[int]
    epoch: float | None
    epochs: float | None
    loss: float | None
    ends_in_s: float | None
    ends_in: list[JobEnd]
    gpu_hours: float
    said: str
    reshapes: list[JobReshape]
    cpus: int
    cpu_hours: float


class Snapshot(msgspec.Struct, frozen=True, tag_field="type", tag="snapshot"):
    """Everything, as of `seq`."""

    seq: int
    now: float
    kernels: list[Kernel]
    executions: list[Execution]
    hosts: list[Host]
    leases: list[Lease]
    queue: list[Waiting]
    scheduler: Scheduler
    account: Account | None
    jobs: list[Job] = []


class Gone(msgspec.Struct, frozen=True):
    """The names of what is no more; executions by their messages' ids."""

    kernels: list[str] = []
    executions: list[str] = []
    hosts: list[str] = []


class Changes(msgspec.Struct, frozen=True, tag_field="type", tag="changes", omit_defaults=True):
    """What became otherwise between `seq` - 1 and `seq`; a list that is null stays as it was."""

    seq: int
    now: float
    kernels: list[Kernel] = []
    executions: list[Execution] = []
    hosts: list[Host] = []
    gone: Gone = Gone()
    leases: list[Lease] | None = None
    queue: list[Waiting] | None = None
    scheduler: Scheduler | None = None
    account: Account | None = None
    jobs: list[Job] | None = None


Message = Snapshot | Changes
