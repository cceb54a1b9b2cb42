"""The component table: which names are bound to which captured bytes, after every applied delta.

Pure and deterministic. Law: a name belongs to exactly one component, and a component that binds no name
is gone, except process state, whose ids begin with ``@``.
"""

from __future__ import annotations

import msgspec

from replkernel.records import ComponentId, ComponentRecord, Delta, Pin, Unaudited

COMPONENTS_MAX = 100_000
"""No kernel has more components than this; a delta beyond it is refused."""

PROCESS_MARK = "@"


class TableState(msgspec.Struct, omit_defaults=True):
    """What of the table goes into a snapshot. Order of insertion is part of the state."""

    components: dict[ComponentId, ComponentRecord] = {}
    order: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    execution_count: int = 0
    unaudited: tuple[Unaudited, ...] = ()


class ComponentTable:
    """The components, the names that they bind, the namespace's order and the process-level pins."""

    def __init__(self, state: TableState) -> None:
        self.state = state
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

    def apply(self, delta: Delta) -> None:
        """Take `delta` over: drop, then set; names move to the component that lists them."""
        for cid in delta.dropped:
            self._drop(cid)
        for component in delta.components:
            self._set(component)
        self.state.pins = delta.pins
        self.state.unaudited = delta.unaudited
        self.state.execution_count = delta.execution_count
        if delta.order is not None:
            self.state.order = delta.order

    def _drop(self, cid: ComponentId) -> None:
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
            self.state.components[component.cid] = component
            self._bytes += component.state_bytes
            if component.pins:
                self._pinned.add(component.cid)
            self.names.update(dict.fromkeys(component.names, component.cid))

    def _take_name(self, name: str) -> None:
        holder = self.names.pop(name, None)
        if holder is None:
            return
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
