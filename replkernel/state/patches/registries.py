"""Places that a notebook changes by calling a library: open figures, widgets, hooks of all modules, colour
maps, adapters of SQLite, who hears of warnings and signals, types of pandas, overloads, what torch may load.

A library is asked once it is imported (`_OF_LIBRARIES`), what Python has itself where it is not as it was.
Law: looking costs a few microseconds while nothing is there, and imports nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sqlite3
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from operator import is_
from typing import Any

from replkernel.state.libraries.matplotlib import open_figures as pyplot
from replkernel.state.libraries.numpy import functions as numpy_functions
from replkernel.state.patches import given
from replkernel.state.patches.places import (
    ADAPTER,
    ATTRIBUTE,
    CONTENT,
    ENTRY,
    FIGURES,
    GIVEN,
    ITEM,
    LOGGER,
    UNKNOWN,
    Absent,
    Place,
    class_label,
)
from replkernel.state.python.kinds import Odd, key_of, module_of
from replkernel.state.python.logging import places as loggers

TORCH_MODULE, TORCH_OPTIMIZER = "torch.nn.modules.module", "torch.optim.optimizer"
_NOTEBOOK = "__main__"


def changed_places() -> Iterator[tuple[Place, Any]]:
    """Find the places that hold something else than when their library was imported, with what that was."""
    yield from _logging()
    yield from adapters_of_sqlite()
    if _something_was_given():
        for module, function, which in given.changed_entries():
            yield Place(GIVEN, module, function, which), Absent
    yield from _listeners_to_warnings()
    if _NOTEBOOK in vars(typing).get("_overload_registry", ()):
        yield Place(ITEM, "typing", "_overload_registry", json.dumps(_NOTEBOOK)), Absent
    for module, find in _OF_LIBRARIES.items():
        if module in sys.modules:
            yield from find()


_MADE_FOR_LOGGING = {"_loggerClass": logging.Logger, "_logRecordFactory": logging.LogRecord}
"""What makes loggers and records, where the notebook has set nothing else."""


def _logging() -> Iterator[tuple[Place, Any]]:
    """Find who hears of loggers, the levels that the notebook named, and what makes loggers and records."""
    for name in loggers.equipped() if loggers.born is not None else ():
        yield Place(LOGGER, loggers.MODULE, loggers.OWNER, name), Absent
    held = vars(logging)
    if any(held[table] != first for table, first in loggers.FIRST_LEVELS.items()):
        for table, key, first in loggers.changed_entries():
            yield Place(ITEM, loggers.MODULE, table, key), Absent if first is None else first
    for name, kind in _MADE_FOR_LOGGING.items():
        if held[name] is not kind:
            yield Place(ATTRIBUTE, loggers.MODULE, "", name), kind


_SQLITE, _ADAPTERS, _CONVERTERS = "sqlite3", "adapters", "converters"
_adapters: dict[Any, Any] = vars(sqlite3)[_ADAPTERS]
_converters: dict[str, Any] = vars(sqlite3)[_CONVERTERS]
_FIRST_ADAPTERS, _FIRST_CONVERTERS = dict(_adapters), dict(_converters)
_EVERY_KERNELS = "IPython."
"""What IPython adds for its history is every kernel's."""


def adapters_of_sqlite() -> Iterator[tuple[Place, Any]]:
    """Find what `sqlite3` was told to make of Python's values and of SQLite's: it is the whole process's."""
    if _adapters != _FIRST_ADAPTERS:
        for key, function in list(_adapters.items()):
            before = Absent if key_of(key[0]) is Odd else _FIRST_ADAPTERS.get(key, Absent)
            theirs = before is function or _is_every_kernels(function)
            if not theirs and key[1] is sqlite3.PrepareProtocol:
                first = Absent if before is Absent else (key[0], before)
                yield Place(ADAPTER, _SQLITE, _ADAPTERS, class_label(key[0])), first
    if _converters != _FIRST_CONVERTERS:
        for name, function in list(_converters.items()):
            before = _FIRST_CONVERTERS.get(name, Absent)
            if before is not function and not _is_every_kernels(function):
                yield Place(ITEM, _SQLITE, _CONVERTERS, json.dumps(name)), before


def _is_every_kernels(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith(_EVERY_KERNELS)


def _something_was_given() -> bool:
    """Tell whether a signal has another handler than at birth, or the running event loop has been set up."""
    handlers = map(given.handler_of, given.born)
    loop = asyncio._get_running_loop()
    held = (getattr(loop, name, None) for name in given.KEPT_UNDER.values())
    return not all(map(is_, handlers, given.born.values())) or any(one is not None for one in held)


def _numpy_functions() -> Iterator[tuple[Place, Any]]:
    for name in numpy_functions.held():
        yield Place(GIVEN, numpy_functions.MODULE, numpy_functions.GIVEN_TO[name], name), Absent


def _open_figures() -> Iterator[tuple[Place, Any]]:
    if getattr(getattr(sys.modules[pyplot.MODULE], "Gcf", None), "figs", None):
        yield Place(FIGURES, pyplot.MODULE, pyplot.OWNER, ""), Absent


def _module_hooks() -> Iterator[tuple[Place, Any]]:
    for module, (last, names) in _HOOKS.items():
        held = vars(sys.modules.get(module, object))
        for name in names if last in held else ():
            for key in held.get(name) or ():
                yield Place(ITEM, module, name, json.dumps(key)), Absent


_HOOKS = {
    TORCH_MODULE: ("Module", (
        "_global_forward_pre_hooks",
        "_global_forward_hooks",
        "_global_forward_hooks_always_called",
        "_global_forward_hooks_with_kwargs",
        "_global_backward_pre_hooks",
        "_global_backward_hooks",
        "_global_buffer_registration_hooks",
        "_global_module_registration_hooks",
        "_global_parameter_registration_hooks",
    )),
    TORCH_OPTIMIZER: ("Optimizer", ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")),
}  # fmt: skip
"""Where torch keeps the hooks of all modules and of all optimizers, once the class is there."""


def _colormaps() -> Iterator[tuple[Place, Any]]:
    registry = getattr(sys.modules.get("matplotlib"), "colormaps", None)
    maps, built_in = getattr(registry, "_cmaps", None), getattr(registry, "_builtin_cmaps", ())
    if not maps or len(maps) <= len(built_in):
        return
    of_library = vars(sys.modules.get("seaborn.cm", object))
    for name in maps.keys() - set(built_in):
        if name.removesuffix("_r") not in of_library:
            yield Place(ITEM, "matplotlib", "colormaps._cmaps", json.dumps(name)), Absent


def _yaml_tags() -> Iterator[tuple[Place, Any]]:
    """Find the tables of YAML's loaders and dumpers that a call gave them: at first they share others'."""
    for module in _YAML:
        for name, cls in list(vars(sys.modules.get(module, object)).items()):
            if type(cls) is type and cls.__module__ == module:
                for table in vars(cls):
                    if table.startswith("yaml_"):
                        yield Place(ATTRIBUTE, module, name, table), Absent


_YAML = ("yaml.loader", "yaml.dumper", "yaml.cyaml")


_SHOWING = {
    name: held
    for name in ("showwarning", "_showwarnmsg_impl")
    if type(held := vars(warnings)[name]) is types.FunctionType and held.__module__ == "warnings"
}
"""Python's own functions that show a warning; `catch_warnings` puts the append of its list there."""
FIRSTS = {Place(ATTRIBUTE, "warnings", "", name).root(): held for name, held in _SHOWING.items()}
"""What was at places when this process began, of those that a library's own code changes as well."""
FIRST_ROOTS = {id(held): root for root, held in FIRSTS.items()}


def _listeners_to_warnings() -> Iterator[tuple[Place, Any]]:
    held = vars(warnings)
    for name, first in _SHOWING.items():
        if held[name] is not first and held[name] is not vars(logging)["_showwarning"]:
            yield Place(ATTRIBUTE, "warnings", "", name), first


def _sympy_printing() -> Iterator[tuple[Place, Any]]:
    """Find what `sympy.init_printing` sets beside the formatters of the shell."""
    printable = vars(sys.modules.get(_SYMPY_HELPERS, object)).get("Printable")
    if printable is None:
        return
    disabled = vars(printable).get("_repr_disabled")
    for name in ("_repr_png_", "_repr_svg_", "_repr_latex_"):
        held = vars(printable).get(name)
        own = disabled if name != "_repr_latex_" else None
        if held is not own and getattr(held, "__qualname__", "") != f"Printable.{name}":
            yield Place(ATTRIBUTE, _SYMPY_HELPERS, "Printable", name), UNKNOWN if own is None else own
    printer = vars(sys.modules.get(_SYMPY_PRINTER, object)).get("Printer")
    for key in vars(printer).get("_global_settings", ()) if printer is not None else ():
        yield Place(ITEM, _SYMPY_PRINTER, "Printer._global_settings", json.dumps(key)), Absent


_SYMPY_HELPERS, _SYMPY_PRINTER = "sympy.core._print_helpers", "sympy.printing.printer"


def _pandas_types() -> Iterator[tuple[Place, Any]]:
    """Find the list of pandas' types that know their name, once it has one of the notebook's."""
    known = getattr(vars(sys.modules.get(_PANDAS_TYPES, object)).get("_registry"), "dtypes", None)
    if type(known) is list and any(module_of(kind) == "__main__" for kind in known):
        first = [kind for kind in known if module_of(kind) != "__main__"]
        yield Place(CONTENT, _PANDAS_TYPES, "_registry.dtypes", ""), first


_PANDAS_TYPES = "pandas.core.dtypes.base"


def _torch_loading() -> Iterator[tuple[Place, Any]]:
    """Find the set of what `torch.load` may make of weights, once it has something of the notebook's."""
    held = vars(sys.modules.get(_TORCH_LOADING, object)).get(_SAFE)
    first = {one for one in held or () if _module_behind(one) != _NOTEBOOK}
    if held and len(first) < len(held):
        yield Place(ATTRIBUTE, _TORCH_LOADING, "", _SAFE), first


def _module_behind(allowed: object) -> str:
    """Return the module of what may be made, which may stand in a pair with its name."""
    return str(getattr(allowed[0] if type(allowed) is tuple else allowed, "__module__", ""))


_TORCH_LOADING, _SAFE = "torch._weights_only_unpickler", "_marked_safe_globals_set"


def _bokeh_document() -> Iterator[tuple[Place, Any]]:
    """Find the document to which bokeh's `curdoc` leads, once something has been put into it."""
    state = vars(sys.modules.get(_BOKEH_STATE, object)).get("_STATE")
    document = getattr(state, "_document", None)
    told = vars(document) if document is not None else {}
    if (
        told.get("_roots")
        or told.get("_title", _BOKEH_TITLE) != _BOKEH_TITLE
        or told.get("_template_variables")
    ):
        yield Place(ATTRIBUTE, _BOKEH_STATE, "", "_STATE"), None


_BOKEH_STATE, _BOKEH_TITLE = "bokeh.io.state", "Bokeh Application"


def _dask_callbacks() -> Iterator[tuple[Place, Any]]:
    """Find the set of dask's callbacks, once one (a progress bar) is registered for every computation."""
    cls = vars(sys.modules.get(_DASK_CALLBACKS, object)).get("Callback")
    if cls is not None and vars(cls).get("active"):
        yield Place(CONTENT, _DASK_CALLBACKS, "Callback.active", ""), set()


_DASK_CALLBACKS = "dask.callbacks"


def _pandas_formats() -> Iterator[tuple[Place, Any]]:
    """Find the options of pandas that hold a function: the others are plain, and not told here."""
    held = vars(sys.modules.get(PANDAS_OPTIONS, object)).get("_global_config")
    for section, options in held.items() if type(held) is dict else ():
        for name, value in options.items() if type(options) is dict else ():
            if type(value) is types.FunctionType:
                yield Place(ITEM, PANDAS_OPTIONS, f"_global_config.{section}", json.dumps(name)), None


PANDAS_OPTIONS = "pandas._config.config"


def _ways_told_to_dill() -> Iterator[tuple[Place, Any]]:
    """Find the types for which the notebook registered with dill how they are copied."""
    pickler = vars(sys.modules.get(_DILL, object)).get("Pickler")
    for kind, save in list(vars(pickler)["dispatch"].items()) if pickler is not None else ():
        if getattr(save, "__module__", "") == _NOTEBOOK:
            yield Place(ENTRY, _DILL, "Pickler.dispatch", class_label(kind)), Absent


_DILL = "dill._dill"


def _widgets() -> Iterator[tuple[Place, Any]]:
    """Find the widgets that call something when a page moves them: ipywidgets itself keeps them alive."""
    if not vars(sys.modules.get(_WIDGETS, object)).get(_ALIVE):
        return
    reducers = importlib.import_module(_WIDGET_REDUCERS)  # By name, as reducers are: it imports the library.
    for key in reducers.called_back():
        yield Place(ITEM, _WIDGETS, _ALIVE, key), Absent


_WIDGETS, _ALIVE = "ipywidgets.widgets.widget", "_instances"
_WIDGET_REDUCERS = "replkernel.state.libraries.ipywidgets"


_OF_LIBRARIES: dict[str, Callable[[], Iterator[tuple[Place, Any]]]] = {
    "numpy": _numpy_functions,
    pyplot.MODULE: _open_figures,
    "matplotlib": _colormaps,
    TORCH_MODULE: _module_hooks,
    _TORCH_LOADING: _torch_loading,
    "yaml": _yaml_tags,
    _SYMPY_HELPERS: _sympy_printing,
    _PANDAS_TYPES: _pandas_types,
    PANDAS_OPTIONS: _pandas_formats,
    _BOKEH_STATE: _bokeh_document,
    _DASK_CALLBACKS: _dask_callbacks,
    _DILL: _ways_told_to_dill,
    _WIDGETS: _widgets,
}
"""By module: what finds such places once it is imported."""
