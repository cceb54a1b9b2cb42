"""IPython's magics as they stand in a transformed cell: whose text is Python, which leave names alone."""

from __future__ import annotations

import ast
import copy
import re

import msgspec

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
