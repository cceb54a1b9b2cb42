"""``@numpy_options``: how numpy prints, and what it does on floating point errors.

Options that hold a function of the notebook's are places (`patches/given`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.libraries.numpy import functions as numpy_functions
from replkernel.state.libraries.pandas.options import made_format, plain_format
from replkernel.state.process.part import OptionsPart

PRINT = "print."
ERROR = "error."
BUFFER = "buffer size"


class NumpyOptionsPart(OptionsPart):
    """``numpy.set_printoptions``, ``numpy.seterr`` and ``numpy.seterrcall``."""

    cid = ComponentId("@numpy_options")
    library = "numpy"

    def look(self) -> dict[str, Any]:
        """Return all options under one mapping."""
        numpy = sys.modules["numpy"]
        options = {PRINT + name: value for name, value in numpy.get_printoptions().items()}
        options.update((ERROR + name, value) for name, value in numpy.geterr().items())
        for name in numpy_functions.held():
            options.pop(PRINT + name, None)
        options[BUFFER] = numpy.getbufsize()
        return options

    def to_plain(self, name: str, value: Any) -> object:
        """Return the value; of formatters that are a text's own ``format``, the texts."""
        return {key: plain_format(one) for key, one in value.items()} if type(value) is dict else value

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set print and error options; numpy has no option that could be removed."""
        numpy = sys.modules["numpy"]
        printing = {name[len(PRINT) :]: value for name, value in changed.items() if name.startswith(PRINT)}
        errors = {name[len(ERROR) :]: value for name, value in changed.items() if name.startswith(ERROR)}
        if printing.get("formatter"):
            made = {key: made_format(told) for key, told in printing["formatter"].items()}
            printing["formatter"] = made
        if printing:
            numpy_functions.set_printing(printing)
        numpy.seterr(**errors)
        if BUFFER in changed:
            numpy.setbufsize(changed[BUFFER])
