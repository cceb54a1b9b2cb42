"""The kernel as the scheduler knows it: whether one listens, where the kernel is and what its cells ask for.

Pure. Laws: the scheduler is looked for once somebody needs it, and hears of the kernel before anything else;
one that is gone is looked for as long as the kernel has a lease of it, but started for who needs it alone;
what is given back while it is away is told when it listens again; of a kernel that rests it hears nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import (
    GPUS_OF_LEASE_MAX,
    FromClient,
    HeldLease,
    KernelGone,
    KernelHere,
    LeaseBack,
    told_path,
)
from replkernel.records import HostName
from replkernel.router.core.events import Effect, OpenScheduler, ToScheduler

OWED_MAX = 64
"""So many leases that are given back wait for the scheduler's return; what is beyond runs out by itself."""


class Registration:
    """What one kernel has with the scheduler. `governed` tells whether there is one, as far as is known."""

    def __init__(
        self,
        held: Callable[[], tuple[HeldLease, ...]],
        default: GpuRequest | None = None,
        *,
        governed: bool = False,
        moves: bool = False,
        notebook: str = "",
        request: GpuRequest | None = None,
        tells: bool = False,
    ) -> None:
        """`held` gives the leases that are told with the kernel. `moves`: its replicas may be moved.

        `request` is what the kernel subscribes to while its cells ask for nothing of their own; with `tells`
        the scheduler hears of it from the beginning.
        """
        self._held, self._moves, self._tells = held, moves, tells
        self._notebook = told_path(notebook)
        self.default, self._request = default, request
        """What cells ask for that do not say it themselves."""
        self.governed = governed
        self.up = False
        """Whether the scheduler listens."""
        self.opened = False
        """Whether it is looked for, and started where there is none, or was found."""
        self.why_down = ""
        self.hosts: tuple[HostName, ...] = ()
        self._executor = self._told_executor = ""
        self.rests = False
        """Whether the scheduler has been told that no process is left."""
        self._owed: list[LeaseBack] = []

    # -- whether there is one -------------------------------------------------------------------------

    def begin(self) -> list[Effect]:
        """Have the scheduler told of the kernel, if it subscribes to something before any cell asks."""
        return self.open() if self._tells else []

    def open(self) -> list[Effect]:
        """Have the scheduler looked for, unless that is under way."""
        if self.opened:
            return []
        self.opened, self.why_down = True, ""
        return [OpenScheduler()]

    def needed(self) -> list[Effect]:
        """Have the scheduler looked for, or one that went away waited for no longer than need be."""
        return self.open() or [OpenScheduler()]

    def came_up(self) -> list[Effect]:
        """Say to a scheduler that listens (again) where the kernel is, and what it is owed."""
        self.up, self.governed, self.opened, self.why_down = True, True, True, ""
        owed, self._owed = self._owed, []
        here = [] if self.rests else [self.here()]
        return [*here, *(ToScheduler(message) for message in owed)]

    def went_down(self, why: str) -> None:
        """Take note that the scheduler does not listen."""
        self.up, self.governed, self.why_down = False, True, why

    def is_missing(self, why: str) -> list[Effect]:
        """Take note that there is no scheduler; the next one who needs it has it started.

        Where one comes back first, it must hear of the leases: it ends those that nobody renews.
        """
        self.up = self.governed = self.opened = False
        self.why_down = why
        return [OpenScheduler(starts=False)] if self._held() or self._owed else []

    # -- what it is told ------------------------------------------------------------------------------

    def tell(self, message: FromClient) -> list[Effect]:
        """Say something to the scheduler, if it listens."""
        return [ToScheduler(message)] if self.up else []

    def give_back(self, message: LeaseBack) -> list[Effect]:
        """Give a lease back: now, or when the scheduler listens again."""
        if not self.up:
            self._owed.append(message)
            del self._owed[:-OWED_MAX]
        return self.tell(message)

    def hosts_are(self, hosts: tuple[HostName, ...], executor: str = "") -> list[Effect]:
        """Take note of where the kernel's replicas are, and who ran last; that is told with the next wish."""
        self._executor = executor
        if hosts == self.hosts:
            return []
        self.hosts = hosts
        return [self.here()] if self.up and not self.rests else []

    def executor_news(self) -> list[Effect]:
        """Tell who ran last, if that is news and the scheduler has a choice."""
        moved = self._executor != self._told_executor and len(self.hosts) > 1
        return [self.here()] if moved else []

    def chose(self, host: str) -> None:
        """Take note that a cell is sent where the scheduler has leased GPUs for it."""
        self._told_executor = host

    def prefer(self, wanted: GpuRequest | None) -> list[Effect]:
        """Have cells ask for this from now on, unless they say otherwise; the scheduler is told."""
        self.default = wanted
        return [self.here()] if self.up else self.open()

    def kernel_rests(self) -> list[Effect]:
        """Take note that no process is left: nothing is owed any more."""
        self._owed.clear()
        self.rests = True
        return self.tell(KernelGone())

    def kernel_wakes(self) -> list[Effect]:
        """Take note that there are processes again."""
        rested, self.rests = self.rests, False
        return [self.here()] if rested and self.up else []

    def here(self) -> Effect:
        """Say where the kernel is, what its cells ask for, and what it holds."""
        wanted = self.default or self._request or GpuRequest(0)
        self._told_executor = self._executor
        here = KernelHere(
            self.hosts,
            min(wanted.gpus, GPUS_OF_LEASE_MAX),
            wanted.model,
            wanted.vram_gb,
            self._held(),
            self._moves,
            self._executor,
            self._notebook,
            wanted.cpu,
            wanted.memory_gib,
        )
        return ToScheduler(here)

    def check_invariants(self) -> None:
        """Assert the bounds."""
        assert len(self._owed) <= OWED_MAX
