"""Where objects sit below variables, as a user would write it: ``model.hooks[2]``.

Law: bounded walks over builtin containers, attributes and closures; no user code runs.
"""

from __future__ import annotations

import functools
import gc
import re
import types
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from replkernel.errors import WITHIN
from replkernel.state.python.kinds import key_of, kind_of, module_of, qualname_of
from replkernel.state.python.paths import instance_dict

VISITED_MAX = 20_000

_OPAQUE = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)
_SEEN = (*_OPAQUE, dict, list, tuple, set, frozenset, deque, types.FunctionType)
"""What is walked as a whole, or stands for more than what lies below it."""
_MEMBER, _MRO = type.__dict__["__dict__"], type.__dict__["__mro__"]
_STEP = re.compile(r"\.__closure__\['\w+'\]|\.\w+|\[[^\[\]'\"]*\]|\['[^']*'\]|\[\"[^\"]*\"\]|\{…\}")
_UNTOLD = ("[…]", "{…}")
"""Steps that do not say which member it is."""
NOTHING, UNTOLD = object(), object()
_SHELLS = re.compile(r"_{1,3}|_\d+|_i{0,3}|_i\d+|_[iod]h|In|Out")
"""The names of IPython's history."""


def children(value: Any) -> list[tuple[str, Any]]:
    """Return what `value` holds, each with the step that leads there."""
    kind = type(value)
    if kind is dict or issubclass(kind, dict):
        return [
            (f"[{key!r}]" if kind_of(key) in (str, int) else "[…]", item) for key, item in dict.items(value)
        ]
    if key_of(kind) in (list, tuple, deque):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if kind is set or kind is frozenset:
        return [("{…}", item) for item in value]
    if issubclass(kind, _OPAQUE):
        return []
    if kind is types.FunctionType:
        return _of_function(value)
    attributes = instance_dict(value)
    found = [] if attributes is None else [(f".{key}", item) for key, item in attributes.items()]
    found += _of_slots(value, kind)
    if kind is types.MethodType:
        found.append((".__self__", value.__self__))
    elif issubclass(kind, functools.partial):
        held = functools.partial
        found += [(f".{name}", held.__dict__[name].__get__(value)) for name in ("func", "args", "keywords")]
    elif module_of(kind) == "numpy" and qualname_of(kind) == "ndarray" and value.dtype.hasobject:
        found += _of_array(value)
    return found


def _of_function(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Return what a function holds besides the notebook's variables: closure, defaults, attributes."""
    found: list[tuple[str, Any]] = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # A cell may be empty.
            found.append((f".__closure__[{name!r}]", cell.cell_contents))
    if function.__defaults__:
        found.append((".__defaults__", function.__defaults__))
    if function.__kwdefaults__:
        found.append((".__kwdefaults__", function.__kwdefaults__))
    return found + [(f".{key}", item) for key, item in function.__dict__.items()]


def slots(kind: type) -> list[tuple[str, types.MemberDescriptorType]]:
    """Return the slots that the notebook's and libraries' Python classes give their instances."""
    return [
        (name, member)
        for cls in _MRO.__get__(kind)
        if _MEMBER.__get__(cls).get("__slots__")
        for name, member in _MEMBER.__get__(cls).items()
        if type(member) is types.MemberDescriptorType
    ]


def _of_slots(value: object, kind: type) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, member in slots(kind):
        with suppress(AttributeError):
            found.append((f".{name}", member.__get__(value)))
    return found


def _of_array(array: Any) -> list[tuple[str, Any]]:
    """Return the members of an array of objects; more than are visited at all are not looked at."""
    if array.size > VISITED_MAX:
        return []
    shape = array.shape
    found: list[tuple[str, Any]] = []
    for number, item in enumerate(array.ravel().tolist()):
        places: list[str] = []
        for length in reversed(shape):
            number, place = divmod(number, length)
            places.insert(0, str(place))
        found.append((f"[{', '.join(places)}]", item))
    return found


def steps_of(rest: str) -> list[str]:
    """Return the steps of a path behind its variable, as far as they can be told apart."""
    steps: list[str] = []
    while found := _STEP.match(rest):
        steps.append(found[0])
        rest = rest[found.end() :]
    return steps


def step_into(value: Any, step: str) -> Any:
    """Return what is one step below `value`; raise LookupError when there is nothing, or who knows what."""
    if step in _UNTOLD:
        raise LookupError(step)
    if kind_of(value) in (list, tuple) and step[1:-1].isdecimal():
        return value[int(step[1:-1])]
    try:
        found = children(value)
    except RuntimeError:
        found = []
    for one, item in found:
        if one == step:
            return item
    raise LookupError(step)


class Whereabouts:
    """Finds objects below `roots`; a root that is a class is looked into, for it stands for its definition.

    What there is, is looked for once, when somebody first asks; what a user's variable and one of IPython's
    own both reach goes by the user's.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._roots = roots
        self._found: dict[int, tuple[str, str]] | None = None
        self._hidden: dict[int, tuple[str, str]] | None = None
        self._kept: list[Any] = []

    def of(self, wanted: object) -> tuple[str, str] | None:
        """Return the variable that reaches an object, and the path when it lies deeper; None if none does."""
        return self.of_id(id(wanted))

    def of_id(self, number: int) -> tuple[str, str] | None:
        """Return the same of the object with that id."""
        if self._found is None:
            self._found = self._look()
        return self._found.get(number)

    def within(self, wanted: object) -> tuple[str, str] | None:
        """Return variable and path of what has an object where no walk comes, as csv's readers their file."""
        if self._hidden is None:
            self._hidden = self._look_within()
        return self._hidden.get(id(wanted))

    def _look_within(self) -> dict[int, tuple[str, str]]:
        """Return what the garbage collector knows of, one step below all that a walk finds."""
        if self._found is None:
            self._found = self._look()
        hidden: dict[int, tuple[str, str]] = {}
        for value in self._kept:
            if issubclass(type(value), _SEEN) or len(hidden) > VISITED_MAX:
                continue
            name, path = self._found[id(value)]
            for held in gc.get_referents(value):
                hidden.setdefault(id(held), (name, (path or name) + WITHIN))
        return hidden

    def _look(self) -> dict[int, tuple[str, str]]:
        found: dict[int, tuple[str, str]] = {}
        shells = {name: value for name, value in self._roots.items() if _SHELLS.fullmatch(name)}
        self._walk({name: value for name, value in self._roots.items() if name not in shells}, found)
        self._walk(shells, found)
        return found

    def _walk(self, roots: Mapping[str, Any], found: dict[int, tuple[str, str]]) -> None:
        queue: deque[tuple[str, str, Any]] = deque((name, "", value) for name, value in roots.items())
        for name, value in roots.items():
            if issubclass(type(value), type):
                queue.extend((name, f".{key}", item) for key, item in _MEMBER.__get__(value).items())
        while queue and len(found) < VISITED_MAX:
            name, path, value = queue.popleft()
            if id(value) in found:
                continue
            found[id(value)] = name, f"{name}{path}" if path else ""
            self._kept.append(value)
            try:
                held = children(value)
            except RuntimeError:
                continue
            room = VISITED_MAX - len(queue)
            queue.extend((name, path + step, item) for step, item in held[: max(room, 0)])

    def still(self, name: str, path: str, wanted: object) -> bool:
        """Tell whether an object is where it was found before; where that cannot be told, it is."""
        value = self.at(name, path.removesuffix(WITHIN))
        if not path.endswith(WITHIN) or value is NOTHING:
            return value is UNTOLD or value is wanted
        return value is UNTOLD or any(held is wanted for held in gc.get_referents(value))

    def at(self, name: str, path: str) -> Any:
        """Return what is at a place now: `NOTHING` if nothing is, `UNTOLD` where that cannot be told."""
        if name not in self._roots:
            return NOTHING
        value = self._roots[name]
        rest = path.removeprefix(name)
        steps = steps_of(rest)
        if "".join(steps) != rest or any(step in _UNTOLD for step in steps):
            return UNTOLD
        try:
            if steps and issubclass(type(value), type):
                value = _MEMBER.__get__(value)[steps.pop(0)[1:]]
            for step in steps:
                value = step_into(value, step)
        except LookupError:
            return NOTHING
        return value
