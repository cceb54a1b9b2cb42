"""The libraries that captures know something of: the built-in records, and those of installed packages.

A package brings a record by an entry point of the group ``replkernel.libraries``. They are read at a
kernel process's birth, and anew where something was installed since.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from typing import Any, NamedTuple

from replkernel.state.libraries import (
    matplotlib,
    mpmath,
    nest_asyncio,
    numpy,
    pandas,
    pillow,
    polars,
    pyarrow,
    pydantic,
    scipy,
    seaborn,
    sklearn,
    torch,
    xarray,
)
from replkernel.state.libraries.checks import faults
from replkernel.state.library import Counter, Generator, Library
from replkernel.state.process.part import Part

GROUP = "replkernel.libraries"
_HERE = "replkernel.state.libraries"

log = logging.getLogger(__name__)


def _one_file(name: str, module: str, *, loads: bool = True) -> Library:
    """Return the record of a library of which only objects are known: its reducers are in one file."""
    home = f"{_HERE}.{name}"
    return Library(name=name, reducers={module: home}, loaders={name: (home,)} if loads else {})


BUILT_IN = (
    nest_asyncio.LIBRARY,
    numpy.LIBRARY,
    pandas.LIBRARY,
    sklearn.LIBRARY,
    matplotlib.LIBRARY,
    seaborn.LIBRARY,
    torch.LIBRARY,
    scipy.LIBRARY,
    polars.LIBRARY,
    pyarrow.LIBRARY,
    pillow.LIBRARY,
    pydantic.LIBRARY,
    xarray.LIBRARY,
    mpmath.LIBRARY,
    _one_file("attrs", "attr._make"),
    _one_file("bokeh", "bokeh.core.property.wrappers"),
    _one_file("botocore", "botocore.client", loads=False),
    _one_file("bs4", "bs4"),
    _one_file("dask", "dask._expr"),
    _one_file("duckdb", "duckdb"),
    _one_file("h5py", "h5py"),
    _one_file("ipywidgets", "ipywidgets.widgets.widget"),
    _one_file("jinja2", "jinja2.environment"),
    _one_file("numba", "numba.core.registry"),
    _one_file("patsy", "patsy.design_info", loads=False),
    _one_file("plotly", "plotly.basedatatypes"),
    _one_file("psutil", "psutil", loads=False),
    _one_file("requests", "requests.models", loads=False),
    _one_file("rpds", "rpds", loads=False),
    _one_file("sqlalchemy", "sqlalchemy.event"),
    _one_file("statsmodels", "statsmodels.base.data", loads=False),
    _one_file("tqdm", "tqdm.std"),
    _one_file("traitlets", "traitlets.traitlets"),
    _one_file("wrapt", "wrapt"),
    Library(name="faker", generators=(Generator("faker.generator", "random", ("aker",)),)),
    _one_file("msgspec", "msgspec"),
    Library(
        name="sympy",
        reducers={"sympy.core": f"{_HERE}.sympy"},
        loaders={"sympy": (f"{_HERE}.sympy",)},
        counters=(Counter("sympy.core.symbol", "Dummy", "_count"),),
        generators=(Generator("sympy.core.random", "rng", ("sympy.core.random",)),),
    ),
)
"""In the order in which their parts are set: seaborn keeps what it finds of matplotlib's settings."""

_installed: tuple[Library, ...] = ()
_looked_at: tuple[tuple[str, int], ...] = ()


reducers: dict[str, str] = {}
"""Where the reducers for the classes of a module are, by that module."""


def _find_reducers() -> None:
    reducers.clear()
    for library in libraries():
        for module, home in library.reducers.items():
            reducers.setdefault(module, home)


def libraries() -> tuple[Library, ...]:
    """Return the records that are known: the built-in ones, then those of installed packages."""
    return (*BUILT_IN, *_installed)


def look() -> None:
    """Read the records of installed packages, where a directory of `sys.path` has changed since then."""
    global _installed, _looked_at
    now = tuple((place, _changed_ns(place)) for place in sys.path)
    if now == _looked_at:
        return
    before, _looked_at = _looked_at, now
    if _brings_nothing(before, now):
        return
    importlib.invalidate_caches()
    found = installed()
    for fault in found.faults:
        log.warning("%s", fault)
    _installed = tuple(found.records.values())
    _find_reducers()


def _brings_nothing(before: tuple[tuple[str, int], ...], now: tuple[tuple[str, int], ...]) -> bool:
    """Tell whether all that came to the path is places without packages, as a kernel's own directory is.

    To read the records of all packages is a sixth of a kernel process's start.
    """
    if not before or [one for one in now if one in before] != list(before):
        return False
    added = [place for place, changed in now if (place, changed) not in before]
    return not any(True for _ in importlib.metadata.distributions(path=added))


def _changed_ns(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return 0


class Installed(NamedTuple):
    """The records of installed packages by the names of their entry points, and why others are ignored."""

    records: dict[str, Library]
    faults: list[str]


def installed() -> Installed:
    """Read the records that packages installed here bring."""
    found = Installed({}, [])
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            record = entry.load()
            wrong = list(faults(record, (*BUILT_IN, *found.records.values())))
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            told = "; ".join(wrong)
            found.faults.append(f"The record {entry.name!r} of a library ({entry.value}) is ignored: {told}.")
        else:
            found.records[entry.name] = record
    return found


def foreign_parts(of: str) -> tuple[Part[Any], ...]:
    """Make the `parts` or `random_parts` of installed records; one that cannot be made is left out."""
    made: list[Part[Any]] = []
    for part in (part for record in _installed for part in getattr(record, of)):
        try:
            made.append(part())
        except Exception:
            log.exception("The state of a library that %s describes does not travel.", part.__qualname__)
    return tuple(made)


def homes(topic: str) -> tuple[str, ...]:
    """Return the modules that bring the loaders of a topic."""
    return tuple(module for record in libraries() for module in record.loaders.get(topic, ()))


_find_reducers()
