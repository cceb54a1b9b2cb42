"""What a survey finds changed against the baseline, shipped as component records.

Law: the fingerprint of everything decides; what there was no time to ship stays unseen, and in the baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from replkernel.records import ComponentId, ComponentRecord, Delta, Pin, ReplicaId, Seq
from replkernel.state.capture.budget import GiveWay
from replkernel.state.capture.dump import Dump, roots_of
from replkernel.state.capture.shipping import Known as KnownChunks
from replkernel.state.capture.shipping import Shipper
from replkernel.state.capture.survey import Survey
from replkernel.state.capture.survey_order import HEAVY_S
from replkernel.state.component_table import PROCESS_PREFIX, Verification
from replkernel.state.names import UserNames
from replkernel.state.patches.book import book, is_place
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.python.kinds import type_name
from replkernel.state.replica_state import ReplicaState
from replkernel.state.restore.leaving import Leaving
from replkernel.state.tombstone import is_tombstone

SPARED_BYTES = 4 << 20
"""A sparing capture writes no more than this of a known component: else that is left to an audit."""

SHIPPED_AT_ONCE_BYTES = 1 << 20
"""A changed component of at most so many bytes is shipped even when somebody waits."""

Shipped = dict[ComponentId, tuple[Dump, KnownChunks]]


class Changes:
    """Finds and ships what changed in one process."""

    def __init__(
        self,
        replica_state: ReplicaState,
        leaving: Leaving,
        verification: Verification,
        shipper: Shipper,
        names: UserNames,
        unstored: Unstored,
    ) -> None:
        self._replica_state = replica_state
        self._leaving = leaving
        self._verification = verification
        self._shipper = shipper
        self.names = names.now
        """Returns the user's names in the order of the namespace, to which a subshell may be adding some."""
        self._unstored = unstored
        self.kept_back: set[str] = set()
        """What has changed since it was told, and is to be told later: the user wants it seldom."""

    # -- what is looked at ---------------------------------------------------------------------------

    def surveyed(self, names: list[str]) -> list[str]:
        """Return `names` without those that pending components will bind, unless the user bound them anew."""
        replica_state = self._replica_state
        if not replica_state.table.pending:
            return names
        waiting = self._waiting()
        unhealed = {name for names in replica_state.unhealed.values() for name in names}
        namespace = replica_state.namespace
        return [
            name
            for name in names
            if name not in waiting
            or name in replica_state.left.names
            or (name in unhealed and not is_tombstone(namespace[name]))
        ]

    def patches(self) -> dict[str, Any]:
        """Return what the notebook changed in libraries, without what pending components will put there."""
        patches = book.values()
        if patches and self._replica_state.table.pending:
            waiting = self._waiting()
            patches = {root: value for root, value in patches.items() if root not in waiting}
        return patches

    def _waiting(self) -> set[str]:
        """Return the names of the components that wait to be rebuilt."""
        with self._replica_state.lock:
            return {name for record in self._replica_state.table.waiting() for name in record.names}

    # -- what is told --------------------------------------------------------------------------------

    def compare(
        self, survey: Survey, seq: Seq
    ) -> tuple[list[ComponentRecord], Shipped, tuple[ComponentId, ...]]:
        """Return the records of changed components, what was shipped, and the components that are gone."""
        replica_state, baseline = self._replica_state, self._replica_state.baseline
        changed: list[Dump] = []
        kept = {baseline.cids[root] for root in survey.untouched}
        kept.update(baseline.cids[name] for seen in survey.bundles for name in seen.bundle.names)
        for unit in survey.units:
            cid = baseline.unchanged(unit)
            if cid is not None:
                kept.add(cid)
                if baseline.heavy or unit.seconds >= HEAVY_S:
                    baseline.seen(unit, replica_state.namespace)
            else:
                changed.append(unit)
        cids = name_components(changed, baseline.cids, kept, replica_state.table.records)
        shipped, records = self._ship(survey, dict(zip(map(id, changed), cids, strict=True)), seq)
        kept |= {baseline.cids[root] for root in survey.unseen if root in baseline.cids}
        if replica_state.table.pending:
            kept |= self._leaving.needed_classes()
        if survey.settled:
            kept |= {cid for root, cid in baseline.cids.items() if root.startswith(ROOT_PREFIX)}
        gone = [cid for cid in baseline.chunks if cid not in kept and cid not in shipped]
        return records, shipped, (*gone, *self._abandoned())

    def _ship(
        self, survey: Survey, cids: dict[int, ComponentId], seq: Seq
    ) -> tuple[Shipped, list[ComponentRecord]]:
        """Write the units of `cids`, the small ones first; what there is no time for is taken back."""
        chunks = self._replica_state.baseline.chunks
        told: dict[int, tuple[ComponentRecord, KnownChunks]] = {}
        changed = [unit for unit in survey.units if id(unit) in cids]
        torn: set[int] = set()
        survey.gate.guard()
        for unit in sorted(changed, key=Dump.size):
            cid = cids[id(unit)]
            check = survey.gate.check if unit.size() > SHIPPED_AT_ONCE_BYTES else lambda: None
            if id(unit) in torn:
                continue
            try:
                check()
                if self._hold_back(survey, unit, chunks.get(cid)):
                    torn = set(cids) - set(map(id, survey.units))
                    continue
                known, cell = chunks.get(cid) or KnownChunks(), self._replica_state.world.cell
                made = self._replica_state.provenance.of(roots_of(unit), cell)
                told[id(unit)] = self._shipper.ship(cid, unit, seq, known, check, cell=cell, made=made)
            except GiveWay:
                survey.gate.open()
                survey.take_back([other for other in changed if id(other) not in told])
                break
        units = [unit for unit in survey.units if id(unit) in told]
        shipped = {cids[id(unit)]: (unit, told[id(unit)][1]) for unit in units}
        return shipped, [told[id(unit)][0] for unit in units]

    def _hold_back(self, survey: Survey, unit: Dump, known: KnownChunks | None) -> bool:
        """Take a unit out again that is to be spared, or for which the store has no room.

        With it goes what cannot be told without it.
        """
        if known is not None and not survey.kept.isdisjoint(roots_of(unit)):
            self.kept_back.update(roots_of(unit))
            survey.take_back([unit])
            return True
        size = self._shipper.new_bytes(unit, known or KnownChunks())
        if survey.sparing and known is not None and size > SPARED_BYTES:
            survey.take_back([unit])
            return True
        why = self._unstored.refuses(size)
        if why:
            size = self._shipper.new_bytes(
                unit, known or KnownChunks(), self._replica_state.baseline.chunks.values()
            )
            why = self._unstored.refuses(size)
        if not why:
            return False
        before = set(survey.unseen)
        survey.take_back([unit])
        self._unstored.hold(survey.unseen - before, Held(unit.fingerprint, size, why))
        return True

    def _abandoned(self) -> list[ComponentId]:
        """Return the components never rebuilt here whose names the user has deleted or bound anew."""
        namespace = self._replica_state.namespace
        return [
            cid
            for cid, names in self._replica_state.unhealed.items()
            if not any(
                is_place(name) or (name in namespace and is_tombstone(namespace[name])) for name in names
            )
        ]

    def commit(self, delta: Delta, shipped: Shipped) -> None:
        """Take what a delta says as the new baseline."""
        replica_state, baseline = self._replica_state, self._replica_state.baseline
        baseline.forget_components([*delta.dropped, *(cid for cid in shipped if cid in baseline.chunks)])
        for cid, (unit, chunks) in shipped.items():
            baseline.set(cid, unit, replica_state.namespace, chunks)
            replica_state.provenance.bound(unit.roots)
        if delta.order is not None:
            replica_state.order = delta.order
        for cid in delta.dropped:
            replica_state.unhealed.pop(cid, None)
        with replica_state.lock:
            replica_state.table.apply(delta, own=True)
            self._verification.forget([*delta.dropped, *shipped])
            replica_state.table.unbound.clear()
            replica_state.left.keep(self._leaving.waiting_names())
            replica_state.mark = max(replica_state.mark, delta.mark)


# The variables for which the object store has no room: they stay in this process, by name, until there is.
#
# Law: what is held is told as a whole or not at all, and never keeps what else changed from being told.


class Room(Protocol):
    """What knows how much the store still takes."""

    def refuses(self, size: int) -> str:
        """Return in a clause why `size` bytes more do not fit, or an empty string."""

    def promise(self, size: int) -> None:
        """Take note that `size` bytes are on their way to the store."""


class Held(NamedTuple):
    """One variable (or class) that the store lacks: what it was when it was looked at, and what it needs."""

    fingerprint: bytes
    size: int
    why: str


class Unstored:
    """What one process holds because the store has no room for it; without a `room`, nothing."""

    def __init__(self, room: Room | None) -> None:
        self.held: dict[str, Held] = {}
        self.news: frozenset[str] = frozenset()
        """What the last capture found changed and held, for the first time or again."""
        self.told: list[str] = []
        """What has come to be held or stored since somebody looked, in sentences for the user."""
        self._room = room
        self._now: dict[str, Held] = {}

    def begin(self) -> None:
        """Begin a capture."""
        self._now = {}

    def refuses(self, size: int) -> str:
        """Return why a component of `size` new bytes cannot be stored; what can be is counted as sent."""
        if self._room is None or not size:
            return ""
        why = self._room.refuses(size)
        if not why:
            self._room.promise(size)
        return why

    def hold(self, roots: Iterable[str], held: Held) -> None:
        """Keep a component back, and what could not be told without it."""
        self._now.update((root, held) for root in roots)

    def holds(self, root: str) -> bool:
        """Tell whether the capture under way keeps `root` back."""
        return root in self._now

    def settle(self, unseen: Collection[str], namespace: Mapping[str, Any], since: Mapping[str, int]) -> None:
        """End a capture: what it did not come to stays held.

        `since` tells after which cell each was checked last, 0 where the log has no value of it.
        """
        before, now = self.held, self._now
        self.held = {**{root: item for root, item in before.items() if root in unseen}, **now}
        self.news = frozenset(
            root for root, item in now.items() if root not in before or before[root][0] != item.fingerprint
        )
        for root in sorted(filter(_is_variable, now.keys() - before.keys())):
            self.told.append(_kept_here(root, now[root], since.get(root, 0)))
        for root in sorted(before.keys() - self.held.keys()):
            if root in namespace:
                self.told.append(f"There is room for `{root}` in the object store again: it is being stored.")

    def variables(self) -> dict[str, str]:
        """Return the variables that are held, each with the reason."""
        return {root: item.why for root, item in sorted(self.held.items()) if _is_variable(root)}

    def fits(self) -> bool:
        """Tell whether there is room by now for something that is held."""
        room = self._room
        return room is not None and any(not room.refuses(item.size) for item in self.held.values())

    def pins(
        self, namespace: Mapping[str, Any], replica: ReplicaId, seq: Seq, cell: int = 0
    ) -> tuple[Pin, ...]:
        """Return what binds the notebook to this replica, which alone has these variables."""
        return tuple(
            Pin(root, type_name(namespace[root]), replica, seq, reason=f"{item.why}.", cell=cell)
            for root, item in self.held.items()
            if root in namespace
        )


def _is_variable(root: str) -> bool:
    """Tell whether a root is a name of the user's, and no class or place in a library."""
    return ":" not in root


def _kept_here(root: str, held: Held, since: int) -> str:
    meanwhile = (
        f"until then a crash takes the notebook back to cell {since}"
        if since
        else "everything else is durable without it"
    )
    return (
        f"`{root}` ({held.size / 2**20:.1f} MiB) is on this replica alone for now: {held.why}; free some "
        f"space or name another store (setting REPLKERNEL_STORE). It is stored as soon as there is room; "
        f"{meanwhile}."
    )


def name_components(
    units: Sequence[Dump],
    cids: Mapping[str, ComponentId],
    kept: set[ComponentId],
    taken: Iterable[ComponentId],
) -> list[ComponentId]:
    """Return an id for each unit: that of the component most of its roots were in, or a new one by its name.

    `kept` are the ids of unchanged components; `taken` are all ids in use.
    """
    if not units:
        return []
    claims: list[list[ComponentId]] = []
    for unit in units:
        roots = roots_of(unit)
        if len(roots) == 1:
            held = cids.get(roots[0])
            claims.append([held] if held is not None else [])
        else:
            counted = Counter(cids[root] for root in roots if root in cids)
            claims.append([cid for cid, _ in counted.most_common()])
    given: dict[ComponentId, None] = dict.fromkeys(kept)
    chosen: list[ComponentId | None] = []
    for claim in claims:
        cid = next((cid for cid in claim if cid not in given), None)
        if cid is not None:
            given[cid] = None
        chosen.append(cid)
    used = {*taken, *given}
    return [
        cid if cid is not None else _new_id(roots_of(unit)[0], used)
        for unit, cid in zip(units, chosen, strict=True)
    ]


def _new_id(root: str, used: set[ComponentId]) -> ComponentId:
    base = root if not root.startswith(PROCESS_PREFIX) else f"~{root}"
    cid, number = ComponentId(base), 1
    while cid in used:
        number += 1
        cid = ComponentId(f"{base}~{number}")
    used.add(cid)
    return cid
