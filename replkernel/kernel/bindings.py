"""What binds the notebook to one replica: pins, and variables that were rebuilt here otherwise than captured.

Law: a cell is declined before anything of it has begun, and only while another replica has what is true.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from replkernel.kernel.execution import State
from replkernel.protocol.envelope import Envelope
from replkernel.records import ComponentId, Delta, Pin


class Bindings:
    """The bindings that one replica knows of."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pins: dict[str, tuple[Pin, ...]] = {}
        """The pins of each component that has any, and of the process under the empty id."""
        self._missed: set[Pin] = set()
        """Unfaithful variables without which cells have been run here, for nobody had them."""

    def note(self, delta: Delta) -> None:
        """Take the pins of a delta, of this process or another."""
        for cid in delta.removes(ComponentId(cid) for cid in self._pins):
            self._pins.pop(cid, None)
        for component in delta.components:
            self._pins[component.cid] = component.pins
        self._pins[""] = delta.pins

    def since(self, pins: Iterable[Pin], cell: int) -> tuple[Pin, ...]:
        """Return pins of the process as of `cell`; those that it had before have the cell that they had."""
        here = self._state.replica
        before = {pin.name: pin.cell for pin in self._pins.get("", ()) if pin.replica == here}
        return tuple(replace(pin, cell=before.get(pin.name) or cell) for pin in pins)

    def pins(self) -> list[Pin]:
        """Return every pin that holds now."""
        return [pin for pins in list(self._pins.values()) for pin in pins]

    def hold_here(self) -> bool:
        """Tell whether something of the notebook lives here alone: its code may run at any time."""
        return any(pin.replica == self._state.replica for pin in self.pins())

    def unfaithful(self) -> tuple[Pin, ...]:
        """Return the variables that were rebuilt here otherwise than captured."""
        return tuple(pin for component in self._state.unfaithful for pin in component.pins)

    def declined(self, envelope: Envelope) -> tuple[Pin, ...]:
        """Return the variables that are not true here and that another replica has, if it can be had."""
        lacking = [pin for pin in self.unfaithful() if pin.replica != self._state.replica]
        if envelope.anyway:
            self._missed.update(lacking)
        return tuple(pin for pin in lacking if pin not in self._missed)
