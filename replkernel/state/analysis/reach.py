"""What live objects reach when they are called: the notebook's functions, methods, classes and instances.

Law: no attribute is read through a user's class, no user code runs; whatever is met is bounded.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any, cast

from replkernel.gpu.torch_state import lives_on_gpu
from replkernel.state.analysis.cell_text import OPEN_ENDED
from replkernel.state.analysis.code_facts import code_facts, is_gpu_text
from replkernel.state.python.paths import instance_dict

OBJECTS_MAX = 4_000
ITEMS_MAX = 100
"""No more members of one container or instance are followed."""

_PLAIN = frozenset(map(id, (int, float, bool, complex, bytes, types.NoneType, range, bytearray)))
_ROWS = frozenset(map(id, (list, tuple, set, frozenset)))
"""By identity, here and below: comparing or hashing a class may run code of its metaclass."""
_mro = vars(type)["__mro__"].__get__
_class_vars = vars(type)["__dict__"].__get__
_LRU = type(functools.lru_cache(lambda: None))
_WRAPPERS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (types.MethodType, ("__func__", "__self__")),
    (functools.partial, ("func", "args", "keywords")),
    (staticmethod, ("__func__",)),
    (classmethod, ("__func__",)),
    (property, ("fget", "fset", "fdel")),
    (functools.cached_property, ("func",)),
    (functools.partialmethod, ("func", "args", "keywords")),
    (_LRU, ("__wrapped__",)),
)
_FIELDS = {id(kind): fields for kind, fields in _WRAPPERS}


class Reach:
    """A walk from names to everything that calling what they hold may read, bind or delete."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self.namespace = namespace
        self.reads: set[str] = set()
        self.binds: set[str] = set()
        self.deletes: set[str] = set()
        self.anything = False
        self.gpu = False
        self._seen: dict[int, object] = {}
        self._waiting: list[object] = []

    def follow(self, names: Iterable[str], mentions: frozenset[str]) -> None:
        """Follow what `names` hold; `mentions` are attributes that may be taken of modules among them."""
        for name in names:
            self._take(self.namespace.get(name), mentions)
        while self._waiting and len(self._seen) < OBJECTS_MAX:
            self._visit(self._waiting.pop())

    def _take(self, value: object, mentions: frozenset[str]) -> None:
        kind = type(value)
        if id(kind) in _PLAIN:
            return
        if kind is str:
            self.gpu = self.gpu or is_gpu_text(value)  # type: ignore[arg-type]
        elif kind is types.ModuleType:
            fields = vars(value)
            if _is_local(fields.get("__file__")):
                self._waiting.extend(fields[name] for name in mentions if name in fields)
        elif id(value) not in self._seen:
            self._waiting.append(value)

    def _visit(self, value: object) -> None:
        if id(value) in self._seen:
            return
        kind = type(value)
        if id(kind) in _PLAIN or kind is str or kind is types.ModuleType:
            self._take(value, frozenset())
            return
        self._seen[id(value)] = value
        if kind is types.FunctionType:
            self._visit_function(cast("types.FunctionType", value))
        elif id(kind) in _FIELDS:
            self._waiting.extend(object.__getattribute__(value, field) for field in _FIELDS[id(kind)])
        elif any(base is type for base in _mro(kind)):
            self._visit_class(value)
        elif id(kind) in _ROWS:
            self._waiting.extend(item for _, item in zip(range(ITEMS_MAX), value, strict=False))  # type: ignore[call-overload]
        elif kind is dict:
            self._waiting.extend(item for _, item in zip(range(ITEMS_MAX), value.values(), strict=False))  # type: ignore[attr-defined]
        else:
            self._visit_instance(value, kind)

    def _visit_function(self, function: types.FunctionType) -> None:
        is_own = function.__globals__ is self.namespace
        if not is_own and not _is_local(function.__code__.co_filename):
            return
        self._waiting.extend(function.__defaults__ or ())
        self._waiting.extend((function.__kwdefaults__ or {}).values())
        for cell in function.__closure__ or ():
            try:
                self._waiting.append(cell.cell_contents)
            except ValueError:
                continue
        wrapped = function.__dict__.get("__wrapped__")
        if wrapped is not None:
            self._waiting.append(wrapped)
        codes = [function.__code__]
        while codes:
            facts = code_facts(codes.pop())
            codes.extend(facts.functions)
            self.gpu = self.gpu or facts.gpu
            self.anything = self.anything or (is_own and not OPEN_ENDED.isdisjoint(facts.loads))
            if is_own:
                self.reads |= facts.loads
                self.binds |= facts.stores
                self.deletes |= facts.deletes
            for name in facts.loads:
                self._take(function.__globals__.get(name), facts.attributes)

    def _visit_class(self, klass: object) -> None:
        for base in _mro(klass):
            fields = _class_vars(base)
            module = fields.get("__module__")
            if _is_local_module(module):
                self._waiting.extend(fields.values())

    def _visit_instance(self, value: object, kind: type) -> None:
        self.gpu = self.gpu or lives_on_gpu(value)
        if not _is_local_module(_class_vars(kind).get("__module__")):
            return
        self._waiting.append(kind)
        fields = instance_dict(value) or {}
        self._waiting.extend(item for _, item in zip(range(ITEMS_MAX), fields.values(), strict=False))


def _is_local(file: object) -> bool:
    """Tell whether code is the user's own: of the notebook, or of a file outside the installation."""
    return type(file) is str and _is_local_file(file)


@functools.lru_cache(maxsize=4_096)
def _is_local_file(file: str) -> bool:
    installed = ("<frozen", sys.prefix, sys.base_prefix, sys.exec_prefix, "<__array", "<string>", "<attrs")
    return "site-packages" not in file and "dist-packages" not in file and not file.startswith(installed)


def _is_local_module(name: object) -> bool:
    if type(name) is not str:
        return False
    if name == "__main__":
        return True
    module = sys.modules.get(name)
    return type(module) is types.ModuleType and _is_local(vars(module).get("__file__"))
