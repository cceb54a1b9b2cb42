"""``@seldom``: limits and switches of process and libraries that few notebooks touch.

Each is looked at once a cell has named it, in its own text or in that of a cell before it.
Law: what cannot travel (functions for the exit, tracers) is told as stuck.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.libraries.index import libraries
from replkernel.state.libraries.ipython.notebook_function import is_notebooks
from replkernel.state.library import Setting
from replkernel.state.process import library_generators
from replkernel.state.process import seldom_readers as readers
from replkernel.state.process.descriptors import Descriptors
from replkernel.state.process.part import OptionsPart, are_equal

TIES = "\0ties"
"""Under this name, `look` says what ties the notebook to this process."""


_OF_PYTHON = {
    "garbage collection": Setting(("gc.", "import gc"), readers.collection, readers.set_collection),
    "stack size of threads": Setting(("stack_size",), readers.stack_size, readers.set_stack_size),
    "timeout of sockets": Setting(("defaulttimeout",), readers.socket_timeout, readers.set_socket_timeout),
    "fault handler": Setting(("faulthandler",), readers.fault_handler, readers.set_fault_handler),
    "umask": Setting(("umask",), readers.umask, readers.set_umask),
    "resource limits": Setting(("rlimit",), readers.limits, readers.set_limits),
    "priority": Setting(("nice", "setpriority"), readers.priority, readers.set_priority),
    "start method": Setting(("start_method",), readers.start_method, readers.set_start_method),
    "event loop policy": Setting(("policy", "uvloop"), readers.loop_policy, readers.set_loop_policy),
    "switches of the event loop": Setting(
        ("set_debug", "slow_callback_duration"), readers.loop_switches, readers.set_loop_switches
    ),
    "decimal contexts": Setting(
        ("DefaultContext", "BasicContext", "ExtendedContext"), readers.contexts, readers.set_contexts
    ),
    "dialects of csv": Setting(
        ("register_dialect", "field_size_limit"), readers.dialects, readers.set_dialects
    ),
    "first day of weeks": Setting(("firstweekday",), readers.first_weekday, readers.set_first_weekday),
    "numbers of threads": Setting(("Thread",), readers.thread_numbers, readers.set_thread_numbers),
    "types of files": Setting(("mimetypes",), readers.file_types, readers.set_file_types),
}
"""Those of the process and of Python's library; those of other libraries are in their records."""
_TYING_WORDS = (
    *("atexit", "trace", "profile"),
    *("codecs.register(", "register_error(", "addaudithook(", "register_at_fork("),
)


def _all_settings() -> dict[str, Setting]:
    found = dict(_OF_PYTHON)
    for library in libraries():
        found.update(library.settings)
    found["generators of libraries"] = library_generators.setting()
    return found


TYING = {
    "codecs.register(": "A function that finds codecs was registered in this process.",
    "register_error(": "A function for the errors of codecs was registered in this process.",
    "addaudithook(": "A function that audits this process was registered.",
    "register_at_fork(": "A function that runs when this process forks was registered.",
}
"""Calls whose effect can neither be seen nor copied."""


class SeldomPart(OptionsPart):
    """The settings that a cell has named, and what runs at the process's exit or traces it."""

    cid = ComponentId("@seldom")

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._settings = _all_settings()
        self._words = (
            *(word for setting in self._settings.values() for word in setting.words),
            *_TYING_WORDS,
        )
        self._named: dict[str, Any] = {}
        """The settings that are looked at, with what they were when they were named first."""
        self._names_exits = False
        self._exits: tuple[int, int] | None = None
        """What is called at the exit, and how many modules there are, since this process runs such cells."""
        self._leaves_functions = False
        self._traces = False
        self._called: dict[str, None] = {}
        self._descriptors = Descriptors()
        self._tied = False
        """Whether the last look found files that are open by number."""
        self._troubles: list[str] = []
        self._unread: list[str] = []
        super().__init__()

    def expect(self, source: str) -> None:
        """Look from now on at what `source`, which is about to run, names."""
        self._descriptors.expect(source)
        if any(word in source for word in self._words):
            self._called.update((sentence, None) for call, sentence in TYING.items() if call in source)
            self.learn(source)
        self._count_exits()

    def learn(self, source: str) -> None:
        """Look from now on at what a cell that ran elsewhere names."""
        self._descriptors.learn(source)
        if not any(word in source for word in self._words):
            return
        self._traces = self._traces or "trace" in source or "profile" in source
        self._names_exits = self._names_exits or "atexit" in source
        for name, setting in self._settings.items():
            if name not in self._named and any(word in source for word in setting.words):
                self._named[name] = self._read(name)

    def meet(self, text: str, now: bool) -> None:
        """Look from now on at what a module of the user's names; with `now`, a cell has just imported it."""
        self.learn(text)
        if now:
            self._descriptors.expect("")
            self._count_exits()

    def _count_exits(self) -> None:
        if self._names_exits and self._exits is None:
            self._exits = _exit_functions(), len(sys.modules)

    def reference(self) -> Mapping[str, Any]:
        """Return what the settings were when they were named first."""
        return {name: value for name, value in self._named.items() if value is not None}

    def look(self) -> dict[str, Any]:
        """Return the settings that were named."""
        descriptors = self._descriptors.ties()
        looks = self._named or self._exits is not None or self._traces or self._called
        if not looks and not descriptors and not self._tied:
            return {}
        self._unread.clear()
        found = {name: self._read(name) for name in self._named}
        self._tied = bool(descriptors)
        return {**found, TIES: (*descriptors, *self._ties(), *self._unread)}

    def _read(self, name: str) -> Any:
        """Return a setting; None for one that fails to be read, which is told instead."""
        try:
            return self._settings[name].read()
        except Exception as error:
            self._unread.append(f"The notebook's {name} cannot be read ({type(error).__name__}: {error}).")
            return None

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the settings that differ, and note what ties the notebook to this process."""
        settings = {name: value for name, value in seen.items() if name != TIES and value is not None}
        left = {name: value for name, value in self.reference().items() if name not in settings}
        data = super().pack({**settings, **left})
        self.stuck = (*self.stuck, *seen.get(TIES, ()))
        return data

    def apply(self, data: bytes) -> None:
        """Set what another replica told; what this process may not do is told."""
        self._troubles = []
        super().apply(data)
        self.trouble = " ".join(self._troubles)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set the settings that differ."""
        for name, value in changed.items():
            setting = self._settings.get(name)
            if setting is None:
                continue
            present = self._read(name)
            self._named.setdefault(name, present)
            try:
                if not are_equal(present, value):
                    setting.put(value)
            except Exception as error:
                self._troubles.append(
                    f"The notebook's {name} cannot be set on this replica ({type(error).__name__}: {error})."
                )

    def load(self, data: bytes) -> None:
        """Remember what to set: a rebuild, which switches garbage collection off for its time, goes on."""
        if data == self._data and not self._waiting and self.dump() == data:
            return
        self._data, self._waiting = data, True

    def dump(self) -> bytes | None:
        """Return the settings as bytes; those that are still to be set count as set."""
        return self._data if self._waiting else super().dump()

    def _ties(self) -> tuple[str, ...]:
        """Return sentences on functions for the exit, and on tracers, that the notebook set."""
        found = list(self._called)
        if self._exits is not None:
            before, modules = self._exits
            now = _exit_functions()
            self._exits = now, len(sys.modules)
            self._leaves_functions = self._leaves_functions or (now > before and modules == len(sys.modules))
        if self._leaves_functions:
            found.append("A function registered with atexit runs when this process ends.")
        for name, tracer in (("settrace", sys.gettrace()), ("setprofile", sys.getprofile())):
            if tracer is not None and is_notebooks(tracer, self._namespace):
                found.append(f"A function of the notebook is set by sys.{name}().")
        return tuple(found)


def _exit_functions() -> int:
    """Return how many functions run at the exit, but for that of `weakref.finalize`: its calls travel."""
    return atexit._ncallbacks() - int(vars(weakref.finalize)["_registered_with_atexit"])
