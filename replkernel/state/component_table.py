"""The replicated table of components as this process knows it: what of it is still to be rebuilt, what may be
rebuilt now, and what was rebuilt otherwise than it was captured.

Law: pure; a name belongs to one component, and the newest delta that lists it says to which.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replkernel.records import ComponentId, ComponentRecord, Delta, Payload, Pin, ReplicaId
from replkernel.state.tombstone import Loss

PROCESS_PREFIX = "@"
"""The ids of process state begin with it."""


class ComponentTable:
    """All components by id, who owns which name, and the names that belong to nobody any more."""

    def __init__(self) -> None:
        self.records: dict[ComponentId, ComponentRecord] = {}
        self.owners: dict[str, ComponentId] = {}
        self.origins: dict[ComponentId, ReplicaId] = {}
        self.pending: dict[ComponentId, None] = {}
        self.unbound: dict[str, None] = {}
        self.order: tuple[str, ...] | None = None
        self.given_up: set[str] = set()
        """The names taken from components that everybody else still has under them."""
        self.coded_parts: set[ComponentId] = set()
        """The process parts that carry functions or classes of the notebook."""

    @property
    def state_bytes(self) -> int:
        """Return the bytes of all components."""
        return sum(record.state_bytes for record in self.records.values())

    @property
    def pending_bytes(self) -> int:
        """Return the bytes of the components that wait to be rebuilt."""
        return sum(self.records[cid].state_bytes for cid in self.pending)

    def apply(self, delta: Delta, *, own: bool) -> None:
        """Take a delta in; a foreign one leaves its components pending."""
        for cid in delta.removes(self.records):
            self._drop(cid)
        for record in delta.components:
            self._set(record)
            self.origins[record.cid] = delta.replica
            if record.cid.startswith(PROCESS_PREFIX):
                self._note_part(record)
            if own:
                self.settle(record.cid)
            else:
                self.pending.pop(record.cid, None)
                self.pending[record.cid] = None
        if delta.order is not None:
            self.order = None if own else delta.order

    def _note_part(self, record: ComponentRecord) -> None:
        head = record.payload.head
        plain = record.cid.startswith(_PLAIN_PARTS)
        coded = not plain and (head is None or any(mark in head for mark in _MAKERS))
        (self.coded_parts.add if coded else self.coded_parts.discard)(record.cid)

    def settle(self, cid: ComponentId) -> None:
        """Note that a component is here, live: its payload is no longer kept."""
        self.pending.pop(cid, None)
        record = self.records.get(cid)
        if record is not None:
            self.records[cid] = msgspec.structs.replace(record, payload=_NO_PAYLOAD)

    def waiting(self) -> list[ComponentRecord]:
        """Return the components to be rebuilt, oldest first."""
        return [self.records[cid] for cid in self.pending]

    def owned_names(self, record: ComponentRecord) -> list[str]:
        """Return the names of `record` that still are its own."""
        return [name for name in record.names if self.owners.get(name) == record.cid]

    def give_up(self, name: str) -> None:
        """Take a name from its component: the user has bound it to something that is not shipped yet."""
        holder = self.owners.pop(name, None)
        if holder is not None:
            self._take_away(name, holder)
            self.given_up.add(name)

    def has_older(self, name: str) -> bool:
        """Tell whether the log has a value of `name`, be it an older one."""
        return name in self.owners or name in self.given_up

    def take_unbound(self) -> list[str]:
        """Return, once, the names that were dropped and that nobody has taken since."""
        names = [name for name in self.unbound if name not in self.owners]
        self.unbound.clear()
        return names

    def _drop(self, cid: ComponentId) -> None:
        record = self.records.pop(cid, None)
        self.origins.pop(cid, None)
        self.pending.pop(cid, None)
        if record is not None:
            self._disown(record.names, cid)

    def _disown(self, names: Iterable[str], cid: ComponentId) -> None:
        for name in names:
            if self.owners.get(name) == cid:
                del self.owners[name]
                self.unbound[name] = None

    def _set(self, record: ComponentRecord) -> None:
        cid = record.cid
        before = self.records.get(cid)
        if before is not None:
            self._disown(set(before.names) - set(record.names), cid)
        for name in record.names:
            holder = self.owners.get(name)
            if holder is not None and holder != cid:
                self._take_away(name, holder)
            self.owners[name] = cid
            self.given_up.discard(name)
        self.records[cid] = record

    def _take_away(self, name: str, holder: ComponentId) -> None:
        record = self.records[holder]
        left = tuple(kept for kept in record.names if kept != name)
        if left:
            self.records[holder] = msgspec.structs.replace(record, names=left)
        else:
            del self.records[holder]
            self.pending.pop(holder, None)


_NO_PAYLOAD = Payload()

_PLAIN_PARTS = ("@cells/", "@history")
"""Process parts that carry texts and nothing else."""

_MAKERS = (b"make_function", b"resolve_class")
"""What makes functions and refers to classes in the payload of a process part that carries any."""


class Devices:
    """Which components may be rebuilt in this process now: those that lie on leased GPUs wait for a lease.

    Where GPUs are leased, nothing is rebuilt onto one but for a cell that has some; where nobody leases any,
    all may be rebuilt at any time.
    """

    def __init__(self) -> None:
        self.leased = False
        """Whether GPUs are leased, so that what lies on one is captured as needing a lease."""
        self._lent = False

    def lend(self, gpus: tuple[str, ...] | None, *, leased: bool = True) -> None:
        """Take note of the GPUs of the cell that begins, and whether any are `leased` at all."""
        self.leased = leased or gpus is not None
        self._lent = bool(gpus) or not self.leased

    def take_back(self) -> None:
        """Take note that no cell runs: whoever leases GPUs has none now."""
        self._lent = self._lent and not self.leased

    def may_have(self, record: ComponentRecord) -> bool:
        """Tell whether a component may be rebuilt here now."""
        return self._lent or not record.gpus


PINS_MAX = 100
"""No more pins of one component are told; the tombstones are all there."""


class Unfaithful(msgspec.Struct, frozen=True):
    """A component that was rebuilt otherwise than captured: one pin for each part of it that is lost."""

    cid: ComponentId
    pins: tuple[Pin, ...]


class Verification:
    """The components of this process that are not as they were captured, or not known to be.

    An unfaithful one is a pin of the replica that made it; it stays here until it is gone, comes anew, or is
    made here.
    """

    def __init__(self) -> None:
        self._wrong: dict[ComponentId, Unfaithful] = {}
        self._suspected: dict[ComponentId, Unfaithful] = {}
        """What could not be rebuilt in idle time: it is told like what is wrong, and tried again."""
        self._open: set[ComponentId] = set()

    @property
    def unfaithful(self) -> tuple[Unfaithful, ...]:
        """Return what is wrong here, and what most likely is."""
        return (*self._wrong.values(), *self._suspected.values())

    @property
    def unproven(self) -> int:
        """Return how many components could not be proven."""
        return len(self._open)

    def note(self, cid: ComponentId, *, proven: bool) -> None:
        """Enter a component that is bound."""
        self.forget([cid])
        if not proven:
            self._open.add(cid)

    def condemn(self, cid: ComponentId, losses: Iterable[Loss]) -> Unfaithful:
        """Enter an unfaithful component by the losses that stand for it."""
        self.forget([cid])
        self._wrong[cid] = Unfaithful(cid, tuple(loss.pin() for loss in losses)[:PINS_MAX])
        return self._wrong[cid]

    def suspect(self, cid: ComponentId, losses: Iterable[Loss]) -> None:
        """Enter a component that could not be rebuilt in idle time, and waits to be tried once more."""
        self._suspected[cid] = Unfaithful(cid, tuple(loss.pin() for loss in losses)[:PINS_MAX])

    def forget(self, cids: Iterable[ComponentId]) -> None:
        """Take out components that are gone, or come anew."""
        for cid in cids:
            self._wrong.pop(cid, None)
            self._suspected.pop(cid, None)
            self._open.discard(cid)
