"""What astroid can infer where no live object answers yet: texts given to exec, and modules not yet imported.

astroid is imported here only, when a cell needs it; what it cannot infer is None, never a guess.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from typing import Any

from replkernel.state.analysis.code_facts import GPU_NAMES, is_gpu_text

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
