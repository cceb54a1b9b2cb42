"""The generators of random numbers that libraries keep for all: which there are, and their states."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from replkernel.state.libraries.index import libraries
from replkernel.state.library import Setting


def generators() -> Iterator[tuple[tuple[str, str], random.Random]]:
    """Find the generators of the libraries that are imported, by module and name."""
    for module, name in _names().items():
        held = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if type(held) is random.Random:
            yield (module, name), held


def _names() -> dict[str, str]:
    return {one.module: one.name for library in libraries() for one in library.generators}


def _states() -> dict[str, Any] | None:
    found = {module: held.getstate() for (module, _), held in generators()}
    return found or None


def _set_states(value: dict[str, Any]) -> None:
    names = _names()
    for module, (version, numbers, gauss_next) in value.items():
        held = vars(import_module(module))[names[module]]
        held.setstate((version, tuple(numbers), gauss_next))


def setting() -> Setting:
    """Return the states of all of them as one setting, for the words of each."""
    words = [word for library in libraries() for one in library.generators for word in one.words]
    return Setting(tuple(dict.fromkeys(words)), _states, _set_states)
