"""numpy's bit generators: the one behind ``numpy.random``'s own functions travels by reference.

Law: imported only when numpy is; the state of numpy's own generator travels as `@numpy_random`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.namespace.reducers.sentinels import plan_for_library

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


_library: Any = np.random
_own_generator = _library.get_bit_generator


def reduce_bit_generator(pickler: CapturePickler, generator: Any) -> Any:
    """Reduce a bit generator: by reference where numpy's own functions draw from it."""
    if generator is _own_generator():
        pickler.unlinked.add(id(generator))
        return _own_generator, ()
    return plan_for_library(type(generator))(pickler, generator)


FAMILIES = [(np.random.BitGenerator, reduce_bit_generator)]
