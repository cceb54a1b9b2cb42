"""The built-in policies by kind and name, as the entry points of pyproject.toml list them, and whole sets
of them.

Law: nothing is built at import; a set names one policy of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from replkernel_scheduler.policies.backfill_easy import EasyBackfill
from replkernel_scheduler.policies.backfill_none import NoBackfill
from replkernel_scheduler.policies.discipline_easy import Easy
from replkernel_scheduler.policies.discipline_fcfs import Fcfs
from replkernel_scheduler.policies.executor_any_host import AnyHost
from replkernel_scheduler.policies.executor_last_then_idle import LastThenIdle
from replkernel_scheduler.policies.limit_demand_busy import DemandBusy
from replkernel_scheduler.policies.limit_static import Static as StaticLimit
from replkernel_scheduler.policies.migration_deferred import DeferredMove
from replkernel_scheduler.policies.migration_never import Never
from replkernel_scheduler.policies.migration_random import RandomVictim
from replkernel_scheduler.policies.order_fair_share import FairShare
from replkernel_scheduler.policies.order_fifo import Fifo
from replkernel_scheduler.policies.placement_least_loaded import LeastLoaded
from replkernel_scheduler.policies.preempt_deferred import Deferred
from replkernel_scheduler.policies.preempt_never import NeverPreempt
from replkernel_scheduler.policies.preempt_periodic import Periodic
from replkernel_scheduler.policies.preempt_shortest import Shortest
from replkernel_scheduler.policies.prewarm_minimum import Minimum
from replkernel_scheduler.policies.prewarm_none import NoPrewarming
from replkernel_scheduler.policies.queues_multi import MultiQueue
from replkernel_scheduler.policies.queues_single import SingleQueue
from replkernel_scheduler.policies.reshape_grow import GrowOnly
from replkernel_scheduler.policies.reshape_never import NeverReshape
from replkernel_scheduler.policies.reshape_sidecar import SideCar
from replkernel_scheduler.policies.scaling_none import NoScaling
from replkernel_scheduler.settings import Policies

Kind: TypeAlias = Literal[
    "placement",
    "limit",
    "executor",
    "order",
    "migration",
    "scaling",
    "prewarm",
    "backfill",
    "set",
    "queues",
    "discipline",
    "reshape",
    "preempt",
]
KINDS: tuple[Kind, ...] = (
    "placement",
    "limit",
    "executor",
    "order",
    "migration",
    "scaling",
    "prewarm",
    "backfill",
    "set",
)
JOBS: dict[tuple[Kind, str], Callable[..., object]] = {
    ("backfill", "none"): NoBackfill,
    ("backfill", "easy"): EasyBackfill,
    ("migration", "deferred"): DeferredMove,
    ("queues", "sq"): SingleQueue,
    ("queues", "mq"): MultiQueue,
    ("discipline", "easy"): Easy,
    ("discipline", "fcfs"): Fcfs,
    ("reshape", "sidecar"): SideCar,
    ("reshape", "grow"): GrowOnly,
    ("reshape", "never"): NeverReshape,
    ("preempt", "never"): NeverPreempt,
    ("preempt", "shortest"): Shortest,
    ("preempt", "periodic"): Periodic,
    ("preempt", "deferred"): Deferred,
}
"""What the cores of jobs are given, and what came later. They are entry points too, and found without: a
checkout that was not installed again since they came can play them."""
POOL_PER_HOST = 8
SetMaker: TypeAlias = Callable[[], Policies]


def notebook() -> Policies:
    """Replicated kernels, GPUs cell by cell: the paper's policies with the demand-busy limit."""
    return Policies(
        placement=LeastLoaded(),
        limit=DemandBusy(),
        executor=LastThenIdle(),
        order=FairShare(),
        migration=RandomVictim(),
        scaling=NoScaling(),
        prewarm=NoPrewarming(),
    )


def reservation() -> Policies:
    """Hold a kernel's GPUs from its start to its end (start kernels with one replica)."""
    return Policies(
        placement=LeastLoaded(),
        limit=StaticLimit(1.0),
        executor=LastThenIdle(),
        order=Fifo(),
        migration=Never(),
        scaling=NoScaling(),
        prewarm=NoPrewarming(),
        reserve=True,
    )


def fcfs_batch() -> Policies:
    """Start a process for each cell on any host, first come, first served (no kernels are placed)."""
    return Policies(
        placement=LeastLoaded(),
        limit=DemandBusy(),
        executor=AnyHost(),
        order=Fifo(),
        migration=Never(),
        scaling=NoScaling(),
        prewarm=NoPrewarming(),
    )


def large_pool() -> Policies:
    """As fcfs-batch, with a large pool of pre-warmed processes that cells use and give back."""
    return msgspec.structs.replace(fcfs_batch(), prewarm=Minimum(POOL_PER_HOST))


def easy_batch() -> Policies:
    """As fcfs-batch, where others pass the first that waits if that is thought not to make it later."""
    return msgspec.structs.replace(fcfs_batch(), backfill=EasyBackfill())


def harvest() -> Policies:
    """As notebook; who drives the core has batch jobs reshaped into GPUs that idle notebooks leave."""
    return msgspec.structs.replace(notebook(), jobs=True)


JOBS["set", "easy-batch"] = easy_batch
JOBS["set", "harvest"] = harvest
