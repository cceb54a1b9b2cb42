"""What one cell may reach by name, as far as its text says, for certain; what is not certain is anything.

Cheap enough to be asked before each cell that has state to wait for. Law: as `mentions`.
"""

from __future__ import annotations

import ast
import functools
from types import CodeType

import msgspec

from replkernel.state.analysis.mentions import read_code
from replkernel.state.unwarned import unwarned

CELLS_CACHED = 512
SOURCE_CHARS_MAX = 200_000


class CellMentions(msgspec.Struct, frozen=True):
    """What a cell mentions: names `read` or deleted, names `bound`, whether its end is displayed.

    `anything`: it may reach every name.
    """

    read: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    displays: bool = False
    anything: bool = False


OPEN = CellMentions(anything=True)


@functools.lru_cache(maxsize=CELLS_CACHED)
def cell_mentions(source: str) -> CellMentions:
    """Return what a cell mentions; one that is not plain Python (a magic, a question) may reach anything."""
    if len(source) > SOURCE_CHARS_MAX:
        return OPEN
    try:
        with unwarned():
            tree = ast.parse(source)
            defines = bool(tree.body) and all(map(_only_defines, tree.body))
            code = compile(tree, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return OPEN
    found = read_code(_without_functions(code) if defines else code)
    if found.anything:
        return OPEN
    displays = any(isinstance(node, ast.Expr) for node in tree.body)
    return CellMentions(found.reads | found.deletes, found.stores, displays)


def _only_defines(node: ast.stmt) -> bool:
    """Tell whether a statement calls nothing: functions and imports, whose bodies do not run now."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return not node.decorator_list
    if isinstance(node, ast.Assign):
        return isinstance(node.value, (ast.Constant, ast.Name)) and all(
            isinstance(target, ast.Name) for target in node.targets
        )
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass))


def _without_functions(code: CodeType) -> CodeType:
    """Return a cell's code without the bodies of the functions that it defines and does not call."""
    kept = tuple(None if isinstance(constant, CodeType) else constant for constant in code.co_consts)
    return code.replace(co_consts=kept)
