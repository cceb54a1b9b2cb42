"""How the settings that few notebooks touch are read and set, one pair of functions each.

Law: a reader returns a plain value, or None while the setting's library is not imported; it changes nothing.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import itertools
import os
import resource
import socket
import sys
import threading
from importlib import import_module
from typing import Any

from replkernel.hosts.disk_path import DiskPath
from replkernel.state.process.decimal_context import adjust, described
from replkernel.state.python.asyncio.callbacks import running_loop

collecting: list[bool] = []
"""Whether garbage was collected when a capture, which stops that for its own time, began."""

_LIMITS = (
    "RLIMIT_AS",
    "RLIMIT_CORE",
    "RLIMIT_CPU",
    "RLIMIT_DATA",
    "RLIMIT_FSIZE",
    "RLIMIT_MEMLOCK",
    "RLIMIT_NOFILE",
    "RLIMIT_NPROC",
    "RLIMIT_RSS",
    "RLIMIT_STACK",
)


def collection() -> list[Any]:
    """Return whether garbage is collected, at which thresholds, with which flags for debugging."""
    enabled = collecting[0] if collecting else gc.isenabled()
    return [enabled, list(gc.get_threshold()), gc.get_debug()]


def set_collection(value: list[Any]) -> None:
    """Set them."""
    enabled, thresholds, flags = value
    gc.set_threshold(*thresholds)
    gc.set_debug(flags)
    if enabled:
        gc.enable()
    else:
        gc.disable()


def stack_size() -> int:
    """Return the stack size of new threads; asking for it sets it to the default, so it is put back."""
    size = threading.stack_size()
    if size:
        threading.stack_size(size)
    return size


def set_stack_size(value: int) -> None:
    """Set it."""
    threading.stack_size(value)


def socket_timeout() -> list[Any]:
    """Return the timeout of new sockets, in a list because it may be None."""
    return [socket.getdefaulttimeout()]


def set_socket_timeout(value: list[Any]) -> None:
    """Set it."""
    socket.setdefaulttimeout(value[0])


def fault_handler() -> bool:
    """Return whether tracebacks are written when the process crashes."""
    return faulthandler.is_enabled()


def set_fault_handler(value: bool) -> None:
    """Have them written, or not."""
    if value:
        faulthandler.enable(sys.__stderr__ or 2)
    else:
        faulthandler.disable()


def umask() -> int | None:
    """Return the mask of new files' modes; reading it by changing it would hit other threads' files."""
    for line in DiskPath("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return None


def set_umask(value: int) -> None:
    """Set it."""
    os.umask(value)


def limits() -> dict[str, list[int]]:
    """Return the soft and hard resource limits."""
    known = [name for name in _LIMITS if hasattr(resource, name)]
    return {name: list(resource.getrlimit(getattr(resource, name))) for name in known}


def set_limits(value: dict[str, list[int]]) -> None:
    """Set those that differ."""
    present = limits()
    for name, pair in value.items():
        if present.get(name) != pair:
            resource.setrlimit(getattr(resource, name), (pair[0], pair[1]))


def priority() -> int:
    """Return the process's niceness."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def set_priority(value: int) -> None:
    """Set it."""
    os.setpriority(os.PRIO_PROCESS, 0, value)


def start_method() -> str | None:
    """Return how child processes start, once somebody said so."""
    context = getattr(sys.modules.get("multiprocessing.context"), "_default_context", None)
    chosen = getattr(context, "_actual_context", None)
    return None if chosen is None else str(chosen.get_start_method())


def set_start_method(value: str) -> None:
    """Say how they start."""
    import_module("multiprocessing").set_start_method(value, force=True)


def loop_policy() -> str | None:
    """Return the module and class of asyncio's policy, when a library's was set."""
    chosen = getattr(sys.modules.get("asyncio.events"), "_event_loop_policy", None)
    kind = type(chosen)
    return None if chosen is None else f"{kind.__module__}:{kind.__qualname__}"


def set_loop_policy(value: str) -> None:
    """Set a policy of that class; one of the notebook's own has no name to be found by."""
    module, _, name = value.partition(":")
    policy: Any = getattr(import_module(module), name)
    import_module("asyncio").set_event_loop_policy(policy())


def loop_switches() -> list[Any] | None:
    """Return whether the running event loop debugs, and which callbacks it then calls slow."""
    loop = running_loop()
    return None if loop is None else [loop.get_debug(), loop.slow_callback_duration]


def set_loop_switches(value: list[Any]) -> None:
    """Set them; where no loop runs, those of the loop that is going to."""
    loop: Any = running_loop() or asyncio.get_event_loop_policy().get_event_loop()
    debug, slow_s = value
    if loop.get_debug() != debug:
        loop.set_debug(debug)
    loop.slow_callback_duration = slow_s


def file_types() -> list[Any] | None:
    """Return the types by extension that were added to those of the system."""
    library: Any = sys.modules.get("mimetypes")
    if library is None or library._db is None:
        return None
    built_in = library._types_map_default
    types = library._db.types_map[True]
    return [[end, name] for end, name in types.items() if built_in.get(end) != name]


def set_file_types(value: list[Any]) -> None:
    """Add them."""
    library = import_module("mimetypes")
    for end, name in value:
        library.add_type(name, end)


_DIALECT = (
    "delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting", "skipinitialspace",
    "strict",
)  # fmt: skip


def dialects() -> list[Any] | None:
    """Return csv's dialects by name, and the size that its fields may have."""
    library: Any = sys.modules.get("csv")
    if library is None:
        return None
    known = [(name, library.get_dialect(name)) for name in library.list_dialects()]
    settings = [[name, [getattr(one, setting) for setting in _DIALECT]] for name, one in known]
    return [settings, library.field_size_limit()]


def set_dialects(value: list[Any]) -> None:
    """Register these and no others, anew: they are listed in that order."""
    library = import_module("csv")
    settings, size = value
    for name in library.list_dialects():
        library.unregister_dialect(name)
    for name, parts in settings:
        library.register_dialect(name, **dict(zip(_DIALECT, parts, strict=True)))
    library.field_size_limit(size)


_CONTEXTS = ("DefaultContext", "BasicContext", "ExtendedContext")
"""What `decimal` begins its contexts with, in other threads too."""


def contexts() -> dict[str, Any] | None:
    """Return what `decimal`'s own contexts are set to."""
    library: Any = sys.modules.get("decimal")
    return library and {name: described(getattr(library, name)) for name in _CONTEXTS}


def set_contexts(value: dict[str, Any]) -> None:
    """Set them."""
    library = import_module("decimal")
    for name, settings in value.items():
        adjust(getattr(library, name), settings)


def first_weekday() -> int | None:
    """Return the day on which `calendar` has weeks begin."""
    library: Any = sys.modules.get("calendar")
    return library and int(library.firstweekday())


def set_first_weekday(value: int) -> None:
    """Have them begin on it."""
    import_module("calendar").setfirstweekday(value)


_COUNTED: dict[str, tuple[str, str]] = {
    "threading": ("", "_counter"),
    "concurrent.futures.thread": ("ThreadPoolExecutor", "_counter"),
}
"""Modules that number their threads, the class in each, and the attribute that counts."""


def _counting(module: str) -> Any:
    """Return what holds a module's counter; None where it counts otherwise, or is not imported."""
    owner, name = _COUNTED[module]
    held: object = sys.modules.get(module)
    held = getattr(held, owner, None) if owner else held
    counter = getattr(getattr(held, name, None), "__self__", None)
    return held if type(counter) is itertools.count else None


def _next_number(held: object, name: str) -> int:
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
