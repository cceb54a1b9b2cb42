"""Options of Arrow's functions (`CountOptions` and the like), by Arrow's own text for them.

Law: imported only when Arrow's functions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow
from pyarrow import compute

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_options(context: ReducerContext, options: compute.FunctionOptions) -> object:
    """Reduce the options of a function."""
    context.module_needed("pyarrow.compute")
    return make_options, (options.serialize().to_pybytes(),)


@loader("pyarrow-compute:make_options")
def make_options(told: bytes) -> object:
    """Return the options of a function (called by payloads)."""
    return compute.FunctionOptions.deserialize(pyarrow.py_buffer(told))


FAMILIES = [(compute.FunctionOptions, reduce_options)]
