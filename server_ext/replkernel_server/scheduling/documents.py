"""What the scheduler's REST takes and gives: one struct a document, every size bounded.

Law: this is the boundary; what passes here fits the core's types. Seconds are durations, never times of a
clock of ours; sizes (`…_gb`) are counted in GiB.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from replkernel_scheduler.gangs.desk import HOSTS_MAX
from replkernel_scheduler.harvest.leasing import CORES_MAX, MEMORY_GB_MAX
from replkernel_scheduler.harvest.types import EXPECTED_S

from replkernel_server.errors import BadRequest
from replkernel_server.scheduling.past import Point

ID_CHARS_MAX = 200
NAMES_MAX = 64
GPUS_MAX = 64
SIZE_MAX = 1_000_000
NUMBER_MAX = 2**63 - 1
S_MAX = 1e9
REPLICAS_MAX = 9
JOB_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$(?!\n)"
JOB_WORD_MAX = 8_192
JOB_WORDS_MAX = 256

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]+$(?!\n)"
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARS_MAX, pattern=_PRINTABLE)]
Size = Annotated[float, msgspec.Meta(ge=0, le=SIZE_MAX)]
FenceNumber = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=S_MAX)]


class GpuBody(msgspec.Struct, forbid_unknown_fields=True):
    """One GPU that a host offers."""

    uuid: Id
    model: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)] = ""
    memory_gb: Size = 0.0


class HostBody(msgspec.Struct, forbid_unknown_fields=True):
    """A host offers its GPUs, by UUID alone or with what is known of them."""

    name: Id
    gpus: Annotated[list[Id | GpuBody], msgspec.Meta(max_length=GPUS_MAX)]
    cpu: Size = 0.0
    memory_gb: Size = 0.0


class LeaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """A kernel asks for GPUs of one host; `hosts` are those that may serve it (none: any).

    `expected_s`: how long it thinks that it will hold them (0: unknown), for policies that look ahead.
    """

    request: Id
    kernel_id: Id
    gpus: Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)]
    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=S_MAX)]
    hosts: Annotated[list[Id], msgspec.Meta(max_length=NAMES_MAX)] = []
    gpu_model: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)] = ""
    vram_gb: Size = 0.0
    cpu: Size = 0.0
    memory_gb: Size = 0.0
    expected_s: Seconds = 0.0


class FenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """The holder proves itself by its fence."""

    fence: FenceNumber


class LingerBody(msgspec.Struct, forbid_unknown_fields=True):
    """The cell is over; `busy_s` is how long the GPUs computed (none: all the time)."""

    fence: FenceNumber
    busy_s: Seconds | None = None


class JobBody(msgspec.Struct, forbid_unknown_fields=True):
    """A command to run in a directory as a job; `gpus` are the numbers that it can run with.

    `seal` shows the agents of its user that the command is his; `replkernel job run` makes it. `epochs`: how
    many it has in all, for the guess of its end. `cpus`: it runs on so many cores of a host instead, with
    `memory_gb` GiB of its memory, and is thought to take `expected_s`. `hosts`: its GPUs are on so many, with
    as many on each.
    """

    job: Annotated[str, msgspec.Meta(pattern=JOB_NAME)]
    command: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=JOB_WORD_MAX)]],
        msgspec.Meta(min_length=1, max_length=JOB_WORDS_MAX),
    ]
    directory: Annotated[str, msgspec.Meta(min_length=1, max_length=JOB_WORD_MAX)]
    seal: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)]
    gpus: Annotated[
        list[Annotated[int, msgspec.Meta(ge=1, le=GPUS_MAX)]],
        msgspec.Meta(max_length=GPUS_MAX),
    ] = []
    gpu_model: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)] = ""
    vram_gb: Size = 0.0
    epochs: Annotated[float, msgspec.Meta(gt=0, le=S_MAX)] | None = None
    cpus: Annotated[int, msgspec.Meta(ge=0, le=CORES_MAX)] = 0
    memory_gb: Annotated[float, msgspec.Meta(ge=0, le=MEMORY_GB_MAX)] = 0.0
    expected_s: Annotated[float, msgspec.Meta(gt=0, le=S_MAX)] = EXPECTED_S
    hosts: Annotated[int, msgspec.Meta(ge=1, le=HOSTS_MAX)] = 1


class Empty(msgspec.Struct):
    """Nothing more to say."""


class Why(msgspec.Struct):
    """What is wrong, in one sentence."""

    why: str


class Ended(msgspec.Struct):
    """Why a lease is over."""

    ended: str


class LeaseAnswer(msgspec.Struct):
    """A lease, with the seconds that are left of it.

    `user` is whose it is by the token, `yours` whether that is who asks; `notebook` is the path that the
    kernel's router tells, empty where none does. `held_s`: how long it has been held.
    """

    lease: str
    request: str
    kernel_id: str
    host: str
    gpus: tuple[str, ...]
    fence: int
    ttl_s: float
    left_s: float
    user: str = ""
    notebook: str = ""
    yours: bool = True
    held_s: float = 0.0
    part: float = 0.0
    """With `part_gb` GiB of its memory it is of this part of the one GPU; 0: of all of it."""
    part_gb: float = 0.0


class Granted(msgspec.Struct):
    """A lease in force."""

    lease: LeaseAnswer


class Wanted(msgspec.Struct):
    """Somebody waits for a lingering lease's GPUs: its time does not begin anew.

    Move the state off and give it back within `wanted_within_s`; then it is over (410).
    """

    why: str
    wanted_within_s: float


class Lingering(msgspec.Struct):
    """The lease lingers; `wanted_within_s` says by when it is wanted back already, null if nobody waits."""

    wanted_within_s: float | None = None


class Queued(msgspec.Struct):
    """A request waits; position 1 is served next. Ask again with the same id to learn how it stands."""

    position: int
    estimate_s: float | None


class GpuAnswer(msgspec.Struct):
    """A GPU, and the lease that holds it (null for another user's: `state` tells).

    `utilisation` (0 to 1) and `memory_used_gb` are what its agent told last, null if none has; so many
    kernels as `unleased` says have processes there without a lease.
    """

    uuid: str
    lease: str | None
    model: str = ""
    memory_gb: float = 0.0
    state: str = "idle"
    utilisation: float | None = None
    memory_used_gb: float | None = None
    unleased: int = 0


class HostAnswer(msgspec.Struct):
    """A host with its GPUs; `why` is what one that is being drained waits for, in a clause."""

    name: str
    state: str
    gpus: list[GpuAnswer]
    why: str = ""


class WaitingAnswer(msgspec.Struct):
    """A request that waits, and for what, in a clause; `user`, `notebook`, `yours` as with a lease.

    Of `gpus` a fraction is a part of one.

    `position` 1 is served next; `estimate_s` guesses how long it still waits, null where nothing is known.
    """

    request: str
    kernel_id: str
    gpus: int | float
    why: str = ""
    user: str = ""
    notebook: str = ""
    yours: bool = True
    position: int = 0
    waited_s: float = 0.0
    estimate_s: float | None = None


class ComingAnswer(msgspec.Struct):
    """A host that an engine is asked for; `coming` is what it calls that, `why` what it waits for."""

    coming: str
    why: str


class BookingBody(msgspec.Struct, forbid_unknown_fields=True):
    """So many GPUs from `in_s` seconds on, for `lasts_s` seconds: for users, or for whoever is of a group."""

    gpus: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    in_s: Seconds
    lasts_s: Seconds
    users: Annotated[list[Id], msgspec.Meta(max_length=NAMES_MAX)] = []
    group: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)] = ""
    gpu_model: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)] = ""


class BookingAnswer(msgspec.Struct):
    """What is booked, and for whom; `phase` is planned, gathering or open.

    Times are seconds from now. Of its GPUs so many as `ready` says are set aside, or held by its members.
    """

    booking: str
    gpus: int
    whom: str
    begins_in_s: float
    ends_in_s: float
    phase: str
    ready: int
    gpu_model: str = ""
    by: str = ""


class Bookings(msgspec.Struct):
    """What is booked, the next one first."""

    bookings: list[BookingAnswer]


class Status(msgspec.Struct):
    """Hosts with their GPUs and those on their way; one's own leases and requests that wait (an admin: all).

    `counts` is the whole cluster: who waits now, all else as of a few seconds ago; nothing before that.
    """

    hosts: list[HostAnswer]
    leases: list[LeaseAnswer]
    queue: list[WaitingAnswer]
    counts: list[Point] = []
    coming: list[ComingAnswer] = []
    bookings: list[BookingAnswer] = []


class MoveBody(msgspec.Struct, forbid_unknown_fields=True):
    """The host that one of a kernel's replicas is wanted on."""

    host: Id


class Moving(msgspec.Struct):
    """A replica moves from `source` to `host`."""

    migration: str
    source: str
    host: str


class KernelAnswer(msgspec.Struct):
    """A kernel: the hosts that it is on, GPUs a cell, whether its router is connected, what it has.

    `moving_to` is the host that one of its replicas moves to, `not_moved` why the last one did not;
    `notebook` is the path that its router tells.
    """

    kernel_id: str
    user: str
    hosts: list[str]
    gpus: int
    connected: bool
    leases: list[str]
    requests: list[str]
    moving_to: str = ""
    not_moved: str = ""
    notebook: str = ""


class HostsForKernel(msgspec.Struct):
    """Hosts for the replicas of a new kernel that places itself, the best first."""

    hosts: list[str]


class PlacementBody(msgspec.Struct, forbid_unknown_fields=True):
    """What each replica of a new kernel subscribes to, and the hosts that its router does not reach.

    `memory_gb` is the host's memory, `vram_gb` each GPU's; both are in GiB.
    """

    gpus: Annotated[int, msgspec.Meta(ge=0, le=GPUS_MAX)] = 0
    replicas: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)] = 3
    gpu_model: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)] = ""
    vram_gb: Size = 0.0
    cpu: Size = 0.0
    memory_gb: Size = 0.0
    without: Annotated[list[Id], msgspec.Meta(max_length=NAMES_MAX)] = []


class KernelPlacement(msgspec.Struct):
    """The hosts on which a kernel's replicas are to begin, or are."""

    hosts: list[str]


class KernelAwaits(msgspec.Struct):
    """A kernel waits for `missing` more hosts with room; `coming` are on their way with its share."""

    missing: int
    coming: int


class Kernels(msgspec.Struct):
    """Live kernels."""

    kernels: list[KernelAnswer]


class QuotaBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a user may have; null is no limit. A higher priority is served before a lower one."""

    gpu_quota: Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)] | None = None
    gpu_hours_month: Size | None = None
    priority: Annotated[int, msgspec.Meta(ge=-1_000, le=1_000)] = 0
    budget_month: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    """In the money of the prices."""
    preemptible: bool = False
    """Whether all of the user's cells may be paused for shorter ones."""
    idle_gpus: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """What holds for cells that leave their GPUs idle: `below=5 minutes=15`, or `off`. Null: as for all."""


class QuotaAnswer(msgspec.Struct):
    """A user's quota, the GPUs that are held and waited for, and this month's GPU-hours."""

    user: str
    gpu_quota: int | None
    gpu_hours_month: float | None
    priority: int
    held: int | float
    waiting: int | float
    gpu_hours_used: float
    budget_month: float | None = None
    spent_month: float | None = None
    """With `currency`: where there are prices."""
    currency: str = ""
    preemptible: bool = False
    idle_gpus: str | None = None


class Quotas(msgspec.Struct):
    """Users' quotas."""

    quotas: list[QuotaAnswer]


def check_id(text: str, what: str) -> str:
    """Return `text` if it can be an id, or raise BadRequest."""
    try:
        return msgspec.convert(text, Id)
    except msgspec.ValidationError as error:
        raise BadRequest(
            f"The {what} must have 1 to {ID_CHARS_MAX} characters, none of them a control character."
        ) from error
