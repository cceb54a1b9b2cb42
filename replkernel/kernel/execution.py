"""What one execution is to a replica, and what the replica asks of the parts around it.

Law: no steps here, only the shapes; `replica.py` owns their order.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol

import msgspec

from replkernel.errors import ReplkernelError
from replkernel.kernel.restorer import LeavingState
from replkernel.protocol.envelope import Envelope
from replkernel.records import BlobRef, ComponentId, Delta, Fence, Mark, Pin, ReplicaId, Seq, Unaudited
from replkernel.state.capture.budget import Terms
from replkernel.state.capture.changes import Unstored
from replkernel.state.component_table import Devices


class State(LeavingState, Protocol):
    """The part of `state_capture.StateCapture` that a replica uses."""

    @property
    def applied(self) -> Seq:
        """The last execution whose delta was captured here or received."""

    @property
    def state_bytes(self) -> int:
        """The bytes of everything captured or received."""

    @property
    def components(self) -> int:
        """The number of components."""

    @property
    def pending_bytes(self) -> int:
        """The bytes received and not rebuilt."""

    @property
    def mark(self) -> Mark:
        """The last execution, and which of its audits, that was captured here or received."""

    @property
    def has_new(self) -> bool:
        """Tell whether there are variables of which nothing has been captured."""
        ...

    @property
    def has_heavy(self) -> bool:
        """Whether a component takes so long to look at that it matters what a cell mentions."""

    @property
    def kept_back(self) -> AbstractSet[str]:
        """What is known to have changed and is told later, because the user wants it seldom."""

    @property
    def inherited(self) -> tuple[tuple[Unaudited, ...], int]:
        """What the last delta received leaves unchecked, and the cell after which that was so."""

    @property
    def unfaithful(self) -> Sequence[Any]:
        """The components that were rebuilt here otherwise than captured, each with its `pins`."""

    @property
    def unproven(self) -> int:
        """How many components were rebuilt here without a proof."""

    def capture(self, seq: Seq, fence: Fence, execution_count: int, terms: Terms) -> Delta:
        """Return what changed since the last capture, as far as the terms allow."""

    def receive(self, delta: Delta) -> None:
        """Take a foreign delta in, to be rebuilt."""

    def go_back(self, way: Delta) -> None:
        """Take in what leads to an earlier point; `went_back` follows once it is rebuilt."""

    def went_back(self, way: Delta) -> None:
        """Have the next capture say what a way back left of the process's state."""

    @property
    def replica(self) -> ReplicaId:
        """The replica whose process this is."""

    def rebuild(
        self,
        *,
        everything: bool,
        fetch: Callable[[Sequence[BlobRef]], None],
        wanted: AbstractSet[ComponentId] | None = None,
    ) -> Any:
        """Rebuild what is small, or all; with `wanted` these as well, and the rest is left behind."""

    @property
    def unstored(self) -> Unstored:
        """What the object store has no room for."""

    @property
    def devices(self) -> Devices:
        """Whether what lies on a GPU may be rebuilt now."""

    def lives_on(self) -> None:
        """Keep quiet what would run when this process ends: another one has the state."""

    def table(self) -> Any:
        """Return the components for `%replkernel state`."""


class Execution:
    """One execution of the main shell: its envelope, and what kept it from running."""

    def __init__(self, envelope: Envelope | None) -> None:
        self.envelope = envelope
        self.trouble: BaseException | None = None
        self.declined: tuple[Pin, ...] = ()
        """The variables for whose sake another replica is to run it: nothing of it has begun here."""
        self.wants_gpus = 0
        """So many GPUs it cannot run without: what it reaches lies on them, or did, and it has no lease."""
        self.renews = False
        """Whether this process ends for its sake: another one takes over and runs it."""
        self.counted = 0
        """So many cells have been counted before it, as far as the log knows of lost ones."""
        self.captured = False
        self.kept_back = ""
        """Why what it changed could not be proposed."""
        self.held = False
        """Whether something that it changed is here alone, because the store has no room for it."""
        self.durable = False
        self.texts: Sequence[str] = ()
        """The cell and the expressions that it comes with."""
        self.came = self.began = time.monotonic()
        """When it came here, and when its code began."""
        self.leased: float = self.came
        """Since when it has had its GPUs, if any."""
        self.leased_before = 0.0
        """So long it had GPUs before it was paused, in all."""

    @property
    def sent_back(self) -> bool:
        """Whether nothing of it has begun and the router is to send it again: with a lease, or elsewhere."""
        return bool(self.declined) or bool(self.wants_gpus) or self.renews

    def lease(self, gpus: tuple[str, ...], part: float = 0.0, vram_gb: float = 0.0) -> None:
        """Take note that it has got these GPUs while it runs, or so much of one."""
        assert self.envelope is not None
        self.envelope = msgspec.structs.replace(self.envelope, gpus=gpus, part=part, vram_gb=vram_gb)
        self.leased = time.monotonic()

    def stands_still(self) -> None:
        """Take note that it has no GPUs until it goes on."""
        self.leased_before = self.lease_s
        self.leased = math.inf

    @property
    def lease_s(self) -> float:
        """How long it has had its GPUs."""
        return self.leased_before + max(0.0, time.monotonic() - self.leased)

    def costs(self, price_hour: float, currency: str) -> None:
        """Take note of what the lease that it has got costs an hour."""
        if self.envelope is not None:
            self.envelope = msgspec.structs.replace(self.envelope, price_hour=price_hour, currency=currency)


class FetchRefused(BaseException):
    """Blobs did not come, so nothing is rebuilt and the cell is not run; `error` says why.

    It is no Exception, for the rebuilding turns those into variables that are lost for good.
    """

    def __init__(self, error: ReplkernelError) -> None:
        super().__init__(error)
        self.error = error


class ProcessState(NamedTuple):
    """The process's own state beside the namespace: its pins, what loads put off, what could not be followed.

    `pins` takes the number of the execution, as `running` does: those of them that go when what runs ends.
    `settle` returns the modules that could not be imported.
    """

    pins: Callable[[Seq], Sequence[Pin]]
    running: Callable[[Seq], Sequence[Pin]]
    settle: Callable[[], Sequence[str]]
    troubles: Callable[[], Sequence[str]]


def describe(error: BaseException) -> str:
    """Return the lines that stand for `error` in an error reply."""
    lines = traceback.format_exception_only(error)
    return "".join([lines[0].removeprefix(f"{type(error).__module__}."), *lines[1:]]).strip()
