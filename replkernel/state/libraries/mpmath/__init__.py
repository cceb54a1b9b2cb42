"""mpmath."""

from __future__ import annotations

from replkernel.state.libraries.mpmath.precision import precision, set_precision
from replkernel.state.library import Library, Setting

LIBRARY = Library(
    name="mpmath",
    reducers={"mpmath": "replkernel.state.libraries.mpmath.contexts"},
    settings={"contexts of mpmath": Setting(("mpmath", "sympy"), precision, set_precision)},
)
