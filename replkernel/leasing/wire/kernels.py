"""What a router and the scheduler say of leases: wished for, granted, kept, given back, taken away."""

from __future__ import annotations

from typing import Annotated

import msgspec

from replkernel.leasing.wire.base import (
    NOTEBOOK_CHARS_MAX,
    WHY_MAX,
    Amount,
    GpuCount,
    HostNames,
    Id,
    LeaseMessage,
    Share,
    Text,
)
from replkernel.records import HostName

LEASES_TOLD_MAX = 64
"""A router tells of no more leases than this when it comes back."""


class HeldLease(msgspec.Struct, frozen=True):
    """A lease that the router believes it holds."""

    lease: Id
    fence: int


class KernelHere(LeaseMessage, frozen=True):
    """The kernel lives, on `hosts`, and its notebook asks for `gpus` a cell unless the cell says otherwise.

    Sent first, whenever its hosts change, and after a lost connection, with all leases it believes it holds:
    each is renewed, or answered with LeaseOver. `moves`: MoveReplica may be said to it. `executor` is the
    host whose replica ran its last cell; empty: none has run, or nobody knows. `notebook` is its path for
    those who may see whose GPUs these are, as `told_path` makes it; empty: it has none. `cpu` cores and
    `memory_gb` GiB of a host's memory are what it asks for beside GPUs.
    """

    hosts: HostNames
    gpus: GpuCount = 0
    gpu_model: Text = ""
    vram_gb: Amount = 0.0
    leases: Annotated[tuple[HeldLease, ...], msgspec.Meta(max_length=LEASES_TOLD_MAX)] = ()
    moves: bool = False
    executor: Text = ""
    notebook: Annotated[str, msgspec.Meta(max_length=NOTEBOOK_CHARS_MAX)] = ""
    cpu: Amount = 0.0
    memory_gb: Amount = 0.0


class KernelGone(LeaseMessage, frozen=True):
    """The kernel is over, or hibernates: all that it holds is given back."""


class PausedCell(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a cell is that was paused: it computed for `ran_s`, and stood still for `paused_s` before."""

    ran_s: Amount
    paused_s: Amount = 0.0


class LeaseWish(LeaseMessage, frozen=True):
    """A cell wants `gpus` GPUs of one model on one of `hosts` (empty: any of the kernel's).

    `part`: only that part of the one GPU (0: all of it), with `vram_gb` of its memory (0: the same part).
    `shared`: others may compute there as well, so that their parts come to more than the GPU.
    `expected_s`: so long its user thinks that it takes (0: nobody said). `preemptible`: its owner lets it be
    paused for a shorter one. `paused`: it was, and wants to go on.
    """

    request: Id
    gpus: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    hosts: HostNames = ()
    gpu_model: Text = ""
    vram_gb: Amount = 0.0
    cpu: Amount = 0.0
    memory_gb: Amount = 0.0
    part: Share = 0.0
    shared: bool = False
    expected_s: Amount = 0.0
    preemptible: bool = False
    paused: PausedCell | None = None


class WishOver(LeaseMessage, frozen=True):
    """The cell does not wait any more; a grant that crossed this message is given back by its asker."""

    request: Id


class LeaseKept(LeaseMessage, frozen=True):
    """The cell still runs: the lease lasts for its `ttl_s` from now.

    `stays`: so does one that is wanted back, for its kernel's state lies on the GPUs and cannot leave them.
    `leaves`: the same, for its state is leaving and is still seen there.
    """

    lease: Id
    fence: int
    stays: bool = False
    leaves: bool = False


class LeaseLingers(LeaseMessage, frozen=True):
    """The cell is over and its state stays on the GPUs until somebody wants them; `busy_s`: they computed.

    `held_gb` is how much state that is.
    """

    lease: Id
    fence: int
    busy_s: float | None = None
    held_gb: Amount = 0.0


class LeaseBack(LeaseMessage, frozen=True):
    """The lease is given back."""

    lease: Id
    fence: int
    busy_s: float | None = None


class PauseRefused(LeaseMessage, frozen=True):
    """The answer to LeasePause that is no LeaseBack: the cell computes on; `why` is one clause."""

    lease: Id
    fence: int
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]


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
