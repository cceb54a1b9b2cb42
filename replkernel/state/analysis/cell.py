"""What a cell is about to name: variables read, bound and deleted, and whether it wants a GPU.

Used to order captures, to fetch ahead, and to ask for GPUs. Law: it is never taken as proof that something
did not change, and asking it changes nothing: no property is read, no user code runs.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from typing import Any, cast

import msgspec

from replkernel.gpu.torch_state import lives_on_gpu
from replkernel.state.analysis.cell_text import OPEN_ENDED, CellText, join, read_cell
from replkernel.state.analysis.code_facts import GPU_NAMES, code_facts, is_gpu_text
from replkernel.state.python.paths import instance_dict

CELLS_CACHED = 512
_BUILTIN_NAMES = frozenset(vars(builtins))


class CellNames(msgspec.Struct, frozen=True):
    """The names of a cell and of the notebook's code that it reaches.

    `anything` means that every name may be read, bound or deleted. `needs_gpu` tells that the cell, code
    that it reaches, or a value that it reads mentions or lies on a GPU.
    """

    reads: frozenset[str]
    binds: frozenset[str]
    deletes: frozenset[str]
    anything: bool
    needs_gpu: bool


def analyse(source: str, namespace: Mapping[str, Any]) -> CellNames:
    """Return what `source` names when it runs as a cell in `namespace`."""
    text = _cell_text(source)
    reach = Reach(namespace)
    reach.follow(text.reads, text.mentions)
    gpu = text.gpu or reach.gpu
    if not gpu and text.imports and imports_local_source(text.imports):
        gpu = _imports_gpu(source)
    reads = {name for name in text.reads | reach.reads if name in namespace or name not in _BUILTIN_NAMES}
    return CellNames(
        reads=frozenset(reads),
        binds=text.binds | reach.binds,
        deletes=text.deletes | reach.deletes,
        anything=text.anything or reach.anything,
        needs_gpu=gpu,
    )


@functools.lru_cache(maxsize=CELLS_CACHED)
def _cell_text(source: str) -> CellText:
    text = read_cell(source)
    if not text.executes:
        return text
    executed = executed_texts(source)
    if executed is None:
        return text
    known = join([text, *map(read_cell, executed)])
    inner_open = any(read_cell(inner).anything for inner in executed)
    return msgspec.structs.replace(known, anything=inner_open, reads=known.reads - {"exec", "eval"})


@functools.lru_cache(maxsize=CELLS_CACHED)
def _imports_gpu(source: str) -> bool:
    return imported_calls_use_gpu(source)


# What live objects reach when they are called: the notebook's functions, methods, classes and instances.
#
# Law: no attribute is read through a user's class, no user code runs; whatever is met is bounded.

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


# What astroid can infer where no live object answers yet: texts given to exec, and modules not yet imported.
#
# astroid is imported here only, when a cell needs it; what it cannot infer is None, never a guess.

CALLS_MAX = 50
FUNCTIONS_MAX = 50
INFERRED_MAX = 5


def executed_texts(source: str) -> list[str] | None:
    """Return the texts that the cell's calls of exec and eval are given; None when one is not a constant."""
    import astroid

    try:
        tree = astroid.parse(source)
    except astroid.AstroidError:
        return None
    texts: list[str] = []
    for call in tree.nodes_of_class(astroid.nodes.Call):
        if not isinstance(call.func, astroid.nodes.Name) or call.func.name not in ("exec", "eval"):
            continue
        if not call.args or len(call.args) > 1 or len(texts) >= CALLS_MAX:
            return None
        values = _inferred(call.args[0])
        if not values or not all(isinstance(value, astroid.nodes.Const) for value in values):
            return None
        constants = [value.value for value in values]
        if not all(isinstance(text, str) for text in constants):
            return None
        texts.extend(constants)
    return texts


def imports_local_source(modules: Iterable[str]) -> bool:
    """Tell whether one of the modules is the user's own file and not yet imported."""
    return any(name not in sys.modules and _is_own_file(name.partition(".")[0]) for name in modules)


def _is_own_file(root: str) -> bool:
    if root in sys.modules or root in sys.stdlib_module_names:
        return False
    try:
        spec = PathFinder.find_spec(root)
    except Exception:
        return False
    origin = None if spec is None else spec.origin
    return origin is not None and origin.endswith(".py") and "-packages" not in origin


def imported_calls_use_gpu(source: str) -> bool:
    """Tell whether a function or class of the user's own files, which the cell calls, names a GPU."""
    import astroid

    try:
        tree = astroid.parse(source)
        waiting = list(_called(tree))
        seen: set[int] = set()
        while waiting and len(seen) < FUNCTIONS_MAX:
            definition = waiting.pop()
            if id(definition) in seen or "-packages" in str(definition.root().file):
                continue
            seen.add(id(definition))
            if _names_gpu(definition):
                return True
            waiting.extend(_called(definition))
    except (astroid.AstroidError, RecursionError):
        return False
    return False


def _called(tree: Any) -> Iterator[Any]:
    import astroid

    for count, call in enumerate(tree.nodes_of_class(astroid.nodes.Call)):
        if count >= CALLS_MAX:
            return
        for found in _inferred(call.func):
            definition = getattr(found, "_proxied", found)
            if isinstance(definition, (astroid.nodes.FunctionDef, astroid.nodes.ClassDef)):
                yield definition


def _names_gpu(definition: Any) -> bool:
    import astroid

    for node in definition.nodes_of_class((astroid.nodes.Attribute, astroid.nodes.Const, astroid.nodes.Name)):
        text = getattr(node, "attrname", None) or getattr(node, "name", None)
        if text in GPU_NAMES:
            return True
        if isinstance(node, astroid.nodes.Const) and isinstance(node.value, str) and is_gpu_text(node.value):
            return True
    return False


def _inferred(node: Any) -> list[Any]:
    """Return what a node may be; nothing at all when astroid is not sure."""
    import astroid

    found: list[Any] = []
    try:
        for value in node.infer():
            if value is astroid.Uninferable or len(found) >= INFERRED_MAX:
                return []
            found.append(value)
    except astroid.AstroidError:
        return []
    return found
