"""The component table: which names are bound to which captured bytes, after every applied delta.

Pure and deterministic. Laws: a name belongs to exactly one component, and a component that binds no name
is gone, except process state, whose ids begin with ``@``; while variables of the last execution are still
to be audited, the way back to the last whole point is kept, so the table can always be as of one execution.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replkernel.protocol.timeline import Difference
from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Fence,
    Mark,
    Pin,
    ReplicaId,
    Seq,
    Unaudited,
)
from replkernel.replication.history import LASTING, Change, History, HistoryState

COMPONENTS_MAX = 100_000
"""No kernel has more components than this; a delta beyond it is refused."""

PROCESS_MARK = "@"


NAMES_TOLD_MAX = 1000
"""No more names than this are told to differ."""


class Point(msgspec.Struct, omit_defaults=True):
    """The newest whole point, while the table is ahead of it, and what the table was there.

    `components` has those that have changed since: as they were, None where there was none.
    """

    mark: Mark = Mark(Seq(0))
    components: dict[ComponentId, ComponentRecord | None] = {}
    order: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    execution_count: int = 0
    unaudited: tuple[Unaudited, ...] = ()


class TableState(msgspec.Struct, omit_defaults=True):
    """What of the table goes into a snapshot. Order of insertion is part of the state.

    Without a `point` the table is whole itself.
    """

    components: dict[ComponentId, ComponentRecord] = {}
    order: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    execution_count: int = 0
    unaudited: tuple[Unaudited, ...] = ()
    point: Point | None = None
    history: HistoryState = msgspec.field(default_factory=HistoryState)


def _sizes(table: TableState, cids: Iterable[ComponentId], beside: TableState) -> dict[str, int]:
    """Return the names of components that are others `beside`, with what they take."""
    records = [
        table.components.get(cid) for cid in cids if table.components.get(cid) != beside.components.get(cid)
    ]
    return {
        name: one.state_bytes
        for one in records
        if one is not None and not one.cid.startswith(LASTING)
        for name in one.names or (one.cid,)
    }


class ComponentTable:
    """The components, the names that they bind, the namespace's order and the process-level pins."""

    def __init__(self, state: TableState) -> None:
        self.state = state
        self.history = History(state.history)
        self.names: dict[str, ComponentId] = {
            name: cid for cid, component in state.components.items() for name in component.names
        }
        self._bytes = sum(component.state_bytes for component in state.components.values())
        self._pinned = {cid for cid, component in state.components.items() if component.pins}

    def refusal(self, delta: Delta) -> str:
        """Return why `delta` cannot be taken, or an empty string."""
        if len(self.state.components) + len(delta.components) > COMPONENTS_MAX:
            return (
                f"The kernel would have more than {COMPONENTS_MAX:,} separate variables; "
                "delete some, or keep them in one container."
            )
        return ""

    def apply(self, delta: Delta, before: Mark) -> Delta | None:
        """Take `delta` over after `before`: drop, then set; names move to the component that lists them.

        Return all that has changed since the last whole point, when this is one; None when it is none.
        """
        ahead = self.state.point is not None
        if self.state.point is None:
            self.state.point = self._here(before)
        self._take(delta)
        self.history.heard(delta)
        point = self.state.point
        if not delta.whole:
            gone = [cid for cid, was in point.components.items() if was is None]
            for cid in gone:
                if cid not in self.state.components:
                    del point.components[cid]
            return None
        self.state.point = None
        order = None if self.state.order == point.order else point.order
        change = Change(point.components, order, self.state.components)
        self.history.reached(delta.mark, delta.execution_count, change)
        return self._since(point, delta) if ahead else delta

    def _here(self, mark: Mark) -> Point:
        state = self.state
        return Point(mark, {}, state.order, state.pins, state.execution_count, state.unaudited)

    def _since(self, point: Point, last: Delta) -> Delta:
        """Return one delta that leads from a whole point to the table, which `last` has made whole."""
        now = {cid: self.state.components.get(cid) for cid in point.components}
        return msgspec.structs.replace(
            last,
            components=tuple(record for record in now.values() if record is not None),
            dropped=tuple(cid for cid, record in now.items() if record is None),
            order=None if self.state.order == point.order else self.state.order,
        )

    def fall_back(self) -> Mark | None:
        """Make the table what it was at the last whole point, and return its mark; None when it is whole."""
        point, self.state.point = self.state.point, None
        if point is None:
            return None
        self.history.forget_pending()
        for cid in point.components:
            self._drop(cid)
        for record in point.components.values():
            if record is not None:
                self._put(record)
        self.state.order, self.state.pins = point.order, point.pins
        self.state.execution_count, self.state.unaudited = point.execution_count, point.unaudited
        return point.mark

    def whole(self) -> TableState:
        """Return the table as of the last whole point; not to be changed."""
        point = self.state.point
        if point is None:
            return self.state
        components = {cid: one for cid, one in self.state.components.items() if cid not in point.components}
        components.update((cid, was) for cid, was in point.components.items() if was is not None)
        return TableState(components, point.order, point.pins, point.execution_count, point.unaudited)

    def named(self) -> list[ComponentRecord]:
        """Return all components whose bytes may be needed: those of the table and of the way back."""
        point = self.state.point
        before = () if point is None else point.components.values()
        past = self.history.records()
        return [*self.state.components.values(), *(was for was in before if was is not None), *past]

    def at(self, mark: Mark) -> TableState | None:
        """Return the table as it was at a point of the history, self-contained; None where it is not kept.

        Cells and prompts, which are not part of the past, are those of the whole point of now.
        """
        back = self.history.back_to(mark)
        if back is None:
            return None
        now = self.whole()
        components = {cid: one for cid, one in now.components.items() if cid not in back.components}
        components.update((cid, was) for cid, was in back.components.items() if was is not None)
        order = now.order if back.order is None else back.order
        return TableState(components, order, now.pins, now.execution_count)

    def differences(self, one: Mark, other: Mark) -> tuple[Difference, ...]:
        """Return which variables differ between two points; none where one of them is not kept."""
        first, second = self.at(one), self.at(other)
        if first is None or second is None:
            return ()
        cids = first.components.keys() | second.components.keys()
        before, after = (_sizes(table, cids, beside) for table, beside in ((first, second), (second, first)))
        names = sorted(before.keys() | after.keys())
        return tuple(Difference(name, before.get(name), after.get(name)) for name in names[:NAMES_TOLD_MAX])

    def way_to(self, mark: Mark) -> Delta | None:
        """Return what leads from the whole point of now to a point of the history; None without one.

        Whoever proposes it gives it the number of an execution.
        """
        then = self.at(mark)
        if then is None:
            return None
        now = self.whole()
        changed = [one for cid, one in then.components.items() if now.components.get(cid) != one]
        gone = [cid for cid in now.components if cid not in then.components]
        order = None if then.order == now.order else then.order
        return Delta(
            Seq(0), Fence(0), ReplicaId(""), now.execution_count, tuple(changed), tuple(gone), now.pins, order
        )

    def _take(self, delta: Delta) -> None:
        for cid in delta.dropped:
            self._drop(cid)
        for component in delta.components:
            self._set(component)
        self.state.pins = delta.pins
        self.state.unaudited = delta.unaudited
        self.state.execution_count = delta.execution_count
        if delta.order is not None:
            self.state.order = delta.order

    def _keep(self, cid: ComponentId) -> None:
        """Keep what a component is before it changes, as long as that may be needed again."""
        point = self.state.point
        if point is not None and cid not in point.components:
            point.components[cid] = self.state.components.get(cid)

    def _drop(self, cid: ComponentId) -> None:
        self._keep(cid)
        component = self.state.components.pop(cid, None)
        if component is not None:
            self._note_gone(component)
            for name in component.names:
                del self.names[name]

    def _set(self, component: ComponentRecord) -> None:
        self._drop(component.cid)
        for name in component.names:
            self._take_name(name)
        if component.names or component.cid.startswith(PROCESS_MARK):
            self._put(component)

    def _put(self, component: ComponentRecord) -> None:
        """Enter a component whose names nobody else has."""
        self.state.components[component.cid] = component
        self._bytes += component.state_bytes
        if component.pins:
            self._pinned.add(component.cid)
        self.names.update(dict.fromkeys(component.names, component.cid))

    def _take_name(self, name: str) -> None:
        holder = self.names.pop(name, None)
        if holder is None:
            return
        self._keep(holder)
        component = self.state.components[holder]
        left = tuple(other for other in component.names if other != name)
        if left or holder.startswith(PROCESS_MARK):
            self.state.components[holder] = msgspec.structs.replace(component, names=left)
        else:
            del self.state.components[holder]
            self._note_gone(component)

    def _note_gone(self, component: ComponentRecord) -> None:
        self._bytes -= component.state_bytes
        self._pinned.discard(component.cid)

    def all_pins(self) -> tuple[Pin, ...]:
        """Return the process-level pins, then those inside components."""
        if not self._pinned:
            return self.state.pins
        inside = (pin for component in self.state.components.values() for pin in component.pins)
        return (*self.state.pins, *inside)

    def state_bytes(self) -> int:
        """Return how many bytes of captured state the components stand for."""
        return self._bytes

    def check_invariants(self) -> None:
        """Raise AssertionError when a law of the table does not hold."""
        for cid, component in self.state.components.items():
            assert cid == component.cid, f"{cid} files {component.cid}"
            assert component.names or cid.startswith(PROCESS_MARK), f"{cid} binds no name"
            for name in component.names:
                assert self.names.get(name) == cid, f"{name} of {cid} is filed under {self.names.get(name)}"
        components = self.state.components.values()
        assert self._bytes == sum(component.state_bytes for component in components), "bytes are miscounted"
        assert self._pinned == {component.cid for component in components if component.pins}, "pins are lost"
        bound = sum(len(set(component.names)) for component in components)
        assert bound == len(self.names), "a name belongs to two components, or to none"
        self.history.check_invariants()
        point = self.state.point
        if point is not None:
            before = [name for one in self.whole().components.values() for name in one.names]
            assert len(before) == len(set(before)), "a name belonged to two components at the whole point"
            known = (was is not None or cid in self.state.components for cid, was in point.components.items())
            assert all(known), "the way back names what neither the table nor the point has"
