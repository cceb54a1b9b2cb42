"""The generators of random numbers that libraries keep for all: which there are, and their states."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from replkernel.state.libraries.index import libraries
from replkernel.state.library import Generator, Setting


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
