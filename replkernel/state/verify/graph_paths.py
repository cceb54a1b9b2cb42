"""Paths into the values of a dump, as a user would write them, marked with who answers for what lies below.

Pure. Law: a path costs one step to extend, however deep it is; its text is made when somebody asks.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from replkernel.state.format.dump_graph import Node, Value

Path: TypeAlias = "tuple[Any, str] | None"

KEY_CHARS_MAX = 60

OURS, LIBRARYS = "\0ours", "\0library's"
"""Marks in a path: what lies below was loaded by our code or the notebook's, or in a library's own way."""


def at_key(path: Path, key: Value, attributes: bool) -> Path:
    if isinstance(key, Node):
        return (path, "[…]")
    value = key[1] if len(key) > 1 else None
    text = value.decode("utf-8", "replace") if key[0] == "t" and isinstance(value, bytes) else None
    if attributes and text is not None:
        return (path, text if path is None else f".{text}")
    shown = repr(text if text is not None else value)
    return (path, f"[{shown}]" if len(shown) <= KEY_CHARS_MAX else f"[{shown[:KEY_CHARS_MAX]}…]")


def text_of(path: Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        if step not in (OURS, LIBRARYS):
            steps.append(step)
    return "".join(reversed(steps))


def in_library(path: Path) -> bool:
    while path is not None:
        path, step = path
        if step in (OURS, LIBRARYS):
            return step == LIBRARYS
    return False
