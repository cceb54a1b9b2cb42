"""When a kernel's committed state is written to the object store, and what a router is told of it. Pure.

Facts in, wants out, time as an argument. Laws: the leader's host alone writes in the ordinary course, once
nothing has been committed for a moment and at the latest a while after the first commit that no checkpoint
has; what is written before a hibernation holds everything; nothing ticks once all is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from replkernel.protocol.agent_to_router import CheckpointWritten
from replkernel.records import KernelId, Pin, ReplicaId, Seq
from replkernel.replication.checkpoint import Place

CHECKPOINT_QUIET_S = 2.0
"""So long after the last commit a checkpoint is written."""

CHECKPOINT_EVERY_S = 10.0
"""So long after the first commit that no checkpoint has one is written at the latest."""

BULKY_QUIET_S = 0.2
BULKY_EVERY_S = 1.0
"""What a checkpoint in the store needs stays there: where that is much, the next one comes so soon after a
commit, and so long after the last one."""

RETRY_FIRST_S = 5.0
RETRY_MAX_S = 60.0

LOOKS_MAX = 6
"""A host that does not lead looks so often, in case it comes to lead, until something is committed again."""

SETTLE_LIMIT_S = 20.0
"""Before a hibernation, so long what is on its way and what is left to an audit are awaited."""

SETTLE_LOOK_S = 0.05


class Standing(msgspec.Struct, frozen=True):
    """How the kernel stands on this host: `leads` its group, `quorum` sees a leader with a majority.

    `busy`: an execution runs, or a delta is on its way into the log. `owing`: the `executor` has left
    something to an audit.
    """

    leads: bool = False
    quorum: bool = False
    place: Place = Place(0, 0)
    seq: Seq = Seq(0)
    execution_count: int = 0
    busy: bool = False
    owing: bool = False
    pins: tuple[Pin, ...] = ()
    executor: ReplicaId = ReplicaId("")


class Changed(msgspec.Struct, frozen=True):
    """Something was committed here; `bulky`: much has been stored since the last checkpoint."""

    bulky: bool = False


class Asked(msgspec.Struct, frozen=True):
    """The router wants a checkpoint that holds execution `seq`; `forced`: of what is here, whoever leads.

    What the lost processes of `gone` had, up to the execution told, keeps nobody awake. With `pinned` nobody
    is put to rest, so what cannot travel may stay where it is.
    """

    seq: Seq
    forced: bool = False
    gone: Mapping[ReplicaId, Seq] = MappingProxyType({})
    pinned: bool = False


class Ended(msgspec.Struct, frozen=True):
    """A write ended: the store holds checkpoint `name` of `place`, or nothing for `why`."""

    name: str = ""
    place: Place = Place(0, 0)
    seq: Seq = Seq(0)
    execution_count: int = 0
    why: str = ""
    followed: bool = False
    """Whether it failed because another group has followed this one: nothing is written any more."""


class TimeCame(msgspec.Struct, frozen=True):
    """The deadline has passed; the kernel stands so."""

    standing: Standing


class Write(msgspec.Struct, frozen=True):
    """Write the state that is applied here; `forced`: with what could not be committed."""

    forced: bool = False


class Say(msgspec.Struct, frozen=True):
    """Tell the router what became of its wish."""

    message: CheckpointWritten


Event: TypeAlias = Changed | Asked | Ended | TimeCame
Effect: TypeAlias = Write | Say


class LastCheckpoint(msgspec.Struct, frozen=True):
    """The last checkpoint that this host knows of."""

    name: str
    place: Place
    seq: Seq
    execution_count: int


class Checkpointing:
    """The checkpoints of one kernel, as its host sees them."""

    def __init__(self, kernel_id: KernelId) -> None:
        self.last: LastCheckpoint | None = None
        self.why = ""
        """Why the last write failed; empty when it did not."""
        self._kernel_id = kernel_id
        self._dirty_since: float | None = None
        self._changed_at = 0.0
        self._writing_since: float | None = None
        self._ended_at = float("-inf")
        """When the last write ended."""
        self._due: float | None = None
        self._looks = 0
        self._failures = 0
        self._followed = False
        self._asked: Asked | None = None
        self._asked_until = 0.0
        self._look_at: float | None = None
        self._for_asked = False
        """Whether the write under way is the one that was asked for."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event at time `now` (seconds, monotonic); return what is to be done, in order."""
        match event:
            case Changed():
                return self._changed(event, now)
            case Asked():
                self._asked, self._asked_until, self._look_at = event, now + SETTLE_LIMIT_S, now
                self._for_asked = False  # What is being written may have begun before what this one wants.
                return []
            case Ended():
                return self._ended(event, now)
            case TimeCame():
                return self._on_time(event.standing, now)

    def deadline(self) -> float | None:
        """Return when `TimeCame` must be told, or None."""
        if self._writing_since is not None:
            return None
        return min((time for time in (self._due, self._look_at) if time is not None), default=None)

    def _changed(self, event: Changed, now: float) -> list[Effect]:
        if self._dirty_since is None:
            self._dirty_since = now
        self._changed_at, self._looks = now, 0
        if not self._failures:
            due = min(now + CHECKPOINT_QUIET_S, self._dirty_since + CHECKPOINT_EVERY_S)
            soon = max(now + BULKY_QUIET_S, self._ended_at + BULKY_EVERY_S)
            self._due = min(due, soon) if event.bulky else due
        return []

    def _on_time(self, standing: Standing, now: float) -> list[Effect]:
        if self._writing_since is not None:
            return []
        if self._asked is not None and self._look_at is not None and now >= self._look_at:
            return self._settle(self._asked, standing, now)
        if self._due is None or now < self._due:
            return []
        self._due = None
        if self._followed:
            return []
        if standing.leads:
            return self._write(now)
        self._looks += 1
        if self._looks < LOOKS_MAX:
            self._due = now + CHECKPOINT_EVERY_S
        return []

    def _write(self, now: float, *, asked: bool = False, forced: bool = False) -> list[Effect]:
        self._writing_since, self._due, self._for_asked = now, None, asked
        return [Write(forced)]

    def _settle(self, asked: Asked, standing: Standing, now: float) -> list[Effect]:
        """See whether the checkpoint that was asked for can be written, or needs not be, or never can."""
        if asked.forced:
            return self._write(now, asked=True, forced=True)
        why = _unsettled(asked, standing)
        if why:
            if now < self._asked_until:
                self._look_at = now + SETTLE_LOOK_S
                return []
            return self._answer(why=why)
        if not standing.leads:
            return self._answer()
        pins = tuple(pin for pin in standing.pins if pin.seq > asked.gone.get(pin.replica, 0))
        if pins and not asked.pinned:
            return self._answer(why=_pinned(pins))
        if self.last is not None and self.last.place == standing.place:
            return self._answer(self.last)
        return self._write(now, asked=True)

    def _answer(self, last: LastCheckpoint | None = None, why: str = "") -> list[Effect]:
        self._asked = self._look_at = None
        name, seq = (last.name, last.seq) if last is not None else ("", Seq(0))
        return [Say(CheckpointWritten(self._kernel_id, name, seq, why))]

    def _ended(self, event: Ended, now: float) -> list[Effect]:
        began, self._writing_since = self._writing_since, None
        self._ended_at = now
        self.why, self._followed = event.why, event.followed
        if event.why:
            self._failures += 1
            if self._dirty_since is not None and not event.followed:
                delay_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(self._failures - 1, 8))
                self._due = now + delay_s
            return self._after_write(now, why=event.why)
        self._failures = 0
        self.last = LastCheckpoint(event.name, event.place, event.seq, event.execution_count)
        if began is not None and self._changed_at <= began:
            self._dirty_since = None
        elif self._dirty_since is not None:
            self._dirty_since = self._changed_at
            self._due = self._changed_at + CHECKPOINT_QUIET_S
        return self._after_write(now)

    def _after_write(self, now: float, why: str = "") -> list[Effect]:
        """Answer when this write was asked for; one that had begun before says nothing of the wish."""
        if self._asked is None:
            return []
        if not self._for_asked:
            self._look_at = now
            return []
        return self._answer(why=why) if why else self._answer(self.last)

    def check_invariants(self) -> None:
        """Raise AssertionError when a law of this file is broken."""
        assert self._asked is not None or self._look_at is None, "somebody looks for nobody"
        assert self._dirty_since is not None or self._due is None, "a write is due, and nothing has changed"
        waits = self._due is not None or self._writing_since is not None
        resigned = self._followed or self._looks >= LOOKS_MAX
        assert self._dirty_since is None or waits or resigned, "a commit is forgotten"


def _unsettled(asked: Asked, standing: Standing) -> str:
    """Return what keeps a whole checkpoint from being written for now, as a sentence; nothing when none."""
    if standing.busy:
        return "A cell runs, or what it changed is still on its way to the other replicas: try again later."
    if not standing.quorum:
        return "The majority of this kernel's replicas does not answer: see `replkernel status`."
    if standing.leads and standing.seq < asked.seq:
        return "What the last cell changed is not committed yet: try again later."
    lost = asked.gone.get(standing.executor, Seq(0)) >= standing.seq  # Its last whole point is all there is.
    if standing.leads and standing.owing and not lost:
        return "Large variables are still being checked for changes after the last cell: try again later."
    return ""


def _pinned(pins: tuple[Pin, ...]) -> str:
    pin = pins[0]
    more = f" and {len(pins) - 1} more" if len(pins) > 1 else ""
    return (
        f"`{pin.path or pin.name}` ({pin.type_name}){more} cannot be kept in a checkpoint: "
        f"{pin.reason.rstrip('.') or 'it cannot be copied'}; delete it, then hibernate "
        "(`%replkernel pins` lists all)."
    )
