"""Generators of random numbers: one that a library draws from travels by the library's name for it.

Its state is a setting of the process (`process/library_generators`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from replkernel.state.capture import sentinels
from replkernel.state.process.library_generators import generators

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_natural = sentinels.plan_for_library(random.Random)


def reduce_generator(pickler: UnitContext, generator: random.Random) -> object:
    """Reduce a generator of Python's."""
    for (module, name), held in generators():
        if held is generator:
            pickler.touched = True
            pickler.modules.add(module)
            pickler.unlinked.add(id(generator))
            return sentinels.attribute, (module, name)
    return _natural(pickler, generator)


EXACT: dict[type, Any] = {random.Random: reduce_generator}
