"""``@numpy_random``: the state of numpy's global (legacy) generator, of whatever bit generator it is made.

Law: numpy is never imported from here; a state that arrives before numpy waits for it.
"""

from __future__ import annotations

import sys
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain

TWISTER = "MT19937"


class NumpyRandomPart(Part[tuple[Any, ...]]):
    """The generator behind ``numpy.random.rand()``; looking draws nothing from it."""

    cid = ComponentId("@numpy_random")
    library = "numpy.random"

    def look(self) -> tuple[Any, ...]:
        """Return the generator's whole state, cached gaussian included."""
        state = sys.modules["numpy.random"].get_state(legacy=False)
        inner = state["state"]
        if state["bit_generator"] == TWISTER:
            return (TWISTER, inner["key"].tobytes(), inner["pos"], state["has_gauss"], state["gauss"])
        return (state["bit_generator"], _to_plain(state))

    def pack(self, seen: tuple[Any, ...]) -> bytes:
        """Write the state."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Set the generator to a state, changing its bit generator where that was changed."""
        numpy_random = sys.modules["numpy.random"]
        name, *rest = decode_plain(data)
        if numpy_random.get_state(legacy=False)["bit_generator"] != name:
            numpy_random.set_bit_generator(getattr(numpy_random, name)())
        if name == TWISTER:
            key, position, has_gauss, gauss = rest
            words = sys.modules["numpy"].frombuffer(key, dtype="uint32")
            numpy_random.set_state((TWISTER, words, position, has_gauss, gauss))
        else:
            numpy_random.set_state(_from_plain(rest[0]))


def reseed_numpy() -> None:
    """Seed numpy's global generator afresh where numpy was imported before a fork, as a new process would."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _to_plain(value: Any) -> object:
    """Return a bit generator's state with arrays as bytes and integers of any size as text."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return ["text", value]
    if isinstance(value, float):
        return ["float", value]
    if hasattr(value, "tobytes") and getattr(value, "ndim", None):
        return ["array", value.dtype.str, value.tobytes()]
    return ["integer", str(int(value))]


def _from_plain(value: Any) -> object:
    if isinstance(value, dict):
        return {key: _from_plain(item) for key, item in value.items()}
    if value[0] == "array":
        return sys.modules["numpy"].frombuffer(value[2], dtype=value[1]).copy()
    return int(value[1]) if value[0] == "integer" else value[1]
