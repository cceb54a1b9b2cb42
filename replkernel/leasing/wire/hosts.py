"""What a host's agent and the scheduler say of the host: its GPUs, their use, whose they are."""

from __future__ import annotations

from typing import Annotated

import msgspec

from replkernel.leasing.wire.base import GPUS_OF_HOST_MAX, WHY_MAX, Amount, Id, LeaseMessage, Share, Text

KERNELS_OF_GPU_MAX = 16
BEAT_S = 2.0
"""How often an agent tells that it lives; a host that missed three counts as lost."""


class OfferedGpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU of a host."""

    uuid: Id
    model: Text = ""
    memory_gb: Amount = 0.0


class HostOffer(LeaseMessage, frozen=True):
    """What the host has; it replaces what it offered before.

    `guarded`: the agent opens and closes GPUs for their holders. It wants HostLeases, and nobody is told of a
    lease here before it has answered with LeasesOpen. `unread`: since the agent began not
    all GPUs could be read, so those that the host has offered before stay beside these.
    """

    gpus: Annotated[tuple[OfferedGpu, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)]
    cpu: Amount = 0.0
    memory_gb: Amount = 0.0
    guarded: bool = False
    unread: bool = False


class GpuUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much one GPU computes (0 to 1) and holds, and which kernels have processes there.

    `read`: the driver tells how much it computes; else that is 0, and says nothing.
    """

    uuid: Id
    utilisation: Share = 0.0
    memory_used_gb: Amount = 0.0
    kernels: Annotated[tuple[Id, ...], msgspec.Meta(max_length=KERNELS_OF_GPU_MAX)] = ()
    read: bool = False


class HostBeat(LeaseMessage, frozen=True):
    """The host lives, and so its GPUs do; sent every BEAT_S."""

    gpus: Annotated[tuple[GpuUse, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()


class HostLeaves(LeaseMessage, frozen=True):
    """The agent ends in order: the host is gone once this is heard."""


class NotOpened(msgspec.Struct, frozen=True):
    """A lease whose GPUs could not be opened for its holder; `why` is one clause."""

    lease: Id
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]


class LeasesOpen(LeaseMessage, frozen=True):
    """For which leases of the last HostLeases the GPUs are open, and for which they could not be opened.

    `stuck`: GPUs that could not be closed to somebody whose lease is over.
    """

    leases: Annotated[tuple[Id, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()
    failed: Annotated[tuple[NotOpened, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()
    stuck: Annotated[tuple[Id, ...], msgspec.Meta(max_length=GPUS_OF_HOST_MAX)] = ()


class KernelLeft(LeaseMessage, frozen=True):
    """No process of a kernel is left on the agent's host: what its router cannot give back is over."""

    kernel: Id


class LeaseHere(msgspec.Struct, frozen=True):
    """A lease on a host as its guard is told of it: whose, for which kernel, on which GPUs (UUIDs)."""

    lease: str
    user: str
    kernel_id: str
    gpus: tuple[str, ...]


class HostLeases(LeaseMessage, frozen=True):
    """All leases of GPUs on a guarded host, whenever they change: others than these have none there."""

    leases: tuple[LeaseHere, ...] = ()
