"""The wire between a router or an agent and the scheduler: WebSockets, msgpack by msgspec.

An agent has two: one as the host's, one as what runs its own user's jobs. A cell on several hosts has one.

The address is `/api/v1/channel` of the scheduler; the token is in the request's header, not in a message. The
first message of a client is its Hello; nothing else is heard before it. Law: what a peer sends is decoded
here and nowhere else; a message that does not fit is refused by name. Every message of a client may be sent
again after a lost connection: a request id, a lease with its fence and a kernel id mean the same again.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from replkernel.errors import UNREADABLE, ProtocolMismatch
from replkernel.records import HostName

WIRE_VERSION = 1
MESSAGE_BYTES_MAX = 1024 * 1024
"""No message is larger than this, in either direction."""
GPUS_OF_HOST_MAX = 64
GPUS_OF_LEASE_MAX = 8
KERNELS_OF_GPU_MAX = 16
AMOUNT_MAX = 1e6
"""No number of GiB or cores is larger; what ends in `_gb` is counted in GiB (2³⁰ bytes), everywhere."""
WHY_MAX = 2000
"""No reason that is told is longer."""
NOTEBOOK_CHARS_MAX = 200
"""No notebook's path is longer as it is told; of a longer one the end is."""
JOBS_OF_HOST_MAX = 1000
LOG_BYTES_MAX = 64 * 1024
"""So much of a job's log is told at once."""
GANG_HOSTS_MAX = 64
"""A cell runs on no more hosts than this."""
LEASES_TOLD_MAX = 64
"""A router tells of no more leases than this when it comes back."""

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Text = Annotated[str, msgspec.Meta(max_length=200)]
_Amount = Annotated[float, msgspec.Meta(ge=0.0, le=AMOUNT_MAX)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Told = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
"""What a program told of itself: no NaN and nothing infinite, for JSON has neither."""
_Host = Annotated[HostName, msgspec.Meta(max_length=200)]
_Hosts = Annotated[tuple[_Host, ...], msgspec.Meta(max_length=64)]
_Gpus = Annotated[int, msgspec.Meta(ge=0, le=GPUS_OF_LEASE_MAX)]


class LeaseMessage(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of all messages; the tag is the class name."""


# -- what both kinds of clients say -----------------------------------------------------------------


class Hello(LeaseMessage, frozen=True):
    """Who speaks: an agent by its host's name (for jobs as well), a router by its kernel's id.

    A cell on several hosts speaks by an id of its own, which is never used twice.
    `pauses`: the router's cells can stand still for shorter ones, so LeasePause may be said to it; `idles`:
    so may LeaseIdle.
    """

    version: int
    role: Literal["agent", "router", "jobs", "gang"]
    name: _Id
    pauses: bool = False
    idles: bool = False


# -- agent to scheduler -----------------------------------------------------------------------------


class OfferedGpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU of a host."""

    uuid: _Id
    model: _Text = ""
    memory_gb: _Amount = 0.0


class HostOffer(LeaseMessage, frozen=True):
    """What the host has; it replaces what it offered before.

    `guarded`: the agent opens and closes GPUs for their holders. It wants HostLeases, and nobody is told of a
    lease here before it has answered with LeasesOpen.
    """

    gpus: Annotated[tuple[OfferedGpu, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)]
    cpu: _Amount = 0.0
    memory_gb: _Amount = 0.0
    guarded: bool = False


class GpuUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much one GPU computes (0 to 1) and holds, and which kernels have processes there.

    `read`: the driver tells how much it computes; else that is 0, and says nothing.
    """

    uuid: _Id
    utilisation: _Share = 0.0
    memory_used_gb: _Amount = 0.0
    kernels: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=KERNELS_OF_GPU_MAX)] = ()
    read: bool = False


class HostBeat(LeaseMessage, frozen=True):
    """The host lives, and so its GPUs do; sent every BEAT_S."""

    gpus: Annotated[tuple[GpuUse, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()


class HostLeaves(LeaseMessage, frozen=True):
    """The agent ends in order: the host is gone once this is heard."""


class NotOpened(msgspec.Struct, frozen=True):
    """A lease whose GPUs could not be opened for its holder; `why` is one clause."""

    lease: _Id
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]


class LeasesOpen(LeaseMessage, frozen=True):
    """For which leases of the last HostLeases the GPUs are open, and for which they could not be opened.

    `stuck`: GPUs that could not be closed to somebody whose lease is over.
    """

    leases: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()
    failed: Annotated[tuple[NotOpened, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()
    stuck: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()


class KernelLeft(LeaseMessage, frozen=True):
    """No process of a kernel is left on the agent's host: what its router cannot give back is over."""

    kernel: _Id


# -- router to scheduler ----------------------------------------------------------------------------


class HeldLease(msgspec.Struct, frozen=True):
    """A lease that the router believes it holds."""

    lease: _Id
    fence: int


class KernelHere(LeaseMessage, frozen=True):
    """The kernel lives, on `hosts`, and its notebook asks for `gpus` a cell unless the cell says otherwise.

    Sent first, whenever its hosts change, and after a lost connection, with all leases it believes it holds:
    each is renewed, or answered with LeaseOver. `moves`: MoveReplica may be said to it. `executor` is the
    host whose replica ran its last cell; empty: none has run, or nobody knows. `notebook` is its path for
    those who may see whose GPUs these are, as `told_path` makes it; empty: it has none. `cpu` cores and
    `memory_gb` GiB of a host's memory are what it asks for beside GPUs.
    """

    hosts: _Hosts
    gpus: _Gpus = 0
    gpu_model: _Text = ""
    vram_gb: _Amount = 0.0
    leases: Annotated[tuple[HeldLease, ...], msgspec.Meta(max_length=LEASES_TOLD_MAX)] = ()
    moves: bool = False
    executor: _Text = ""
    notebook: Annotated[str, msgspec.Meta(max_length=NOTEBOOK_CHARS_MAX)] = ""
    cpu: _Amount = 0.0
    memory_gb: _Amount = 0.0


class KernelGone(LeaseMessage, frozen=True):
    """The kernel is over, or hibernates: all that it holds is given back."""


class PausedCell(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a cell is that was paused: it computed for `ran_s`, and stood still for `paused_s` before."""

    ran_s: _Amount
    paused_s: _Amount = 0.0


class LeaseWish(LeaseMessage, frozen=True):
    """A cell wants `gpus` GPUs of one model on one of `hosts` (empty: any of the kernel's).

    `part`: only that part of the one GPU (0: all of it), with `vram_gb` of its memory (0: the same part).
    `shared`: others may compute there as well, so that their parts come to more than the GPU.
    `expected_s`: so long its user thinks that it takes (0: nobody said). `preemptible`: its owner lets it be
    paused for a shorter one. `paused`: it was, and wants to go on.
    """

    request: _Id
    gpus: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    hosts: _Hosts = ()
    gpu_model: _Text = ""
    vram_gb: _Amount = 0.0
    cpu: _Amount = 0.0
    memory_gb: _Amount = 0.0
    part: _Share = 0.0
    shared: bool = False
    expected_s: _Amount = 0.0
    preemptible: bool = False
    paused: PausedCell | None = None


class WishOver(LeaseMessage, frozen=True):
    """The cell does not wait any more; a grant that crossed this message is given back by its asker."""

    request: _Id


class LeaseKept(LeaseMessage, frozen=True):
    """The cell still runs: the lease lasts for its `ttl_s` from now.

    `stays`: so does one that is wanted back, for its kernel's state lies on the GPUs and cannot leave them.
    `leaves`: the same, for its state is leaving and is still seen there.
    """

    lease: _Id
    fence: int
    stays: bool = False
    leaves: bool = False


class LeaseLingers(LeaseMessage, frozen=True):
    """The cell is over and its state stays on the GPUs until somebody wants them; `busy_s`: they computed.

    `held_gb` is how much state that is.
    """

    lease: _Id
    fence: int
    busy_s: float | None = None
    held_gb: _Amount = 0.0


class LeaseBack(LeaseMessage, frozen=True):
    """The lease is given back."""

    lease: _Id
    fence: int
    busy_s: float | None = None


class PauseRefused(LeaseMessage, frozen=True):
    """The answer to LeasePause that is no LeaseBack: the cell computes on; `why` is one clause."""

    lease: _Id
    fence: int
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]


class MoveWish(LeaseMessage, frozen=True):
    """The notebook wants one of its replicas on `host`: answered by MoveReplica or MoveDenied."""

    host: _Host


class ReplicaMoved(LeaseMessage, frozen=True):
    """The answer to MoveReplica: the new replica has the state, and the old one is out of the group."""

    order: _Id


class MoveFailed(LeaseMessage, frozen=True):
    """The other answer: the kernel is, or will be, as it was; `why` is one clause."""

    order: _Id
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]


# -- an agent's jobs to the scheduler ----------------------------------------------------------------


class JobsHere(LeaseMessage, frozen=True):
    """All attempts of jobs that this agent has processes of, or is about to; said first on each connection.

    Before it only ends are told that the scheduler may not have heard of. `ranks`: StartRanks and StopRanks
    may be said to it; `gangs` are those of which it has launchers. `uses`: so may UseWanted, and StartJob
    with `cpus`. `spans`: so may StartJob with `others`.
    """

    jobs: Annotated[tuple[tuple[_Id, int], ...], msgspec.Meta(max_length=JOBS_OF_HOST_MAX)] = ()
    ranks: bool = False
    gangs: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=JOBS_OF_HOST_MAX)] = ()
    uses: bool = False
    spans: bool = False


class JobSaid(LeaseMessage, frozen=True):
    """What has become of an attempt of a job; `stopped`, `done` and `failed`: no process of it is left.

    `said` is a clause about it, `epoch` and `loss` what the program told last. It could not begin for want of
    the host `without`. `elsewhere`: it has failed too often here, and may be started on other hosts.
    """

    job: _Id
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    what: Literal["runs", "progress", "stopped", "done", "failed"]
    said: Annotated[str, msgspec.Meta(max_length=WHY_MAX)] = ""
    epoch: _Told | None = None
    loss: _Told | None = None
    without: _Text = ""
    elsewhere: bool = False


class JobMeets(LeaseMessage, frozen=True):
    """An attempt of a job on several hosts waits for launchers of the others: they find it at `endpoint`.

    `gang` names them; `seal` is as in GangWish. Said again on each connection until all have come.
    """

    job: _Id
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    gang: _Id
    endpoint: Annotated[str, msgspec.Meta(max_length=1000)]
    seal: _Text


class HostUse(LeaseMessage, frozen=True):
    """What is used of the agent's host: the answer to UseWanted, again when it changes, every USE_S at most.

    Each is said twice, for jobs leave only where two words agree. `busy`: cores on which its kernels computed
    in the last minute. `used_gb` is what all processes of the machine use of its memory, `jobs_gb` what this
    user's jobs on cores have of that. `limit_gb`: `used_gb` is of so much, where a cgroup has less than the
    machine; 0: of all.
    """

    busy: _Amount = 0.0
    used_gb: _Amount = 0.0
    jobs_gb: _Amount = 0.0
    limit_gb: _Amount = 0.0


class JobLog(LeaseMessage, frozen=True):
    """The answer to JobLogWanted: `data` from `at` on; `at` is larger than was asked where that is gone."""

    number: int
    at: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    data: Annotated[bytes, msgspec.Meta(max_length=LOG_BYTES_MAX)] = b""


class RanksFailed(LeaseMessage, frozen=True):
    """An agent's answer to StartRanks: nothing was started, and `why` is one sentence.

    `for_now`: that may change by itself.
    """

    gang: _Id
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]
    for_now: bool = False


# -- a cell on several hosts to the scheduler ---------------------------------------------------------


class GangWish(LeaseMessage, frozen=True):
    """A cell of `kernel` wants `gpus` GPUs on each of `hosts` hosts; said again on each connection.

    Agents of its user start launchers there, in `directory`, which find the cell at `endpoint`. `seal` shows
    them that their user wants that. `leases` are those that it has; GangEnded is the answer where it has them
    no more. `began`: all launchers have come.
    """

    kernel: _Id
    gpus: Annotated[int, msgspec.Meta(ge=1, le=GPUS_OF_HOST_MAX)]
    hosts: Annotated[int, msgspec.Meta(ge=2, le=GANG_HOSTS_MAX)]
    directory: Annotated[str, msgspec.Meta(max_length=4096)]
    endpoint: Annotated[str, msgspec.Meta(max_length=1000)]
    seal: _Text
    gpu_model: _Text = ""
    vram_gb: _Amount = 0.0
    cpu: _Amount = 0.0
    memory_gb: _Amount = 0.0
    leases: Annotated[tuple[HeldLease, ...], msgspec.Meta(max_length=GANG_HOSTS_MAX)] = ()
    began: bool = False


class GangBegan(LeaseMessage, frozen=True):
    """All launchers have come to the cell: none is to be started again."""


class GangDone(LeaseMessage, frozen=True):
    """The cell is over, or waits no more: all of its leases are given back.

    `unsure`: the cell does not know that its processes there have ended.
    """

    unsure: Annotated[tuple[_Host, ...], msgspec.Meta(max_length=GANG_HOSTS_MAX)] = ()


# -- scheduler to its clients -----------------------------------------------------------------------


class Welcome(LeaseMessage, frozen=True):
    """The first answer; `user` is whom the scheduler takes the client for (empty: nobody was asked)."""

    version: int
    user: str = ""


SCHEDULER_ENDS = "The scheduler ends; connect again in a moment."
"""The refusal of a scheduler that goes: nothing was refused for good."""


class Refused(LeaseMessage, frozen=True):
    """The connection is refused and closed, or one message was; `why` is one sentence with the fix."""

    why: str


class LeaseHere(msgspec.Struct, frozen=True):
    """A lease on a host as its guard is told of it: whose, for which kernel, on which GPUs (UUIDs)."""

    lease: str
    user: str
    kernel_id: str
    gpus: tuple[str, ...]


class HostLeases(LeaseMessage, frozen=True):
    """All leases of GPUs on a guarded host, whenever they change: others than these have none there."""

    leases: tuple[LeaseHere, ...] = ()


class GrantedLease(msgspec.Struct, frozen=True):
    """An exclusive grant of `gpus` (UUIDs) on `host` for `ttl_s` seconds from now, unless renewed.

    With a `part` it is of that part of the one GPU, of whose memory `vram_gb` may be taken (0: nobody knows);
    `shared`: others may compute there at the same time, so that the parts come to more. It costs `price_hour`
    of `currency` while a cell uses it; 0: the scheduler has no prices.
    """

    lease: str
    request: str
    host: HostName
    gpus: tuple[str, ...]
    fence: int
    ttl_s: float
    price_hour: float = 0.0
    currency: str = ""
    part: float = 0.0
    vram_gb: float = 0.0
    shared: bool = False


class Granted(LeaseMessage, frozen=True):
    """The cell has its GPUs; said again when it was asked for or renewed again."""

    lease: GrantedLease


class Waiting(LeaseMessage, frozen=True):
    """The wish waits; `position` 1 is served next, 0 waits for its host only.

    `estimate_s` is how long it is expected to, `why` what for, in a clause.
    """

    request: str
    position: int
    estimate_s: float | None = None
    why: str = ""


class Denied(LeaseMessage, frozen=True):
    """The wish will never be served; `why` is one sentence that names the limit."""

    request: str
    why: str


class LeaseOver(LeaseMessage, frozen=True):
    """The lease is over, or was never known; its GPUs are not the holder's any more."""

    lease: str
    why: str


class LeaseShrank(LeaseMessage, frozen=True):
    """The lingering lease has fewer GPUs now: a newer one of the same kernel has the others."""

    lease: GrantedLease


class LeaseWanted(LeaseMessage, frozen=True):
    """Somebody waits for a lingering lease's GPUs: move the state off and give it back within `within_s`."""

    lease: str
    fence: int
    within_s: float


class LeaseIdle(LeaseMessage, frozen=True):
    """The GPUs of a cell's lease have computed `share` of the last `for_s`: its user is told.

    The cell is interrupted in `ends_in_s` (None: never), or now (0).
    """

    lease: str
    share: float
    for_s: float
    ends_in_s: float | None = None


class LeasePause(LeaseMessage, frozen=True):
    """Have the cell under this lease stand still off its GPUs, and give it back within `within_s`.

    A shorter cell has them for about `for_s`. It wishes for GPUs of `gpu_model` at once, to go on.
    """

    lease: str
    fence: int
    within_s: float
    for_s: float = 0.0
    gpu_model: str = ""


class MoveReplica(LeaseMessage, frozen=True):
    """Have a replica on `host` take the place of the one on `source`, which goes once the new has the state.

    The same `order` again is the same order; another one takes the place of one that is under way.
    """

    order: _Id
    host: HostName
    source: HostName


class MoveDenied(LeaseMessage, frozen=True):
    """No replica moves to the `host` that the notebook named; `why` is one sentence."""

    host: HostName
    why: str


class MoveOver(LeaseMessage, frozen=True):
    """No replica is wanted on `host`: take a move there back, unless the old replica is out already."""

    host: HostName


class JobOnHost(msgspec.Struct, frozen=True):
    """What a job has of another host of its own."""

    host: str
    gpus: tuple[str, ...]


class StartJob(LeaseMessage, frozen=True):
    """Have a job's processes run on these GPUs, from where it was saved last; JobSaid tells the rest.

    What runs of an older attempt is saved and stopped first. `seal` shows that the agent's own user wants
    this command run in this directory: without it nothing is started. Without GPUs it runs beside all else
    on `cpus` cores, and ends when it takes more than `memory_gb`. With `others` it runs there as well:
    JobMeets tells where launchers are to come to.
    """

    job: _Id
    attempt: int
    gpus: tuple[str, ...]
    command: tuple[str, ...]
    directory: str
    seal: str
    cpus: int = 0
    memory_gb: float = 0.0
    others: tuple[JobOnHost, ...] = ()


class UseWanted(LeaseMessage, frozen=True):
    """Say HostUse from now on, as long as this connection lasts."""


class StopJob(LeaseMessage, frozen=True):
    """Have an attempt's processes stopped within `within_s`, saved first if `saves`; answered by JobSaid."""

    job: _Id
    attempt: int
    within_s: float
    saves: bool = True


class JobGone(LeaseMessage, frozen=True):
    """The job is over, or nobody knows it: nothing of it runs again, and its log alone is kept."""

    job: _Id


class JobsAwait(LeaseMessage, frozen=True):
    """Whether there are jobs of the agent's user that are not over: so long it stays."""

    awaits: bool


class JobLogWanted(LeaseMessage, frozen=True):
    """Somebody who may wants to read a job's log from byte `at` on; JobLog answers with the same `number`."""

    number: int
    job: _Id
    at: int


class StartRanks(LeaseMessage, frozen=True):
    """Have a launcher run a cell's processes on these GPUs: it finds the cell at `endpoint`.

    The same `gang` again is the same launcher. `seal` is as in StartJob; RanksFailed is told where none runs.
    """

    gang: _Id
    gpus: tuple[str, ...]
    directory: str
    endpoint: str
    seal: str


class StopRanks(LeaseMessage, frozen=True):
    """End the launcher of this gang with its processes, unless it has ended by itself in `within_s`.

    `job.NAME` names all that a job has there by now. `saves`: a job may save first, in a few seconds more.
    """

    gang: _Id
    within_s: float = 0.0
    saves: bool = True


class GangHas(LeaseMessage, frozen=True):
    """The cell has GPUs on all of its hosts, the one of rank 0 first; said again when it was asked again."""

    leases: tuple[GrantedLease, ...]


class GangWaiting(LeaseMessage, frozen=True):
    """The cell waits: `place` 1 is the next one that wants several hosts, and has `has` of them already."""

    place: int
    has: int = 0
    estimate_s: float | None = None


class GangEnded(LeaseMessage, frozen=True):
    """The cell has no GPUs any more, or will never have them (`refused`); `why` is one sentence."""

    why: str
    refused: bool = False


FromClient: TypeAlias = (
    Hello
    | HostOffer
    | HostBeat
    | HostLeaves
    | LeasesOpen
    | KernelLeft
    | KernelHere
    | KernelGone
    | LeaseWish
    | WishOver
    | LeaseKept
    | LeaseLingers
    | LeaseBack
    | PauseRefused
    | MoveWish
    | ReplicaMoved
    | MoveFailed
    | JobsHere
    | JobSaid
    | JobMeets
    | HostUse
    | JobLog
    | RanksFailed
    | GangWish
    | GangBegan
    | GangDone
)
FromScheduler: TypeAlias = (
    Welcome
    | Refused
    | HostLeases
    | Granted
    | Waiting
    | Denied
    | LeaseOver
    | LeaseShrank
    | LeaseWanted
    | LeaseIdle
    | LeasePause
    | MoveReplica
    | MoveDenied
    | MoveOver
    | StartJob
    | UseWanted
    | StopJob
    | JobGone
    | JobsAwait
    | JobLogWanted
    | StartRanks
    | StopRanks
    | GangHas
    | GangWaiting
    | GangEnded
)

USE_S = 5.0
"""How often an agent measures what its kernels compute: the paper's samples (spec 4.3)."""
BEAT_S = 2.0
"""How often an agent tells that it lives; a host that missed three counts as lost."""

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_scheduler: msgspec.msgpack.Decoder[FromScheduler] = msgspec.msgpack.Decoder(FromScheduler)
_Union = TypeVar("_Union")


def told_path(path: str) -> str:
    """Return a notebook's path as it may be told and shown: printable, and of a long one the end."""
    shown = "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in path)
    return shown if len(shown) <= NOTEBOOK_CHARS_MAX else "…" + shown[1 - NOTEBOOK_CHARS_MAX :]


def encode(message: FromClient | FromScheduler) -> bytes:
    """Return a message as one WebSocket frame."""
    return _encoder.encode(message)


def decode_from_client(frame: bytes) -> FromClient:
    """Return the message in a frame that a router or an agent sent; raises ProtocolMismatch."""
    return _decode(_from_client, frame)


def decode_from_scheduler(frame: bytes) -> FromScheduler:
    """Return the message in a frame that a scheduler sent; raises ProtocolMismatch."""
    return _decode(_from_scheduler, frame)


def _decode(decoder: msgspec.msgpack.Decoder[_Union], frame: bytes) -> _Union:
    if len(frame) > MESSAGE_BYTES_MAX:
        raise ProtocolMismatch(f"a message has {len(frame)} bytes, more than {MESSAGE_BYTES_MAX}")
    try:
        return decoder.decode(frame)
    except UNREADABLE as error:
        raise ProtocolMismatch(f"a message does not fit: {error}") from error
