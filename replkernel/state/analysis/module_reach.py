"""Which libraries a cell leads to by the modules behind its names: its own modules, and what those import.

Law: nothing is imported, no property is read; where there is too much to look at, the answer is yes.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

GPU_ONLY = frozenset({"cupy", "cupyx", "cudf", "cuml", "cugraph", "cuspatial", "cuvs", "rmm", "pylibraft"})
"""Libraries that can do nothing without a GPU."""
MODULES_MAX = 3_000
_own = vars(type)["__dict__"].__get__


def uses_gpu_only(source: str, names: Collection[str], namespace: Mapping[str, Any]) -> bool:
    """Tell whether a cell that reads `names` does more with a library of `GPU_ONLY` than import it."""
    there = any(library in sys.modules for library in GPU_ONLY)
    if not there and not any(library in source for library in GPU_ONLY):
        return False
    return _imports_and_uses(source) or (there and leads_to(names, namespace, GPU_ONLY))


def leads_to(
    names: Collection[str],
    namespace: Mapping[str, Any],
    libraries: Collection[str],
    known: Collection[str] = (),
) -> bool:
    """Tell whether values behind `names` belong to `libraries`, or to modules that use these in turn.

    A value of one of the libraries `known` itself says nothing: somebody else looks at what it is used for.
    """
    waiting = [name for each in names if each in namespace for name in _modules_of(namespace[each])]
    waiting = [name for name in waiting if _root(name) not in known]
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        if _root(name) in libraries:
            return True
        module = sys.modules.get(name)
        if module is None or _root(name) in sys.stdlib_module_names or name == "__main__":
            continue
        for value in list(vars(module).values()):
            for other in _modules_of(value):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        if len(seen) > MODULES_MAX:
            return True
    return False


def _root(name: str) -> str:
    return name.partition(".")[0]


def _modules_of(value: object) -> Iterator[str]:
    """Yield the name of the module that a value is, or comes from."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        found = vars(value).get("__name__")
    elif kind is FunctionType or kind is BuiltinFunctionType:
        found = value.__module__
    else:
        found = _own(value if issubclass(kind, type) else kind).get("__module__")
    if isinstance(found, str):
        yield found


def _imports_and_uses(source: str) -> bool:
    """Tell whether a cell imports such a library and goes on to do something."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    imported = {
        _root(name) for each in ast.walk(ast.Module(body, [])) for name in _imported_by(each)
    } & GPU_ONLY
    return bool(imported) and not all(isinstance(each, (ast.Import, ast.ImportFrom)) for each in body)


def _imported_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
