"""What a cell's text alone says: parsed, magics included, compiled, and never run.

Functions that a cell only defines are dormant: what they mention does not count before something names them.
"""

from __future__ import annotations

import ast
import copy
import re
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

import msgspec

from replkernel.state.analysis.code_facts import CodeFacts, code_facts
from replkernel.state.unwarned import unwarned

SOURCE_CHARS_MAX = 1_000_000
NESTING_MAX = 4
"""Magics and constant texts given to exec are read this deep."""

OPEN_ENDED = frozenset({"exec", "eval", "globals", "locals", "__main__", "reload", "runpy"})
_QUERY_NAME = re.compile(r"@([A-Za-z_]\w*)")
_QUERIES = frozenset({"query", "eval"})


class CellText(msgspec.Struct, frozen=True):
    """The names of a cell, `mentions` with attributes; `imports` are full names of modules."""

    reads: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()
    mentions: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    anything: bool = False
    gpu: bool = False
    executes: bool = False
    """Whether nothing but calls of exec and eval makes the cell open-ended: their text may be inferred."""


ANYTHING = CellText(anything=True)


def read_cell(source: str, depth: int = NESTING_MAX) -> CellText:
    """Return what the text of a cell names; text that is not Python may do anything."""
    if len(source) > SOURCE_CHARS_MAX or depth == 0:
        return ANYTHING
    with unwarned():
        parsed = _parse(source)
        if parsed is None:
            return ANYTHING
        tree, transformed = parsed
        try:
            code = compile(
                without_names(tree) if transformed else tree,
                "<cell>",
                "exec",
                flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                dont_inherit=True,
            )
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ANYTHING
    return _read_tree(tree, code, transformed, depth)


def join(texts: Iterable[CellText]) -> CellText:
    """Return what several texts name together."""
    parts = list(texts)
    return CellText(
        reads=frozenset().union(*(part.reads for part in parts)),
        binds=frozenset().union(*(part.binds for part in parts)),
        deletes=frozenset().union(*(part.deletes for part in parts)),
        mentions=frozenset().union(*(part.mentions for part in parts)),
        imports=frozenset().union(*(part.imports for part in parts)),
        anything=any(part.anything for part in parts),
        gpu=any(part.gpu for part in parts),
        executes=any(part.executes for part in parts),
    )


def _parse(source: str) -> tuple[ast.Module, bool] | None:
    """Return the tree, and whether IPython's syntax had to be transformed."""
    try:
        return ast.parse(source), False
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    manager: Any = sys.modules.get("IPython.core.inputtransformer2")
    if manager is None:
        return None
    try:
        return ast.parse(manager.TransformerManager().transform_cell(source)), True
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _read_tree(tree: ast.Module, code: CodeType, transformed: bool, depth: int) -> CellText:
    facts = code_facts(code)
    active = _active(facts, _decorated(tree))
    loads = frozenset().union(*(fact.loads for fact in active))
    magics = [call for call in map(magic_call, _calls(tree)) if call is not None] if transformed else []
    shell = frozenset({"get_ipython"}) if magics else frozenset()
    nested = [read_cell(text, depth - 1) for call in magics for text in call.sources if text]
    open_ended = (loads & OPEN_ENDED) | (_bare_vars(tree) if "vars" in loads else frozenset())
    imports = frozenset(_imports(tree))
    stores = frozenset().union(*(fact.stores for fact in active))
    own = CellText(
        reads=(loads - _bound_before_use(tree) - shell) | _query_names(tree, facts),
        binds=(stores - {"__doc__"}).union(*(call.binds for call in magics)),
        deletes=frozenset().union(*(fact.deletes for fact in active)),
        mentions=frozenset().union(*(fact.attributes for fact in active)),
        imports=imports,
        anything=bool(open_ended)
        or _is_open(active, magics, imports)
        or ("get_ipython" in loads and not magics),
        gpu=any(fact.gpu for fact in active),
        executes=bool(open_ended) and open_ended <= {"exec", "eval"},
    )
    return join([own, *nested]) if nested else own


def _is_open(active: list[CodeFacts], magics: list[Any], imports: frozenset[str]) -> bool:
    star = any(fact.star for fact in active)
    return star or any(call.anything for call in magics) or "__main__" in imports


def _active(facts: CodeFacts, decorated: frozenset[str]) -> list[CodeFacts]:
    """Return the facts of the cell and of those of its own functions that it names, or decorates."""
    found = [facts]
    waiting = list(facts.functions)
    named = facts.loads | decorated
    progress = True
    while progress:
        progress = False
        for code in list(waiting):
            if code.co_name in named or _owner_of(code) in named:
                waiting.remove(code)
                inner = code_facts(code)
                found.append(inner)
                named = named | inner.loads
                waiting.extend(inner.functions)
                progress = True
    return found


def _owner_of(code: CodeType) -> str:
    """Return the outermost name that a function is defined under: its class, for a method."""
    qualified: str = getattr(code, "co_qualname", code.co_name)
    return qualified.partition(".")[0]


def _decorated(tree: ast.Module) -> frozenset[str]:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in tree.body if isinstance(node, definitions) and node.decorator_list)


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _bare_vars(tree: ast.Module) -> frozenset[str]:
    """Return ``vars`` when it is called without an argument, which means the namespace."""
    for call in _calls(tree):
        if isinstance(call.func, ast.Name) and call.func.id == "vars" and not call.args:
            return frozenset({"vars"})
    return frozenset()


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _query_names(tree: ast.Module, facts: CodeFacts) -> frozenset[str]:
    """Return the variables that texts given to ``DataFrame.query`` and ``eval`` name with ``@``."""
    if _QUERIES.isdisjoint(facts.attributes):
        return frozenset()
    found: set[str] = set()
    for call in _calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _QUERIES:
            for argument in call.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    found.update(_QUERY_NAME.findall(argument.value))
    return frozenset(found)


def _bound_before_use(tree: ast.Module) -> frozenset[str]:
    """Return the names that the cell's top level binds for certain before anything in the cell loads them."""
    loaded: set[str] = set()
    bound: set[str] = set()
    for statement in tree.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and (
                isinstance(node.ctx, ast.Load) or _is_augmented(statement, node)
            ):
                loaded.add(node.id)
        bound.update(name for name in _certainly_bound(statement) if name not in loaded)
    return frozenset(bound)


def _is_augmented(statement: ast.stmt, node: ast.Name) -> bool:
    return isinstance(statement, ast.AugAssign) and statement.target is node


def _certainly_bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from (
                node.id
                for node in ast.walk(target)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            )
    elif isinstance(statement, ast.AnnAssign):
        if isinstance(statement.target, ast.Name) and statement.value is not None:
            yield statement.target.id
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name


# IPython's magics as they stand in a transformed cell: whose text is Python, which leave names alone.

PYTHON_LINES = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun", "debug", "capture"})
"""Line magics whose argument is Python, after options."""

PYTHON_CELLS = frozenset({"time", "timeit", "capture", "prun", "memit", "mprun", "gpu", "debug", "snakeviz"})
"""Cell magics whose body is Python of the notebook."""

INERT = frozenset({
    "alias", "alias_magic", "autocall", "autoindent", "automagic", "autosave", "bookmark", "cat", "cd",
    "clear", "colors", "conda", "config", "connect_info", "cp", "dhist", "dirs", "doctest_mode", "env",
    "gpu", "gui", "hist", "history", "html", "javascript", "js", "latex", "less", "ll", "load_ext", "ls",
    "lsmagic", "magic", "man", "markdown", "matplotlib", "mkdir", "more", "mv", "notebook", "page",
    "pdb", "pdoc", "pfile", "pinfo", "pinfo2", "pip", "popd", "pprint", "precision", "psearch",
    "psource", "pushd", "pwd", "pycat", "quickref", "rehashx", "reload_ext", "replkernel", "rm",
    "rmdir", "sc", "set_env", "svg", "sx", "system", "tb", "unalias", "unload_ext", "uv", "who",
    "who_ls", "whos", "writefile", "xmode", "bash", "sh", "script", "ruby", "perl", "autoreload",
    "aimport", "logstart", "logstop", "subshell", "code_wrap",
})  # fmt: skip
"""Magics that neither read nor bind the notebook's variables, but for what they interpolate."""

INTROSPECTION = frozenset({"pinfo", "pinfo2", "pdoc", "psource", "pfile"})
_INTERPOLATED = re.compile(r"\$\{?([A-Za-z_]\w*)|\{([^{}]+)\}")
_OPTION = re.compile(r"\s*-(?:-?[\w-]+=\S+|[a-zA-Z]\s*\d+|[\w-]+)")
_METHODS = frozenset({"run_line_magic", "run_cell_magic", "system", "getoutput"})


class MagicCall(msgspec.Struct, frozen=True):
    """What a magic does to names: Python to read as part of the cell, names that it binds, or anything."""

    sources: tuple[str, ...] = ()
    binds: tuple[str, ...] = ()
    anything: bool = False


def magic_call(node: ast.Call) -> MagicCall | None:
    """Return what a call like ``get_ipython().run_line_magic(…)`` means; None for other calls."""
    function = node.func
    if (
        not isinstance(function, ast.Attribute)
        or function.attr not in _METHODS
        or not _is_shell(function.value)
    ):
        return None
    texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    if len(texts) != len(node.args) or not all(isinstance(text, str) for text in texts):
        return MagicCall(anything=True)
    arguments = [str(text) for text in texts]
    if function.attr in ("system", "getoutput"):
        return MagicCall(sources=tuple(_interpolated(arguments[0])) if arguments else ())
    if function.attr == "run_cell_magic" and len(arguments) == 3:
        return _cell_magic(*arguments)
    return _line_magic(arguments[0], arguments[1]) if len(arguments) == 2 else MagicCall(anything=True)


def without_names(tree: ast.Module) -> ast.Module:
    """Return a cell's tree with the names of its magics taken away: `%gpu status` mentions no GPU."""
    made = copy.deepcopy(tree)
    for node in ast.walk(made):
        if isinstance(node, ast.Call) and magic_call(node) is not None and node.args:
            node.args[0] = ast.copy_location(ast.Constant(""), node.args[0])
    return made


def _is_shell(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython"


def _line_magic(name: str, line: str) -> MagicCall:
    if name in PYTHON_LINES:
        return MagicCall(sources=(_without_options(line),))
    if name in INTROSPECTION:
        root = line.strip().strip("?").partition(".")[0].strip()
        return MagicCall(sources=(root,) if root.isidentifier() else ())
    return MagicCall(sources=tuple(_interpolated(line)), anything=name not in INERT)


def _cell_magic(name: str, line: str, body: str) -> MagicCall:
    if name == "capture":
        output = next((word for word in line.split() if word.isidentifier()), None)
        return MagicCall(sources=(body,), binds=(output,) if output else ())
    if name in PYTHON_CELLS:
        rest = _without_options(line) if name in ("timeit", "prun") else ""
        return MagicCall(sources=(rest, body))
    if name not in INERT:
        return MagicCall(anything=True)
    outputs = re.findall(r"--(?:out|err|proc)\s+([A-Za-z_]\w*)", line)
    return MagicCall(sources=tuple(_interpolated(line)), binds=tuple(outputs))


def _without_options(line: str) -> str:
    while (option := _OPTION.match(line)) is not None:
        line = line[option.end() :]
    return line.strip()


def _interpolated(text: str) -> list[str]:
    """Return the Python expressions that a line takes up: ``$name`` and ``{expression}``."""
    found = [name or expression for name, expression in _INTERPOLATED.findall(text)]
    return [source for source in found if _parses(source)]


def _parses(source: str) -> bool:
    try:
        ast.parse(source, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
