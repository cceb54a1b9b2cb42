"""What each kind of policy is asked, and what it may know.

Law: a policy only suggests: it ranks, numbers and answers yes or no, without state of its own, and the core
does the rest; so no policy can lease a GPU twice. The same questions get the same answers (dice are handed
in).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from replkernel_scheduler.types import LeaseRequest

Rank: TypeAlias = tuple[Any, ...]
"""What is compared: smaller is better. All ranks of one policy have the same shape."""


class Dice(Protocol):
    """The part of random.Random that is used; seeded by whoever makes the core."""

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        ...


class PoolLoad(Protocol):
    """A host as placement sees it, through one of its pools of equal GPUs."""

    @property
    def gpus(self) -> int:
        """Return how many GPUs the pool has."""
        ...

    @property
    def idle(self) -> int:
        """Return how many of them are in no lease."""
        ...

    @property
    def soft(self) -> int:
        """Return how many are idle or merely hold the state of a cell that is over."""
        ...

    @property
    def subscribed(self) -> int:
        """Return the GPUs that the replicas on the host ask for."""
        ...

    @property
    def host_gpus(self) -> int:
        """Return how many GPUs the host has."""
        ...


class ReplicaHost(Protocol):
    """A host that may run a cell, as the choice of the executor sees it."""

    @property
    def name(self) -> str:
        """Return its name."""
        ...

    @property
    def idle(self) -> int:
        """Return how many of its GPUs are in no lease."""
        ...

    @property
    def prewarmed(self) -> int:
        """Return how many pre-warmed processes are ready on it."""
        ...


class Demanded(Protocol):
    """How many live kernels there are for each GPU that computes (D/B of the specification)."""

    @property
    def requested(self) -> int:
        """Return D: the GPUs that all live kernels ask for, each kernel once."""
        ...

    @property
    def committed(self) -> int:
        """Return B: the GPUs that cells hold now."""
        ...

    @property
    def samples(self) -> Sequence[float]:
        """Return up to 5 samples of D/B, taken each second, newest last."""
        ...


class Subscription(NamedTuple):
    """All hosts together: subscribed GPUs, GPUs, replicas a kernel, and the demand."""

    subscribed: int
    gpus: int
    demand: Demanded


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A request as the queue's order sees it.

    `tag` is the user's turn by fair share (GPU-seconds used, in virtual time), `number` the turn of arrival.
    """

    priority: int
    tag: float
    number: int
    gpus: int
    user: str = ""
    asked_at: float = 0.0
    expected_s: float = 0.0
    """How long it thinks to hold its GPUs (0: it does not say)."""


class Spot(NamedTuple):
    """Equal GPUs of a host as a placement sees them that looks at the request as well.

    `shared` has what is left of each GPU that is in use in part, in thousandths, the least first.
    """

    host: str
    model: str
    memory_gb: float
    gpus: int
    idle: int
    subscribed: int
    host_gpus: int
    shared: tuple[int, ...]


class ClusterLoad(NamedTuple):
    """All hosts as scaling sees them; `sampled` is true once the demand's window is full."""

    hosts: int
    provisioning: int
    gpus: int
    committed: int
    gpus_per_host: float
    hosts_min: int
    hosts_max: int
    buffer: int
    sampled: bool


class ScalingStep(NamedTuple):
    """So many hosts to provision, so many to release."""

    out: int
    release: int


class Ahead(NamedTuple):
    """What is thought of the first that waits on a host: served at `at`, with `spare` GPUs left beside it."""

    at: float
    spare: int


class Backfill(Protocol):
    """Says who is served before the first that waits on a host; the GPUs for it are there.

    Law: whoever passes would pass as well if it ended sooner, or if more were left beside the first.
    """

    enabled: bool

    def may_pass(self, ends_at: float, gpus: int, ahead: Ahead) -> bool:
        """Say whether a request passes that wants `gpus` until `ends_at` (infinity: nobody knows)."""
        ...


class Placement(Protocol):
    """Orders hosts for what is to be put on one of them: replicas, migrations, leases of any host."""

    def rank(self, load: PoolLoad) -> Rank:
        """Return the rank of hosts with this load; among equals the name decides."""
        ...


@runtime_checkable
class SeesRequests(Protocol):
    """A placement that also ranks places for one request; each is looked at, so it costs more than `rank`."""

    def rank_for(self, spot: Spot, wish: LeaseRequest) -> Rank:
        """Return the rank of a place that has the GPUs; among equals the order of `rank` decides."""
        ...


class SubscriptionLimit(Protocol):
    """Says how far hosts may be subscribed."""

    def limit(self, subscription: Subscription, replicas: int) -> float:
        """Return the subscription ratio S/(G·R) below which a host stays with its new replica."""
        ...


class Executor(Protocol):
    """Chooses who runs a cell among the hosts that could."""

    anywhere: bool
    """Cells run on any host, not only where the kernel's replicas are."""

    def rank(self, host: ReplicaHost, *, is_last: bool) -> Rank:
        """Return the rank of a host; `is_last`: it ran the kernel's last cell."""
        ...


class Order(Protocol):
    """Orders the requests that wait."""

    def key(self, turn: Turn) -> Rank:
        """Return the rank of a request; no two may be equal, so end it with `turn.number`."""
        ...


class Migrating(Protocol):
    """Says whether a replica moves when none of its kernel's hosts has the GPUs, and which one."""

    enabled: bool
    gives_up: bool
    """A request whose migration failed for good is refused, instead of waiting on."""
    defer_s: float
    """A move begins so long after it is wanted, unless a host of the kernel has the GPUs by then."""

    def victim(self, hosts: Sequence[str], dice: Dice) -> str:
        """Return which of the hosts loses its replica."""
        ...


class Scaling(Protocol):
    """Says how many hosts to provision or release."""

    enabled: bool

    def step(self, load: ClusterLoad) -> ScalingStep:
        """Return the step of this pass."""
        ...


class Prewarming(Protocol):
    """Says how many pre-warmed processes a host should have, ready or on their way."""

    def target(self, uses_per_s: float, ready_s: float, hosts: int) -> int:
        """Return the number for one host; `uses_per_s` is over all `hosts`."""
        ...
