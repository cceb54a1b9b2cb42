"""Which objects of libraries a cell's source may change: found in its text, before it runs.

Law: never proof of a change; the comparison of what is named here, before and after the cell, is.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

SOURCES_MAX = 256
STRINGS_MAX = 200
NESTED_MAX = 3

Chain = tuple[str, ...]
"""A dotted name by its parts; ``type(x)`` is `x` followed by TYPE."""

TYPE = "type()"
SOMETHING: Chain = ("…",)
"""Stands for what an expression gives."""

_STORES = re.compile(
    r"""
    \.[ \t]*+\w++[ \t]*+(?:
        (?::[^=\n]+)?(?:[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)     # x.y = 1, x.y += 1, x.y: int = 1
      | ,[^=\n]*=(?!=)                                      # x.y, z = 1, 2
      | \[.*\][ \t]*(?:[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)    # x.y[1] = 2
      | \.(?:append|extend|insert|remove|pop|clear|update|setdefault|add|discard|sort|reverse)\(
    )
    """,
    re.VERBOSE,
)
_WORDS = (
    "setattr", "delattr", "__dict__", "vars(", "exec(", "patch", "Mock", "register", "install", ".add_",
    ".start()", ".stop()", "stopall", "del ", "copyreg", "tqdm",
)  # fmt: skip
_SETTING_CALLS = re.compile(
    r"\.(?:set|set_options?|set_config|set_defaults?|use|enable\w*|disable\w*|activate|configure)\s*\("
)
"""Calls by which libraries are set up; whose they are, and what they change, is found out in the library."""

_LOOPS = re.compile(r"for [\w, ]+\.\w")
_WITHS = re.compile(r" as \w+\.")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")
_MUTATORS = frozenset(
    "append extend insert remove pop clear update setdefault add discard sort reverse popitem".split()
)
_SETTERS = frozenset({"setattr", "delattr", "vars", "__setattr__", "__delattr__"})


class Plan(NamedTuple):
    """What a cell names. `stores` are attributes that it binds by name; `open` are chains whose attributes
    it binds by names that its text does not say; `filled` are containers that it changes in place;
    `registries` are the functions by which it registers something, `settings` those by which it may set a
    library up.

    `imports` says which names its import statements bind, and to which modules; `moving` are the names of
    parameters and loops, which stand for several objects. With `inner`, it binds attributes inside a
    function or class, so that a later cell may do it by a call.
    """

    chains: frozenset[Chain] = frozenset()
    stores: frozenset[tuple[Chain, str]] = frozenset()
    open: frozenset[Chain] = frozenset()
    filled: frozenset[Chain] = frozenset()
    registries: frozenset[Chain] = frozenset()
    settings: frozenset[Chain] = frozenset()
    dotted: frozenset[str] = frozenset()
    imports: frozenset[tuple[str, str, str]] = frozenset()
    stars: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()
    inner: bool = False


NOTHING = Plan()
_plans: dict[str, Plan] = {}


@functools.lru_cache(maxsize=SOURCES_MAX)
def may_patch(source: str) -> bool:
    """Tell, by a look at its text, whether a cell may change an object of a library."""
    if "." not in source and "(" not in source:
        return False
    if any(word in source for word in _WORDS) or _STORES.search(source) is not None:
        return True
    if _SETTING_CALLS.search(source) is not None:
        return True
    return _LOOPS.search(source) is not None or _WITHS.search(source) is not None


def plan_of(source: str) -> Plan:
    """Return what a cell's source names; NOTHING for one that is no Python."""
    plan = _plans.get(source)
    if plan is None:
        finder = _Finder()
        finder.read(source, 0)
        plan = finder.plan()
        if len(_plans) >= SOURCES_MAX:
            _plans.clear()
        _plans[source] = plan
    return plan


def plan_of_module(text: str) -> Plan:
    """Return what calls of a module's functions may change in the libraries that it imports."""
    plan = plan_of(text) if may_patch(text) else NOTHING
    if not plan.inner:
        return NOTHING
    imported = {name for name, _, _ in plan.imports} - plan.moving

    def of_libraries(chains: frozenset[Chain]) -> frozenset[Chain]:
        return frozenset(chain for chain in chains if chain[0] in imported or chain[0].startswith("import "))

    bound = of_libraries(frozenset(chain for chain, _ in plan.stores))
    opened, filled = of_libraries(plan.open), of_libraries(plan.filled)
    registries, settings = of_libraries(plan.registries), of_libraries(plan.settings)
    named = bound | opened | filled | registries | settings
    if not named:
        return NOTHING
    heads = {chain[0] for chain in named}
    return Plan(
        chains=plan.chains & named,
        stores=frozenset(store for store in plan.stores if store[0] in bound),
        open=opened,
        filled=filled,
        registries=registries,
        settings=settings,
        imports=frozenset(entry for entry in plan.imports if entry[0] in heads),
        inner=True,
    )


def chain_of(node: ast.AST) -> Chain | None:
    """Return the dotted name that an expression is; None for anything else."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(TYPE if node.attr == "__class__" else node.attr)
            node = node.value
        elif isinstance(node, ast.Call) and len(node.args) == 1 and _is_name(node.func, "type"):
            parts.append(TYPE)
            node = node.args[0]
        elif isinstance(node, ast.Subscript) and chain_of(node.value) == ("sys", "modules"):
            key = node.slice
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return None
            return (f"import {key.value}", *reversed(parts))
        elif isinstance(node, ast.Name):
            return (node.id, *reversed(parts))
        else:
            return None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


class _Finder:
    """Collects what one source names."""

    def __init__(self) -> None:
        self._chains: set[Chain] = set()
        self._stores: set[tuple[Chain, str]] = set()
        self._open: set[Chain] = set()
        self._filled: set[Chain] = set()
        self._dotted: set[str] = set()
        self._imports: set[tuple[str, str, str]] = set()
        self._stars: set[str] = set()
        self._moving: set[str] = set()
        self._registries: set[Chain] = set()
        self._settings: dict[Chain, bool] = {}
        """Calls that may set a library up, and whether they are inside a function."""
        self._assigned: set[str] = set()
        self._inner = False

    def plan(self) -> Plan:
        """Return what was found; of calls that set something up, those of no local variable."""
        settings = {chain for chain in self._settings if chain[0] not in self._assigned | self._moving}
        self._inner |= any(self._settings[chain] for chain in settings)
        return Plan(
            frozenset(self._chains),
            frozenset(self._stores),
            frozenset(self._open),
            frozenset(self._filled),
            frozenset(self._registries),
            frozenset(settings),
            frozenset(self._dotted),
            frozenset(self._imports),
            frozenset(self._stars),
            frozenset(self._moving),
            self._inner,
        )

    def read(self, source: str, depth: int) -> None:
        """Collect from a source, and from the texts in it that are Python themselves."""
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        self._walk(tree, None, inner=False)
        if depth < NESTED_MAX:
            for text in _texts_in(tree):
                if may_patch(text):
                    self.read(text, depth + 1)

    def _walk(self, tree: ast.AST, own: str | None, *, inner: bool) -> None:
        """Visit every node; `own` is the first parameter of the method that the nodes belong to."""
        for node in ast.iter_child_nodes(tree):
            below = inner
            mine = own
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                below = True
                in_class = isinstance(tree, ast.ClassDef) and node.args.args
                mine = node.args.args[0].arg if in_class else own
            self._visit(node, own, inner)
            self._walk(node, mine, inner=below)

    def _visit(self, node: ast.AST, own: str | None, inner: bool) -> None:
        if isinstance(node, ast.Attribute):
            chain = chain_of(node)
            if chain is not None:
                self._chains.add(chain)
                if "register" in node.attr:
                    self._register(chain, inner)
            if not isinstance(node.ctx, ast.Load):
                self._store(chain_of(node.value), node.attr, own, inner)
        elif isinstance(node, ast.Name):
            self._chains.add((node.id,))
            if not isinstance(node.ctx, ast.Load):
                self._assigned.add(node.id)
            elif "register" in node.id:
                self._register((node.id,), inner)
        elif isinstance(node, ast.arg):
            self._moving.add(node.arg)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._moving.update(name.id for name in ast.walk(node.target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            self._fill(chain_of(node.value), node.value, inner)
        elif isinstance(node, ast.Call):
            self._call(node, own, inner)
        elif isinstance(node, ast.Constant) and type(node.value) is str:
            if len(node.value) < STRINGS_MAX and _DOTTED.match(node.value):
                self._dotted.add(node.value)
        else:
            self._import(node)

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name if name.asname else name.name.partition(".")[0]
                self._imports.add((name.asname or top, top, ""))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                if name.name == "*":
                    self._stars.add(node.module)
                else:
                    self._imports.add((name.asname or name.name, node.module, name.name))

    def _store(self, chain: Chain | None, name: str, own: str | None, inner: bool) -> None:
        if own is not None and chain == (own,):
            return
        self._stores.add((chain or SOMETHING, name))
        self._inner |= inner

    def _fill(self, chain: Chain | None, node: ast.AST, inner: bool) -> None:
        if chain is None:
            if isinstance(node, ast.Call) and _is_name(node.func, "vars") and node.args:
                chain = chain_of(node.args[0])
                if chain is not None:
                    self._open.add(chain)
            return
        if chain[-1] == "__dict__":
            self._open.add(chain[:-1])
        else:
            self._filled.add(chain)
        self._inner |= inner

    def _call(self, node: ast.Call, own: str | None, inner: bool) -> None:
        function = chain_of(node.func)
        if function is None:
            return
        last = function[-1]
        if last in _SETTERS and node.args:
            self._setter(function, node, own, inner)
        elif last in _MUTATORS and len(function) > 1:
            self._fill(function[:-1], node.func, inner)
        elif "patch" in function and last != "start":
            self._patch(node, inner)
        elif "install" in last or last.startswith("add_") or last in ("pickle", "pandas"):
            self._register(function, inner)
        if len(function) > 1 and _SETTING_CALLS.fullmatch(f".{last}("):
            self._settings[function] = self._settings.get(function, False) or inner

    def _register(self, function: Chain, inner: bool) -> None:
        self._registries.add(function)
        self._inner |= inner

    def _patch(self, node: ast.Call, inner: bool) -> None:
        """Note what `unittest.mock` patches; a text that names it is among the dotted ones."""
        chain = chain_of(node.args[0]) if node.args else None
        name = node.args[1] if len(node.args) > 1 else None
        if chain is None:
            return
        self._inner |= inner
        if isinstance(name, ast.Constant) and type(name.value) is str:
            self._stores.add((chain, name.value))
        else:
            self._open.add(chain)

    def _setter(self, function: Chain, node: ast.Call, own: str | None, inner: bool) -> None:
        chain = chain_of(node.args[0]) or SOMETHING
        if own is not None and chain == (own,):
            return
        if function[-1] == "__setattr__" and function[0] != "type":
            chain = function[:-1]
        self._inner |= inner
        name = node.args[1] if len(node.args) > 1 else None
        if isinstance(name, ast.Constant) and type(name.value) is str:
            self._stores.add((chain, name.value))
        else:
            self._open.add(chain)


def _texts_in(tree: ast.AST) -> Iterator[str]:
    """Yield the texts that are handed to `exec`, `eval` or a cell magic."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and type(argument.value) is str:
                    yield argument.value
