"""What the processes of a cell run: its text, what it reads of the notebook, and where that finds modules.

Law: whatever a process may read before it has made it is sent, or nothing is started.
"""

from __future__ import annotations

import ast
import builtins
import dis
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

from IPython.core.error import UsageError

from replkernel.kernel.job_magics import NOTEBOOKS_ALONE, check_plain
from replkernel.ranks.words import DATA_BYTES_MAX, Program

READS = frozenset(("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL"))


def program_of(
    namespace: Mapping[str, Any], hidden: Mapping[str, Any], source: str, back: tuple[str, ...]
) -> Program:
    """Return what the processes run; `hidden` is what the shell itself has put there; raises UsageError."""
    import dill

    names: dict[str, bytes] = {}
    modules: dict[str, str] = {}
    for name, value in _from_notebook(source, namespace, hidden):
        if isinstance(value, ModuleType):
            modules[name] = value.__name__
            continue
        try:
            names[name] = dill.dumps(value, recurse=True)
        except Exception as error:  # whatever a value's own pickling raises
            raise UsageError(
                f"%%gpu --hosts: the cell uses {name}, which cannot be sent to other hosts "
                f"({type(error).__name__}: {str(error)[:200]}). Make it in the cell, or load it "
                "from a file."
            ) from None
    if sum(map(len, names.values())) > DATA_BYTES_MAX:
        raise UsageError(
            f"%%gpu --hosts: {', '.join(names)} take more than {DATA_BYTES_MAX >> 20} MiB: save them to a "
            "file, and load that in the cell."
        )
    first, path = _search_path()
    return Program(source, names, modules, back, first, path)


def _search_path() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return where the notebook finds modules before its Python's own places, and the rest."""
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    own = {f"python{version}.zip", os.path.basename(os.path.dirname(os.__file__))}
    path = [entry or os.getcwd() for entry in sys.path]
    place = next((number for number, entry in enumerate(path) if os.path.basename(entry) in own), len(path))
    first = path[:place] if os.getcwd() in path[:place] else [os.getcwd(), *path[:place]]
    return tuple(first), tuple(path[place:])


def _from_notebook(
    source: str, namespace: Mapping[str, Any], hidden: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield what a cell's text reads of the notebook; what a process has of itself is none of it."""
    for name in sorted(names_read(source)):
        if name.startswith("__"):
            continue
        own = hasattr(builtins, name) and name not in NOTEBOOKS_ALONE
        if name in namespace:
            value = namespace[name]
            if not own or (value is not getattr(builtins, name) and value is not hidden.get(name, namespace)):
                yield name, value
        elif name in NOTEBOOKS_ALONE:
            yield name, getattr(builtins, name, None)


def names_read(source: str) -> set[str]:
    """Return the global names that a text may read before it has bound them; raises UsageError."""
    check_plain(source, "%%gpu --hosts", "It runs in processes of its own")
    read: set[str] = set()
    bound: set[str] = set()
    for statement in ast.parse(source, "<cell>").body:
        code = compile(ast.Module([statement], []), "<cell>", "exec", dont_inherit=True)
        read |= set(_read_by(code)) - bound
        if isinstance(statement, ast.Delete):
            bound -= set(_names(statement.targets))
        else:
            bound |= set(_bound_by(statement))
    return read


def _read_by(code: CodeType) -> Iterator[str]:
    """Yield the names that code reads outside of its functions' own, wherever in it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in READS:
            yield str(instruction.argval)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _read_by(part)


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of the module binds, whatever happens in it."""
    match statement:
        case ast.Assign(targets=targets):
            yield from _names(targets)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield from _names([target])
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)


def _names(targets: Sequence[ast.expr]) -> Iterator[str]:
    for target in targets:
        match target:
            case ast.Name(id=name):
                yield name
            case ast.Starred(value=value):
                yield from _names([value])
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                yield from _names(parts)
