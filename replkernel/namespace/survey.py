"""One look at the whole namespace: every unit dumped, classes found, units joined and taken apart.

A unit is a component as it was last time, or a new name. One whose fingerprint changed is taken apart into
its names, and what is linked is joined again.
Law: nothing is remembered here; what the survey returns lives as long as the capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from replkernel.namespace.class_registry import ROOT_PREFIX
from replkernel.namespace.dump import FAST, Dump, Mode
from replkernel.namespace.hooks import HOOKS_ROOT, registered
from replkernel.namespace.partition import Linkable, joined
from replkernel.namespace.pickling import CapturePickler
from replkernel.namespace.reducers.functions import is_library_function
from replkernel.namespace.tombstone import Loss
from replkernel.namespace.world import World


class Known(msgspec.Struct):
    """What the survey must know of a component as it was; `objects` is how many it had."""

    roots: tuple[str, ...]
    fingerprint: bytes
    mode: Mode
    losses: tuple[Loss, ...]
    atom: Any
    objects: int = 0


NO_ATOM: Any = object()

LARGE_OBJECTS = 10_000
"""A component with more objects is dumped by a pickler of its own, whose memo is read in place."""


class Survey:
    """One survey: `units` are the dumps of the namespace, `untouched` the names of atoms that stayed."""

    def __init__(self, world: World, known: Mapping[str, Known]) -> None:
        self._world = world
        self._known = known
        self._first: CapturePickler | None = None
        self._large: list[CapturePickler] = []
        self._wholes: dict[frozenset[str], Dump] = {}
        self.units: list[Dump] = []
        self.untouched: list[str] = []

    def release(self) -> None:
        """Let go of all user objects."""
        self.units = []
        self._wholes = {}
        for pickler in (self._first, *self._large):
            if pickler is not None:
                pickler.release()
        self._first = None
        self._large = []

    @property
    def _pickler(self) -> CapturePickler:
        """The pickler of all units but large ones, made when there is something to dump."""
        if self._first is None:
            self._first = CapturePickler(self._world)
        return self._first

    def _dump(
        self,
        values: dict[str, Any],
        before: Known | None,
        classes: dict[str, type] | None = None,
        mode: Mode = FAST,
        losses: tuple[Loss, ...] = (),
    ) -> Dump:
        """Dump one unit, by what is known of it."""
        if before is None:
            return self._pickler.dump_unit(values, mode, classes, losses)
        pickler = self._pickler
        if before.objects > LARGE_OBJECTS:
            pickler = CapturePickler(self._world, keeps_memo=True)
            self._large.append(pickler)
        return pickler.dump_unit(values, before.mode, classes, before.losses)

    def look(self, names: Iterable[str]) -> None:
        """Dump everything that `names` reach, and join what belongs together."""
        self._look_at_names(names)
        if registered:
            self._look_at_values({HOOKS_ROOT: registered})
        self._look_at_classes()
        self._join()

    def again(self, roots: Iterable[str]) -> Dump | None:
        """Dump one component by its roots, as it is now; None when nothing of it is here."""
        values: dict[str, Any] = {}
        classes: dict[str, type] = {}
        for root in roots:
            if root.startswith(ROOT_PREFIX):
                cls = self._world.classes.find(root.removeprefix(ROOT_PREFIX))
                if cls is not None:
                    classes[root.removeprefix(ROOT_PREFIX)] = cls
            elif root == HOOKS_ROOT:
                values[root] = registered
            elif root in self._world.namespace:
                values[root] = self._world.namespace[root]
        return self._pickler.dump_unit(values, FAST, classes) if values or classes else None

    # -- units ---------------------------------------------------------------------------------------

    def _look_at_names(self, names: Iterable[str]) -> None:
        namespace, known = self._world.namespace, self._known
        units, untouched = self.units, self.untouched
        wholes: dict[int, tuple[Known, dict[str, Any]]] = {}
        for name in names:
            value = namespace[name]
            before = known.get(name)
            if before is None:
                units.append(self._dump({name: value}, None))
            elif len(before.roots) == 1:
                if value is before.atom:
                    untouched.append(name)
                else:
                    units.append(self._dump({name: value}, before))
            else:
                wholes.setdefault(id(before), (before, {}))[1][name] = value
        for before, values in wholes.values():
            self._look_at_whole(before, values)

    def _look_at_values(self, values: dict[str, Any]) -> None:
        """Dump each value as a unit of its own."""
        for name, value in values.items():
            self.units.append(self._dump({name: value}, self._known.get(name)))

    def _look_at_whole(self, before: Known, values: dict[str, Any]) -> None:
        """Dump a component of several roots as it was; take it apart when it changed."""
        classes: dict[str, type] = {}
        complete = True
        for root in before.roots:
            if root.startswith(ROOT_PREFIX):
                class_id = root.removeprefix(ROOT_PREFIX)
                cls = self._world.classes.find(class_id)
                if cls is None:
                    complete = False
                else:
                    classes[class_id] = cls
            elif root not in values:
                complete = False
        if complete:
            ordered = {root: values[root] for root in before.roots if root in values}
            dump = self._dump(ordered, before, classes)
            if dump.fingerprint == before.fingerprint:
                self.units.append(dump)
                return
            self._wholes[frozenset(before.roots)] = dump
        self._look_at_values(values)

    def _look_at_classes(self) -> None:
        """Dump the definitions of all classes that are referred to, directly or by other classes."""
        seen = {class_id for unit in self.units for class_id in unit.own_classes}
        queue = [class_id for unit in self.units for class_id in sorted(unit.classes)]
        while queue:
            class_id = queue.pop(0)
            cls = self._world.classes.find(class_id)
            if class_id in seen or cls is None:
                continue
            seen.add(class_id)
            unit = self._dump({}, self._known.get(ROOT_PREFIX + class_id), {class_id: cls})
            self.units.append(unit)
            queue.extend(sorted(unit.classes))

    # -- components -----------------------------------------------------------------------------------

    def _join(self) -> None:
        if len(self.units) < 2:
            return
        main = self._world.seeds.main_name
        linkable = Linkable(lambda function: is_library_function(function, main))
        seeds = frozenset(self._world.seeds.memo())
        groups = joined(self.units, seeds, linkable)
        if not groups:
            return
        merged = [self._merge([self.units[index] for index in group]) for group in groups]
        gone = {index for group in groups for index in group}
        self.units = [unit for index, unit in enumerate(self.units) if index not in gone] + merged

    def _merge(self, parts: list[Dump]) -> Dump:
        roots = [root for part in parts for root in part.roots]
        class_ids = [class_id for part in parts for class_id in part.own_classes]
        whole = self._wholes.get(frozenset([*roots, *(ROOT_PREFIX + class_id for class_id in class_ids)]))
        if whole is not None:
            return whole
        values = {root: registered if root == HOOKS_ROOT else self._world.namespace[root] for root in roots}
        find = self._world.classes.find
        classes = {class_id: cls for class_id in class_ids if (cls := find(class_id)) is not None}
        mode = Mode(any(part.mode.careful for part in parts), any(part.mode.deep for part in parts))
        losses = tuple(loss for part in parts for loss in part.losses)
        return self._dump(values, None, classes, mode, losses)
