"""Whether a cell, by its text, does no more than look at variables: `df`, `df.head()`, `print(len(rows))`.

Law: a cell that is taken to look loses nothing by it: what it changed all the same goes with the step before.
"""

from __future__ import annotations

import ast

from replkernel.state.unwarned import unwarned

SOURCE_CHARS_MAX = 4_000
"""A cell that only looks is short."""

_FUNCTIONS = frozenset({
    "bool", "dict", "dir", "display", "float", "hex", "id", "int", "isinstance", "len", "list", "max", "min",
    "print", "repr", "round", "set", "sorted", "str", "sum", "tuple", "type",
})  # fmt: skip
_METHODS = frozenset({
    "agg", "all", "any", "count", "describe", "get", "groupby", "head", "info", "isna", "item", "items",
    "keys", "max", "mean", "median", "min", "nunique", "parameters", "quantile", "round", "size", "std",
    "sum", "summary", "tail", "tolist", "unique", "value_counts", "values", "var",
})  # fmt: skip
_PARTS = (
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Compare, ast.Constant, ast.Dict, ast.Expr, ast.FormattedValue,
    ast.JoinedStr, ast.List, ast.Name, ast.Set, ast.Slice, ast.Starred, ast.Subscript, ast.Tuple, ast.UnaryOp,
    ast.keyword, ast.operator, ast.boolop, ast.cmpop, ast.unaryop, ast.Load,
)  # fmt: skip


def only_looks(source: str) -> bool:
    """Tell whether all statements of a cell are expressions that name, read, compare and show."""
    if len(source) > SOURCE_CHARS_MAX or not source.strip():
        return False
    try:
        with unwarned():
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(tree.body) and all(isinstance(one, ast.Expr) and _looks(one) for one in tree.body)


def _looks(expression: ast.AST) -> bool:
    return all(_is_look(part) for part in ast.walk(expression))


def _is_look(part: ast.AST) -> bool:
    if not isinstance(part, ast.Call):
        return isinstance(part, _PARTS)
    if isinstance(part.func, ast.Name):
        return part.func.id in _FUNCTIONS
    return isinstance(part.func, ast.Attribute) and part.func.attr in _METHODS
