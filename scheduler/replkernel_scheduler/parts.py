"""The nouns that all decisions share, and the list of effects that they fill.

Law: one event at a time; `now` is its time, `out` what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from replkernel_scheduler.accounting import Accounts
from replkernel_scheduler.demand import Demand
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.history import History
from replkernel_scheduler.host_index import Hosts
from replkernel_scheduler.hosts import Pool
from replkernel_scheduler.kernels import Kernels
from replkernel_scheduler.leases import Leases
from replkernel_scheduler.ledger import Ledger
from replkernel_scheduler.migrations import Migrations
from replkernel_scheduler.pauses import Pauses
from replkernel_scheduler.policies.protocol import Dice
from replkernel_scheduler.prewarm import PrewarmRate
from replkernel_scheduler.queue import Queue
from replkernel_scheduler.reservations import Reservations
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_scheduler.timers import Timers
from replkernel_scheduler.types import Booking, BookingId, Fence, GpuUuid, HostName, UserName
from replkernel_scheduler.users import Users

Phase: TypeAlias = Literal["planned", "gathering", "open"]


class Booked:
    """One booking; `aside` has the GPUs that are set aside, by pool."""

    __slots__ = ("aside", "booking", "phase", "users")

    def __init__(self, booking: Booking) -> None:
        """Start with nothing set aside."""
        self.booking = booking
        self.users: dict[UserName, None] = dict.fromkeys(booking.users)
        self.phase: Phase = "planned"
        self.aside: dict[Pool, tuple[GpuUuid, ...]] = {}

    @property
    def count(self) -> int:
        """Return how many GPUs are set aside."""
        return sum([len(gpus) for gpus in self.aside.values()])


class Parts:
    """One of each noun."""

    def __init__(self, settings: CoreSettings, policies: Policies, dice: Dice, fence: Fence) -> None:
        """Make them, empty."""
        self.settings, self.policies, self.dice = settings, policies, dice
        self.now = float("-inf")
        self.asked = 0
        self.out: list[Effect] = []
        self.hosts = Hosts(policies.placement)
        self.leases = Leases(self.hosts, fence)
        self.queue = Queue(self.hosts)
        self.kernels = Kernels(self.hosts)
        self.users = Users()
        self.accounts = Accounts()
        self.ledger = Ledger(self)
        self.hosts.counts = self.ledger.look
        self.demand = Demand()
        self.migrations = Migrations()
        self.reservations = Reservations(settings.boot_s)
        self.rate = PrewarmRate(settings.prewarm_s)
        self.booked: dict[BookingId, Booked] = {}
        self.pauses = Pauses()
        self.timers = Timers()
        self.history = History()
        self.occupants: Callable[[HostName], int] = _nobody
        """How many use a host without a lease: it is not given back before they have left."""


def _nobody(_: HostName) -> int:
    return 0
