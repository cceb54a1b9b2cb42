"""What a core is set up with: numbers and policies, frozen.

Law: everything that could be otherwise is here; every default is a limit or comes from the specification.
"""

from __future__ import annotations

import msgspec

from replkernel_scheduler.policies.backfill_none import NoBackfill
from replkernel_scheduler.policies.protocol import (
    Backfill,
    Executor,
    Migrating,
    Order,
    Placement,
    Prewarming,
    Scaling,
    SubscriptionLimit,
)
from replkernel_scheduler.types import HostShape


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers. `host_shape` is what a host to be provisioned has; None: hosts come by themselves."""

    reclaim_s: float = 30.0
    """A lingering lease that is wanted back ends after this, given back or not."""
    host_shape: HostShape | None = None
    gpus_per_host_max: int = 64
    """What a host may offer; more is refused."""
    hosts_min: int = 4
    hosts_max: int = 48
    hosts_buffer: int = 3
    scaling_every_s: float = 30.0
    boot_s: float = 15.0
    """How long a host is thought to take to come before one came."""
    boot_max_s: float = 900.0
    """A host that takes longer is given up."""
    prewarm_s: float = 1.0
    """How long a process is thought to take to be pre-warmed."""
    prewarm_pause_s: float = 30.0
    """The wait after a process could not be pre-warmed."""


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """One policy of each kind; `reserve` leases a kernel's GPUs for its whole life (a baseline).

    `keeps`: a kernel that places itself keeps what it was leased to its end, for nobody has it back (the same
    baseline live). `jobs`: who drives the core has batch jobs beside the kernels.
    """

    placement: Placement
    limit: SubscriptionLimit
    executor: Executor
    order: Order
    migration: Migrating
    scaling: Scaling
    prewarm: Prewarming
    backfill: Backfill = NoBackfill()
    reserve: bool = False
    keeps: bool = False
    jobs: bool = False
