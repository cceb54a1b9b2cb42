"""Which variables compiled code may reach by name: what it loads, what its texts mention, or anything at all.

Inner code counts as the code itself. Law: a name that code can reach is mentioned, or the answer is ANYTHING;
more may be mentioned than is reached. Reading code runs nothing.
"""

from __future__ import annotations

import dis
import inspect
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType

import msgspec

from replkernel.state.analysis.code_facts import global_names

ANYTHING = "*"
"""Stands among names for all of them."""

MENTIONS_MAX = 2_000
TEXT_CHARS_MAX = 1 << 20

LOOKS_AT_NAMES = frozenset({
    "exec", "eval", "compile", "globals", "locals", "get_ipython", "breakpoint", "help",
})  # fmt: skip
"""Builtins that may name any variable."""

_WITHOUT_ARGUMENT = frozenset({"vars", "dir"})
"""Builtins that look at the namespace when they are called without an argument."""

_FRAMES_AND_SHELL = frozenset({
    "__main__", "__globals__", "__builtins__", "_getframe", "_current_frames", "currentframe", "f_globals",
    "f_locals", "f_back", "f_builtins", "tb_frame", "gi_frame", "cr_frame", "ag_frame", "user_ns",
    "user_global_ns", "user_module", "run_cell", "run_line_magic", "run_cell_magic", "run_module", "run_path",
    "get_objects", "get_referrers", "get_referents", "settrace", "setprofile", "set_trace", "embed",
    "testmod", "post_mortem", "reload", "get_type_hints", "register_globals", "read_pickle", "allow_pickle",
})  # fmt: skip
"""Attributes and names that lead to the namespace as a whole."""

LOOKERS = frozenset({
    "inspect", "doctest", "unittest", "ipytest", "pytest", "_pytest", "pickle", "_pickle", "dill",
    "cloudpickle", "joblib", "shelve", "gc", "pdb", "ipdb", "bdb", "code", "codeop", "runpy", "__main__",
    "cProfile", "profile", "trace", "IPython", "duckdb", "pandasql", "marimo",
})  # fmt: skip
"""Modules whose functions look names up in the notebook's module, or in their caller's."""

EVALUATORS = frozenset({"query", "eval", "sql", "sqldf", "evaluate"})
"""Methods that evaluate a text with their caller's names."""

_NAME = re.compile(r"[^\W\d]\w*")
_HARMLESS = frozenset({"PRECALL", "CACHE", "PUSH_NULL", "KW_NAMES", "LOAD_CONST", "EXTENDED_ARG", "NOP"})
_CALLS = frozenset({"CALL", "CALL_KW"})
_SIMPLE_LOADS = frozenset({
    "LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_ATTR",
    "LOAD_CONST",
})  # fmt: skip
_GLOBAL_LOADS = frozenset({"LOAD_NAME", "LOAD_GLOBAL"})
_EVALUATOR_LOADS = _GLOBAL_LOADS | {"LOAD_METHOD", "LOAD_ATTR"}


class Mentions(msgspec.Struct, frozen=True):
    """What code mentions: `reads` names and texts, `stores` what it binds, `deletes` what it unbinds."""

    reads: frozenset[str]
    stores: frozenset[str]
    deletes: frozenset[str]
    anything: bool

    def all(self) -> frozenset[str]:
        """Return every name, or ANYTHING."""
        if self.anything:
            return frozenset({ANYTHING})
        return self.reads | self.stores | self.deletes


_known: dict[int, tuple[weakref.ref[CodeType], Mentions]] = {}


def mentions_of(code: CodeType) -> Mentions:
    """Return what `code` and the code inside it mention; read once in the life of a code object."""
    key = id(code)
    entry = _known.get(key)
    if entry is not None and entry[0]() is code:
        return entry[1]
    found = read_code(code)

    def gone(dead: weakref.ref[CodeType]) -> None:
        current = _known.get(key)
        if current is not None and current[0] is dead:
            del _known[key]

    _known[key] = (weakref.ref(code, gone), found)
    return found


def names_of(codes: Iterable[CodeType]) -> frozenset[str]:
    """Return the names that several code objects mention; ANYTHING alone when one may reach all."""
    found: set[str] = set()
    for code in codes:
        found |= mentions_of(code).all()
    if ANYTHING in found or len(found) > MENTIONS_MAX:
        return frozenset({ANYTHING})
    return frozenset(found)


def words_of(text: str) -> set[str]:
    """Return the words of a text that could be names; `__main__` stands for anything."""
    return set(_NAME.findall(text[:TEXT_CHARS_MAX]))


def read_code(code: CodeType) -> Mentions:
    """Return what `code` mentions, without remembering it."""
    reads: set[str] = set()
    stores: set[str] = set()
    deletes: set[str] = set()
    anything = False
    waiting = [code]
    while waiting:
        inner = waiting.pop()
        loads, stored, deleted, star = global_names(inner)
        reads |= loads
        stores |= stored
        deletes |= deleted
        texts = set(_words(inner))
        reads |= texts
        anything = anything or star or _may_reach_anything(inner, loads, texts)
        waiting.extend(constant for constant in inner.co_consts if isinstance(constant, CodeType))
    return Mentions(frozenset(reads), frozenset(stores), frozenset(deletes), anything)


def _words(code: CodeType) -> Iterator[str]:
    """Yield the words of a code object's texts, its docstring left out."""
    constants: Sequence[object] = code.co_consts
    if code.co_flags & inspect.CO_NEWLOCALS and constants and isinstance(constants[0], str):
        constants = constants[1:]
    for constant in constants:
        for item in constant if isinstance(constant, (tuple, frozenset)) else (constant,):
            if isinstance(item, str):
                yield from words_of(item)
            elif isinstance(item, bytes):
                yield from words_of(item.decode("latin-1"))


def _may_reach_anything(code: CodeType, loads: set[str], texts: set[str]) -> bool:
    names = frozenset(code.co_names)
    if not (LOOKS_AT_NAMES.isdisjoint(loads) and _FRAMES_AND_SHELL.isdisjoint(names)):
        return True
    if "__main__" in texts or not _FRAMES_AND_SHELL.isdisjoint(_plain_texts(code)):
        return True
    if "modules" in names and "sys" in names:
        return True
    roots = {name.partition(".")[0] for name in names}
    careful = (names & EVALUATORS) | (loads & _WITHOUT_ARGUMENT) | (roots & LOOKERS)
    return bool(careful) and _looks_around(code)


def _plain_texts(code: CodeType) -> Iterator[str]:
    return (constant for constant in code.co_consts if type(constant) is str)


def _looks_around(code: CodeType) -> bool:
    """Tell whether code imports a LOOKER, evaluates a text that is no constant, or calls `vars` for all."""
    steps = list(dis.get_instructions(code))
    for place, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            if step.argval.partition(".")[0] in LOOKERS:
                return True
        elif step.opname in _GLOBAL_LOADS and step.argval in _WITHOUT_ARGUMENT:
            if not _has_one_argument(steps, place + 1):
                return True
        elif step.opname in _EVALUATOR_LOADS and step.argval in EVALUATORS:
            after = next((late for late in steps[place + 1 :] if late.opname not in _HARMLESS), None)
            if after is None or after.opname not in _CALLS:
                return True
    return False


def _has_one_argument(steps: Sequence[dis.Instruction], place: int) -> bool:
    """Tell whether a call with one simply loaded argument follows."""
    loaded = False
    for step in steps[place:]:
        if step.opname in _CALLS:
            return loaded and step.arg == 1
        if step.opname in _SIMPLE_LOADS:
            loaded = loaded or step.opname != "LOAD_ATTR"
        elif step.opname not in _HARMLESS:
            return False
    return False
