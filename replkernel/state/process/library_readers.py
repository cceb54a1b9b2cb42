"""How settings and counters of libraries that few notebooks touch are read and set, two functions each.

Law: a reader returns a plain value, or None while the library is not imported; it changes nothing.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any


def xarray_options() -> dict[str, Any] | None:
    """Return what ``xarray.set_options`` sets."""
    library: Any = sys.modules.get("xarray.core.options")
    return library and dict(library.OPTIONS)


def set_xarray_options(value: dict[str, Any]) -> None:
    """Set the options that differ; what xarray checks to be a tuple came as a list."""
    library = import_module("xarray.core.options")
    told = {name: tuple(held) if type(held) is list else held for name, held in value.items()}
    library.set_options(**{name: held for name, held in told.items() if library.OPTIONS.get(name) != held})


def special_errors() -> dict[str, str] | None:
    """Return what the special functions of scipy do on errors."""
    library: Any = sys.modules.get("scipy.special")
    return library and dict(library.geterr())


def set_special_errors(value: dict[str, str]) -> None:
    """Set it."""
    import_module("scipy.special").seterr(**value)


def polars_formats() -> dict[str, Any] | None:
    """Return how polars shows numbers; what else it is told is in the environment."""
    library: Any = sys.modules.get("polars")
    return library and dict(json.loads(library.Config.save())["direct"])


def set_polars_formats(value: dict[str, Any]) -> None:
    """Set it."""
    import_module("polars").Config.load(json.dumps({"environment": {}, "direct": value}))


GENERATORS = (("faker.generator", "random"), ("sympy.core.random", "rng"))
"""Generators of random numbers that libraries keep for all who use them: modules, and the names there."""


def generators() -> Iterator[tuple[tuple[str, str], random.Random]]:
    """Find the generators of the libraries that are imported."""
    for module, name in GENERATORS:
        held = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if type(held) is random.Random:
            yield (module, name), held


def generator_states() -> dict[str, Any] | None:
    """Return the states of these generators by their modules."""
    found = {module: held.getstate() for (module, _), held in generators()}
    return found or None


def set_generator_states(value: dict[str, Any]) -> None:
    """Set them."""
    names = dict(GENERATORS)
    for module, (version, numbers, gauss_next) in value.items():
        held = vars(import_module(module))[names[module]]
        held.setstate((version, tuple(numbers), gauss_next))


def arrow_threads() -> dict[str, int] | None:
    """Return how many threads Arrow uses."""
    library: Any = sys.modules.get("pyarrow")
    if library is None or not hasattr(library, "io_thread_count"):
        return None
    return {"cpu": library.cpu_count(), "io": library.io_thread_count()}


def set_arrow_threads(value: dict[str, int]) -> None:
    """Set it."""
    library = import_module("pyarrow")
    library.set_cpu_count(value["cpu"])
    library.set_io_thread_count(value["io"])


_COUNTED: dict[str, tuple[str, str]] = {
    "threading": ("", "_counter"),
    "concurrent.futures.thread": ("ThreadPoolExecutor", "_counter"),
}
"""Modules that number their threads, the class in each, and the attribute that counts."""


def _counting(module: str) -> Any:
    """Return what holds a module's counter; None where it counts otherwise, or is not imported."""
    owner, name = _COUNTED[module]
    held: Any = sys.modules.get(module)
    held = getattr(held, owner, None) if owner else held
    counter = getattr(getattr(held, name, None), "__self__", None)
    return held if type(counter) is itertools.count else None


def _next_number(held: Any, name: str) -> int:
    return int(getattr(held, name).__self__.__reduce__()[1][0])


def thread_numbers() -> dict[str, int]:
    """Return the numbers that the next nameless thread, and the next nameless pool of threads, get."""
    found = {module: _counting(module) for module in _COUNTED}
    return {
        module: _next_number(held, _COUNTED[module][1]) for module, held in found.items() if held is not None
    }


def set_thread_numbers(value: dict[str, int]) -> None:
    """Go on counting where another process was; none that was given here is given again."""
    for module, told in value.items():
        held = _counting(import_module(module).__name__) if module in _COUNTED else None
        if held is not None:
            name = _COUNTED[module][1]
            setattr(held, name, itertools.count(max(told, _next_number(held, name))).__next__)


_NUMBER_SETTINGS = ("dps", "prec", "pretty", "trap_complex")
"""Decimal places come first: setting them sets the bits as well."""


def number_contexts() -> dict[str, dict[str, Any]] | None:
    """Return how precise mpmath's contexts are, and how they show their numbers."""
    library: Any = sys.modules.get("mpmath")
    contexts = {name: getattr(library, name, None) for name in ("mp", "iv")}
    found = {
        name: {key: vars(context)[key] for key in ("pretty", "trap_complex") if key in vars(context)}
        | {"dps": context.dps, "prec": context.prec}
        for name, context in contexts.items()
        if context is not None
    }
    return found or None


def set_number_contexts(value: dict[str, dict[str, Any]]) -> None:
    """Set them."""
    library = import_module("mpmath")
    for name, told in value.items():
        context = getattr(library, name)
        for key in _NUMBER_SETTINGS:
            if key in told and getattr(context, key) != told[key]:
                setattr(context, key, told[key])
