"""The generators of random numbers that libraries keep for all: which there are, and their states."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from replkernel.records import ComponentId
from replkernel.state.capture import sentinels
from replkernel.state.libraries.index import libraries
from replkernel.state.library import Generator, Setting
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain
from replkernel.state.python import left_out

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def generators() -> Iterator[tuple[tuple[str, str], random.Random]]:
    """Find the generators of the libraries that are imported, by module and name."""
    for one, held in _imported().values():
        yield (one.module, one.name), held


def _imported() -> dict[str, tuple[Generator, random.Random]]:
    """Return the generators that are there by what they are told by, each with its record."""
    found: dict[str, tuple[Generator, random.Random]] = {}
    for told, one in _known().items():
        held = vars(sys.modules[one.module]).get(one.name) if one.module in sys.modules else None
        if type(held) is random.Random:
            found[told] = one, held
    return found


def _known() -> dict[str, Generator]:
    """Return the generators by what they are told by: the first of a module by its name alone."""
    found: dict[str, Generator] = {}
    for one in (one for library in libraries() for one in library.generators):
        found[f"{one.module}:{one.name}" if one.module in found else one.module] = one
    return found


def _states() -> dict[str, Any] | None:
    return {told: held.getstate() for told, (_, held) in _imported().items()} or None


def _set_states(value: dict[str, Any]) -> None:
    known = _known()
    for told, (version, numbers, gauss_next) in value.items():
        if told in known:
            held = vars(import_module(known[told].module))[known[told].name]
            held.setstate((version, tuple(numbers), gauss_next))


def setting() -> Setting:
    """Return the states of all of them as one setting, for the words of each."""
    words = [word for library in libraries() for one in library.generators for word in one.words]
    return Setting(tuple(dict.fromkeys(words)), _states, _set_states)


# ``@counters``: numbers that libraries hand out one after the other, and that must not come twice.


class CountersPart(Part[dict[str, int]]):
    """Counters of symbols and of hooks: another process goes on where this one is."""

    cid = ComponentId("@counters")

    def __init__(self) -> None:
        self._waits: dict[str, int] = {}
        super().__init__()

    def look(self) -> dict[str, int]:
        """Return the counters by their modules."""
        self._go_on()
        found = {module: int(getattr(owner, name)) for module, owner, name in _counters()}
        return {**self._waits, **found}

    def pack(self, seen: dict[str, int]) -> bytes | None:
        """Write the counters once something has been counted."""
        return encode_plain(seen) if any(seen.values()) else None

    def apply(self, data: bytes) -> None:
        """Go on counting where another process was, as soon as the library is there."""
        self._waits.update(decode_plain(data))
        self._go_on()

    def settle(self) -> bool:
        """Set the counters of libraries that were imported since."""
        done = super().settle()
        if self._waits:
            self._go_on()
            self._seen = self.look()
        return done

    def _go_on(self) -> None:
        for module, owner, name in _counters() if self._waits else ():
            told = self._waits.pop(module, 0)
            setattr(owner, name, max(told, int(getattr(owner, name))))


def _counters() -> Iterator[tuple[str, Any, str]]:
    """Find the counters of the libraries that are imported; the first of a module goes by its name alone."""
    met: set[str] = set()
    for counter in (counter for library in libraries() for counter in library.counters):
        told = f"{counter.module}:{counter.owner}.{counter.name}" if counter.module in met else counter.module
        met.add(counter.module)
        found: Any = sys.modules.get(counter.module, object)
        held = vars(found).get(counter.owner) if counter.owner else found
        if held is not None and counter.name in vars(held):
            yield told, held, counter.name


_natural = sentinels.plan_for_library(random.Random)


def reduce_generator(pickler: UnitContext, generator: random.Random) -> Any:
    """Reduce a generator of Python's."""
    for (module, name), held in generators():
        if held is generator:
            pickler.touched = True
            pickler.modules.add(module)
            pickler.unlinked.add(id(generator))
            return sentinels.attribute, (module, name)
    reduced = _natural(pickler, generator)
    has_attributes = vars(generator).keys() > {"gauss_next"}
    return (
        left_out.reduce_random(pickler, generator)
        if has_attributes and reduced[0] is random.Random
        else reduced
    )


EXACT: dict[type, Any] = {random.Random: reduce_generator}
