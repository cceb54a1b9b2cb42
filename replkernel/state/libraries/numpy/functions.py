"""The functions of the notebook by which numpy prints numbers, and which it calls on floating point errors.

numpy keeps them in a context, where no attribute or entry leads to them: they are asked for and set by name.
"""

from __future__ import annotations

import sys
from typing import Any

MODULE = "numpy"
FORMATTER, REPR, CALLBACK = "formatter", "override_repr", "function"
GIVEN_TO = {FORMATTER: "set_printoptions", REPR: "set_printoptions", CALLBACK: "seterrcall"}
"""The function of numpy's that each is given to."""


def held() -> dict[str, Any]:
    """Return the options that hold a function of the notebook's, by name."""
    numpy = sys.modules.get(MODULE)
    if numpy is None or not hasattr(numpy, "geterrcall"):
        return {}
    options = numpy.get_printoptions()
    found = {
        FORMATTER: _kept(options.get(FORMATTER)),
        REPR: options.get(REPR),
        CALLBACK: numpy.geterrcall(),
    }
    return {name: value for name, value in found.items() if value is not None}


def _kept(formatter: Any) -> object:
    """Return the formatters, unless all are a text's own ``format``: these are plain."""
    from replkernel.state.libraries.pandas.options import plain_format

    if type(formatter) is not dict:
        return None
    return None if all(plain_format(one) is not one for one in formatter.values()) else formatter


def read(name: str) -> Any:
    """Return what an option holds; None for nothing."""
    return held().get(name)


def put(name: str, value: object) -> None:
    """Make a function, or None, what an option holds."""
    if name == CALLBACK:
        sys.modules[MODULE].seterrcall(value)
    else:
        set_printing({name: value})


def set_printing(changed: dict[str, Any]) -> None:
    """Set print options; numpy itself forgets the functions that it is not given again."""
    numpy = sys.modules[MODULE]
    options = numpy.get_printoptions()
    kept = {name: options[name] for name in (FORMATTER, REPR) if name in options}
    given = {**kept, **changed}
    if given.get(REPR) is None:
        given.pop(REPR, None)
    numpy.set_printoptions(**given)
