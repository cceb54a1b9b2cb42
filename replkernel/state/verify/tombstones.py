"""What takes the place of a component that is not as it was captured: of its smallest part, or of all of it.

Law: what stays of it reaches no object that is not as it was; a dump of each variable tells.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from replkernel.records import ComponentRecord
from replkernel.state import hooks
from replkernel.state.capture.dump import Dump
from replkernel.state.capture.whereabouts import Whereabouts, children, slots, step_into, steps_of
from replkernel.state.python.class_registry import ROOT_PREFIX, ClassRegistry
from replkernel.state.python.kinds import derives, is_a, module_of, qualname_of, type_name
from replkernel.state.python.paths import instance_dict
from replkernel.state.tombstone import Loss, entitle, is_tombstone, loss_of, lost, shorten
from replkernel.state.verify.canonical import DIFFERENCES_MAX
from replkernel.state.verify.proof import Verdict

VARIABLES_MAX = 50
"""A component of more variables is not looked through for what can stay of it."""

_OF_ALL = frozenset({"what shares it", "names", "its classes"})
"""Differences that are no one object's."""


class TombstoneMaker:
    """Buries one component, which the replica `origin` made; `names` are the roots that it still owns."""

    def __init__(
        self,
        record: ComponentRecord,
        origin: str,
        namespace: dict[str, Any],
        names: Sequence[str],
        classes: ClassRegistry,
    ) -> None:
        self._record = record
        self._origin = origin
        self._namespace = namespace
        self._names = names
        self._classes = classes
        self._variables = [name for name in names if name in namespace]

    def of_hooks(self, verdict: Verdict) -> list[Loss]:
        """Return what would be lost, if that is all by how its user has it copied; leave everything as it is.

        All else may be as it was once the process's own state is here.
        """
        wrong = self._smallest(verdict)
        if wrong is None or not all(hooks.told_of(type(value)) for value, _ in wrong):
            return []
        places = self._places()
        told = [(value, type_name(value), why) for value, why in wrong]
        told += [(each, loss_of(each).type_name, loss_of(each).reason) for each in verdict.lost]
        placed = [(places.of(value), kind, why) for value, kind, why in told]
        return [self._loss(found[0], kind, shorten(why), found[1]) for found, kind, why in placed if found]

    def bury(
        self,
        verdict: Verdict,
        drop_quietly: Callable[[list[Any]], None],
        dumped: Callable[[str], Dump | None],
    ) -> list[Loss]:
        """Put tombstones where the component is not as it was; return what they stand for.

        `drop_quietly` lets go of objects without their finalizers, `dumped` dumps a variable as it is.
        """
        namespace, wrong = self._namespace, self._smallest(verdict)
        if wrong is None:
            losses = self._losses_of_all(verdict.sentence())
            gone = [loss for loss in losses if loss.name in namespace]
            drop_quietly([namespace[loss.name] for loss in gone])
            namespace.update({loss.name: lost(*msgspec.structs.astuple(loss)) for loss in gone})
            return losses
        tombstones = {id(value): self._tombstone("", value, why) for value, why in wrong}
        drop_quietly([value for value, _ in wrong])
        put(namespace, self._variables, tombstones)
        reaching = [
            name
            for name in self._variables
            if tombstones and not is_tombstone(namespace[name]) and _reaches(dumped(name), tombstones)
        ]
        for name in reaching:
            drop_quietly([namespace[name]])
            namespace[name] = self._tombstone(name, namespace[name], verdict.sentence())
        return self._entitle([*verdict.lost, *tombstones.values(), *(namespace[name] for name in reaching)])

    def _smallest(self, verdict: Verdict) -> list[tuple[Any, str]] | None:
        """Return the objects that are not as they were, and why; None where nobody can tell which."""
        differences = verdict.differences
        if not 0 < len(self._variables) <= VARIABLES_MAX or len(differences) >= DIFFERENCES_MAX:
            return None
        if not (differences or verdict.lost):
            return None
        roots = {name: self._namespace[name] for name in self._variables}
        found: dict[int, tuple[Any, str]] = {}
        for difference in differences:
            if difference.what in _OF_ALL or "(a key)" in difference.path:
                return None
            try:
                value = smallest(roots, difference.path)
            except LookupError:
                return None
            if not is_tombstone(value):
                found.setdefault(id(value), (value, difference.sentence() + hooks.told_of(type(value))))
        return list(found.values())

    def _entitle(self, tombstones: Sequence[Any]) -> list[Loss]:
        """Give tombstones the place that they have now; what nothing reaches any more is no loss."""
        places = self._places()
        losses: dict[int, Loss] = {}
        for tombstone in tombstones:
            found = places.of(tombstone)
            if found is not None:
                losses[id(tombstone)] = self._placed(tombstone, *found)
        return list(losses.values())

    def _places(self) -> Whereabouts:
        return Whereabouts({name: self._namespace[name] for name in self._variables})

    def _placed(self, tombstone: object, name: str, path: str) -> Loss:
        before = loss_of(tombstone)
        loss = self._loss(name, before.type_name, before.reason, path)
        entitle(tombstone, loss)
        return loss

    def _losses_of_all(self, sentence: str) -> list[Loss]:
        """Return a loss for each variable.

        A class has no variable of its own: those that hold it, or an instance, are lost with it.
        Registrations, and a class that no variable holds, are named by what they are: what has no name is no
        pin.
        """
        names = self._names
        wanted = [name for name in names if not name.startswith(ROOT_PREFIX) and name != hooks.HOOKS_ROOT]
        own = [name.removeprefix(ROOT_PREFIX) for name in names if name.startswith(ROOT_PREFIX)]
        found = [cls for class_id in own if (cls := self._classes.find(class_id)) is not None]
        if found:
            wanted += [name for name in _held_by(self._namespace, found) if name not in wanted]
        if not wanted:
            wanted = [f"class {qualname_of(cls)}" for cls in found]
        if hooks.HOOKS_ROOT in names and not wanted:
            wanted = [hooks.REGISTRATIONS]
        return [self._loss(name, self._type_name(name), shorten(sentence)) for name in wanted]

    def _tombstone(self, name: str, value: object, why: str) -> Any:
        kind = self._type_name(name) if name else type_name(value)
        return lost(*msgspec.structs.astuple(self._loss(name, kind, shorten(why))))

    def _loss(self, name: str, type_name: str, reason: str, path: str = "") -> Loss:
        record = self._record
        return Loss(name, type_name, self._origin, record.seq, record.making(name).cell, path, reason, True)

    def _type_name(self, name: str) -> str:
        """Return the type of what was captured; a builtin's is that of what was made of it."""
        told = self._record.making(name).type_name
        if told or name not in self._namespace:
            return told or "object"
        value = self._namespace[name]
        return loss_of(value).type_name if is_tombstone(value) else type_name(value)


def _reaches(dump: Dump | None, wrong: Mapping[int, Any]) -> bool:
    """Tell whether a dump has an object of `wrong`; of one whose objects are not at hand nobody knows."""
    return dump is None or dump.table is not None or not wrong.keys().isdisjoint(dump.memo)


def _held_by(namespace: Mapping[str, Any], classes: list[type]) -> list[str]:
    return [
        name
        for name, value in namespace.items()
        if any(value is cls or derives(type(value), cls) or _is_child(value, cls) for cls in classes)
    ]


def _is_child(value: Any, cls: type) -> bool:
    return derives(type(value), type) and derives(value, cls)


# Puts tombstones in the place of the smallest objects that were rebuilt wrongly; what is beside them stays.
#
# Law: bounded walks over builtin containers, attributes and closures; no user code runs.


VISITED_MAX = 20_000


def smallest(roots: Mapping[str, Any], path: str) -> Any:
    """Return the smallest object that `path` leads into whose class is no builtin; raise LookupError.

    Containers are as true as what is in them.
    """
    name = next((root for root in sorted(roots, key=len, reverse=True) if _begins(path, root)), None)
    if name is None:
        raise LookupError(path)
    values = [roots[name]]
    for step in steps_of(path.removeprefix(name)):
        try:
            values.append(step_into(values[-1], step))
        except LookupError:
            break
    found = [value for value in values if not _is_builtin(value)]
    if not found:
        raise LookupError(path)
    return found[-1]


def _begins(path: str, root: str) -> bool:
    return path.startswith(root) and path[len(root) : len(root) + 1] in ("", ".", "[", "{", " ")


def _is_builtin(value: object) -> bool:
    return module_of(type(value)) == "builtins" or is_a(value, type)


def put(namespace: dict[str, Any], names: list[str], stand_ins: Mapping[int, Any]) -> None:
    """Put what `stand_ins` has for an id in the place of the object that has it, below `names`.

    What holds its members for good (tuples, sets, a library's objects) keeps them.
    """
    for name in names:
        if id(namespace[name]) in stand_ins:
            namespace[name] = stand_ins[id(namespace[name])]
    queue = deque(namespace[name] for name in names)
    seen: dict[int, Any] = {}
    while queue and len(seen) < VISITED_MAX:
        value = queue.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        for setter, item in _places(value):
            if id(item) in stand_ins:
                setter(stand_ins[id(item)])
        queue.extend(item for _, item in children(value)[: VISITED_MAX - len(queue)])


def _places(value: Any) -> list[tuple[Callable[[Any], None], Any]]:
    """Return what `value` holds in places that can be filled anew, each with what fills it."""
    kind = type(value)
    if kind is list or kind is deque:
        return [(partial(kind.__setitem__, value, index), item) for index, item in enumerate(value)]
    if issubclass(kind, dict):
        return [(partial(dict.__setitem__, value, key), item) for key, item in dict.items(value)]
    found: list[tuple[Callable[[Any], None], Any]] = []
    if kind is types.FunctionType:
        for cell in value.__closure__ or ():
            with suppress(ValueError):
                found.append((partial(setattr, cell, "cell_contents"), cell.cell_contents))
    if issubclass(kind, (type, types.ModuleType)):
        return found
    attributes = instance_dict(value) or {}
    found += [(partial(dict.__setitem__, attributes, key), item) for key, item in attributes.items()]
    for _, member in slots(kind):
        with suppress(AttributeError):
            found.append((partial(member.__set__, value), member.__get__(value)))
    return found
