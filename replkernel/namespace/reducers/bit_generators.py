"""numpy's bit generators: the one behind ``numpy.random``'s own functions travels by reference.

Law: imported only when numpy is; the state of numpy's own generator travels as `@numpy_random`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.namespace.reducers.sentinels import plan_for_library

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

def reduce_bit_generator(pickler: CapturePickler, generator: Any) -> Any:
    """Reduce a bit generator: by reference where numpy's own functions draw from it."""
    if generator is np.random.get_bit_generator():
        pickler.unlinked.add(id(generator))
        return np.random.get_bit_generator, ()
    return plan_for_library(type(generator))(pickler, generator)


FAMILIES = [(np.random.BitGenerator, reduce_bit_generator)]
