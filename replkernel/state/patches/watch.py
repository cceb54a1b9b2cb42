"""Compares what a cell's source names in libraries before and after it, and enters changes in the book.

Law: a cell whose text cannot change a library costs one look at that text; no user object is held.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.state.patches import sources
from replkernel.state.patches.book import UNKNOWN, Book
from replkernel.state.patches.looks import Look, is_foreign, is_imported, is_notebooks, look_at
from replkernel.state.patches.owners import (
    ACTIVE_MOCKS,
    CONTAINERS,
    LEFT_ALONE,
    Names,
    Owner,
    active_mocks,
    attributes_set_by,
    changed_by,
    functions_behind,
    holds_attributes,
    is_left_alone,
    place_of_mock,
    set_up_by,
    variables_set_by,
)
from replkernel.state.patches.places import (
    ATTRIBUTE,
    CONTENT,
    DISPATCH,
    ENTRY,
    ITEM,
    PLAIN,
    SETTING,
    VIRTUAL,
    Absent,
    Place,
    attributes_of,
    class_label,
    is_abstract,
    is_dispatcher,
    read,
    virtual_subclasses,
)
from replkernel.state.patches.sources import NOTHING, Plan
from replkernel.state.python.kinds import as_key, is_a, kind_of, of_key

UNLIKELY, LIKELY, SURE = 0, 1, 2
"""Whether a changed attribute that no text names is the notebook's doing."""

WATCHED_MAX = 200
LEARNED_MAX = 2_000
_MADE_BY_PYTHON = frozenset({
    "__warningregistry__", "__abstractmethods__", "_abc_impl", "__annotations__", "__doc__", "__dict__",
    "__weakref__", "__slotnames__", "__builtins__", "__cached__", "__spec__", "__loader__", "__file__",
})  # fmt: skip

_SIMPLE = frozenset({*PLAIN, list, dict, set, tuple})
"""What a function of the notebook may set under a name that it makes up; more may be a library's doing."""


class Watch:
    """One notebook's watch on the libraries. `expect` before a cell's code, `compare` after it."""

    def __init__(self, namespace: Mapping[str, Any], book: Book) -> None:
        self._namespace = namespace
        self._book = book
        self._plans: list[Plan] = []
        self._inner: dict[Plan, None] = {}
        """The plans of cells that defined functions which may change a library when they are called."""
        self._learned: set[str] = set()
        self._looks: dict[int, tuple[Owner, Look]] = {}
        self._incomplete = False
        self._mocks: frozenset[int] = frozenset()
        """The ids of the mocks that are known to be started."""
        self._bound: set[str] = set()
        """Attributes that the present plans bind on what they do not name."""

    def expect(self, source: str) -> None:
        """Look at what `source` names in libraries, before it runs."""
        if not self._inner and not sources.may_patch(source):
            return
        plan = sources.plan_of(source)
        if plan is NOTHING:
            return
        self._remember(plan)
        self._plans = list(dict.fromkeys([plan, *self._inner]))
        self._looks = {}
        self._look()

    def learn(self, source: str) -> None:
        """Know of a cell that ran in another process: its functions came here, or will come."""
        if source not in self._learned and sources.may_patch(source):
            self._remember(sources.plan_of(source))
            if len(self._learned) >= LEARNED_MAX:
                self._learned.clear()
            self._learned.add(source)

    def meet(self, text: str, now: bool) -> None:
        """Know of a module of the user's, whose functions may change a library when a cell calls them.

        With `now`, the cell that is under way has imported it, and may call them next.
        """
        plan = sources.plan_of_module(text)
        if plan is NOTHING or plan in self._inner:
            return
        self._remember(plan)
        if now:
            self._plans.append(plan)
            self._look()

    def _remember(self, plan: Plan) -> None:
        if plan.inner and plan not in self._inner and len(self._inner) < WATCHED_MAX:
            self._inner[plan] = None

    def go_on(self) -> None:
        """Look, before a statement runs, at what the statements before it have imported."""
        if self._incomplete:
            self._look()

    def compare(self) -> None:
        """Enter in the book what has changed since `expect`."""
        self._compare_mocks()
        if not self._plans:
            return
        plans, self._plans, self._incomplete = self._plans, [], False
        looks, self._looks = self._looks, {}
        names = [(plan, Names(plan, self._namespace)) for plan in plans]
        explicit = self._explicit(names)
        opened, anything = self._opened(names)
        for owner, before in looks.values():
            self._compare_owner(owner, before, explicit, SURE if id(owner.value) in opened else anything)
        for owner in self._owners(names):
            if id(owner.value) not in looks:
                self._compare_new(owner, explicit)

    def _compare_mocks(self) -> None:
        """Enter the mocks that were started, whatever started them: a patcher names its place itself."""
        active = active_mocks()
        now = frozenset(map(id, active))
        if now == self._mocks:
            return
        known, self._mocks = self._mocks, now
        module, *path = ACTIVE_MOCKS
        place = Place(CONTENT, module.removeprefix("import "), ".".join(path), "")
        self._book.enter(place, [])
        new = [mock for mock in active if id(mock) not in known]
        for started in filter(None, map(place_of_mock, new)):
            owner = started.owner
            self._book.enter(Place(ATTRIBUTE, owner.module, owner.path, started.name), started.original)

    # -- before ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        names = [(plan, Names(plan, self._namespace)) for plan in self._plans]
        self._incomplete = not all(known.complete for _, known in names)
        for owner in self._owners(names):
            if id(owner.value) not in self._looks:
                self._looks[id(owner.value)] = owner, look_at(owner.value)

    def _owners(self, names: Iterable[tuple[Plan, Names]]) -> list[Owner]:
        """Return the library objects that are to be compared."""
        found: dict[int, Owner] = {}

        def add(owner: Owner | None) -> None:
            if owner is None or is_left_alone(owner):
                return
            if not self._book.is_patched(owner.module, owner.path):
                found.setdefault(id(owner.value), owner)

        for number, (plan, known) in enumerate(names):
            named = {chain for chain, _ in plan.stores} | plan.open
            for chain in plan.chains:
                for owner in known.along(chain):
                    if owner is None or not holds_attributes(owner.value):
                        continue
                    if number == 0 or chain in named or not is_a(owner.value, types.ModuleType):
                        add(owner)
            for text in plan.dotted:
                place = known.dotted(text)
                add(place[0] if place is not None else None)
            for owner in changed_by(plan, known):
                add(owner)
        return list(found.values())

    # -- after -------------------------------------------------------------------------------------------

    def _explicit(self, names: Iterable[tuple[Plan, Names]]) -> set[tuple[int, str]]:
        """Return the attributes, by the ids of their owners, that the sources bind by name."""
        found: set[tuple[int, str]] = set()
        for plan, known in names:
            for chain, name in plan.stores:
                owner = known.owner(chain)
                if owner is not None and (owner.module, owner.below(name)) not in LEFT_ALONE:
                    found.add((id(owner.value), name))
                    self._note_setting(owner, name)
            for text in plan.dotted:
                named = known.dotted(text)
                if named is not None:
                    found.add((id(named[0].value), named[1]))
            for function in plan.registries:
                registering = known.owner(function)
                for behind in functions_behind(registering.value if registering is not None else None):
                    home = sys.modules.get(behind.__module__)
                    found.update((id(home), name) for name in variables_set_by(behind))
            for function in plan.settings | plan.registries:
                for owner in set_up_by(function, known):
                    if not is_a(owner.value, CONTAINERS):
                        found.update((id(owner.value), name) for name in attributes_set_by(type(owner.value)))
        return found

    def _opened(self, names: Iterable[tuple[Plan, Names]]) -> tuple[set[int], int]:
        """Return the ids of objects whose attributes are bound by names that no text says, and how far
        the others are to be trusted: a function's parameter may stand for any of them."""
        opened: set[int] = set()
        trust = UNLIKELY
        self._bound = set()
        for plan, known in names:
            self._bound.update(name for chain, name in plan.stores if _stands_for_several(chain, plan))
            for chain in plan.open:
                owner = known.owner(chain)
                if owner is not None:
                    opened.add(id(owner.value))
                if _stands_for_several(chain, plan):
                    trust = LIKELY
        return opened, trust

    def _note_setting(self, owner: Owner, name: str) -> None:
        """Enter an attribute that is no object in a dictionary but a setting behind a descriptor."""
        value = owner.value
        if is_a(value, type) or name in attributes_of(value):
            return
        place = Place(SETTING, owner.module, owner.path, name)
        if type(value) is not types.ModuleType and read(place) is not Absent:
            self._book.enter(place, UNKNOWN)

    def _compare_owner(self, owner: Owner, before: Look, explicit: set[tuple[int, str]], trust: int) -> None:
        value = owner.value
        now = look_at(value)
        if now.keys() == before.keys() and all(now[key][0] == before[key][0] for key in now):
            return
        changed = [key for key in now if key not in before or before[key][0] != now[key][0]]
        gone = [key for key in before if key not in now]
        if is_a(value, CONTAINERS):
            self._enter_entries(owner, before, [*changed, *gone])
        elif is_dispatcher(value):
            self._enter_types(DISPATCH, owner, before, map(of_key, changed))
        else:
            self._enter_attributes(owner, before, [*changed, *gone], explicit, trust)

    def _enter_attributes(
        self, owner: Owner, before: Look, names: list[Any], explicit: set[tuple[int, str]], trust: int
    ) -> None:
        attributes = attributes_of(owner.value)
        for name in map(of_key, names):
            if is_a(name, type):
                self._book.enter(Place(VIRTUAL, owner.module, owner.path, class_label(name)), Absent)
                continue
            value = attributes.get(name, Absent)
            if type(name) is not str or (owner.module, owner.below(name)) in LEFT_ALONE:
                continue
            sure = (id(owner.value), name) in explicit
            if sure or self._is_ours(owner, name, value, trust):
                original = before[name][1] if name in before else Absent
                self._book.enter(Place(ATTRIBUTE, owner.module, owner.path, name), original)

    def _is_ours(self, owner: Owner, name: str, value: object, trust: int) -> bool:
        """Tell whether a changed attribute is the notebook's doing though no text says its name."""
        if name in _MADE_BY_PYTHON or is_a(value, types.ModuleType):
            return False
        if is_notebooks(value, self._namespace) or is_foreign(value, owner.module):
            return True
        if trust == SURE or name.startswith("_"):
            return trust == SURE
        return name in self._bound or (trust == LIKELY and kind_of(value) in _SIMPLE)

    def _enter_types(self, kind: str, owner: Owner, before: Look, classes: Iterable[Any]) -> None:
        for cls in classes:
            original = before.get(as_key(cls))
            first = (cls, original[1]) if original is not None else Absent
            self._book.enter(Place(kind, owner.module, owner.path, class_label(cls)), first)

    def _enter_entries(self, owner: Owner, before: Look, keys: list[Any]) -> None:
        """Enter what changed in a container: by its keys if it is a dictionary, else as a whole."""
        if not is_a(owner.value, dict):
            kept = [entry[1] for entry in before.values()]
            first = UNKNOWN if any(item is UNKNOWN for item in kept) else type(owner.value)(kept)
            self._book.enter(Place(CONTENT, owner.module, owner.path, ""), first)
            return
        for key in map(of_key, keys):
            if owner.value is sys.modules and is_imported(key):
                continue
            known = as_key(key)
            original = before[known][1] if known in before else Absent
            if type(key) is str or type(key) is int:
                self._book.enter(Place(ITEM, owner.module, owner.path, json.dumps(key)), original)
            elif is_a(key, type):
                self._enter_types(ENTRY, owner, before, [key])
            else:
                path = f"{owner.module}.{owner.path}"
                self._book.notes[f"The notebook changed an entry of {path} whose key cannot be named."] = None

    def _compare_new(self, owner: Owner, explicit: set[tuple[int, str]]) -> None:
        """Enter the changes of an object that came with the cell itself: there is no look from before."""
        value = owner.value
        if is_a(value, CONTAINERS):
            return
        if is_dispatcher(value):
            mine = [
                cls for cls, function in value.registry.items() if is_notebooks(function, self._namespace)
            ]
            self._enter_types(DISPATCH, owner, {}, mine)
            return
        if is_abstract(value):
            for cls in virtual_subclasses(value):
                if is_notebooks(cls, self._namespace):
                    self._book.enter(Place(VIRTUAL, owner.module, owner.path, class_label(cls)), Absent)
        for name, held in list(attributes_of(value).items()):
            if (
                type(name) is not str
                or name in _MADE_BY_PYTHON
                or (owner.module, owner.below(name)) in LEFT_ALONE
            ):
                continue
            named = (id(value), name) in explicit or is_notebooks(held, self._namespace)
            if named and not _is_own_global(owner, name, held):
                self._book.enter(Place(ATTRIBUTE, owner.module, owner.path, name), UNKNOWN)


def _stands_for_several(chain: sources.Chain, plan: Plan) -> bool:
    return chain == sources.SOMETHING or chain[0] in plan.moving


def _is_own_global(owner: Owner, name: str, value: Any) -> bool:
    """Tell whether a function or class is where its own module says that it was defined."""
    home = getattr(value, "__module__", None) if is_a(value, (type, types.FunctionType)) else None
    return home == owner.module and value.__qualname__ == owner.below(name)
