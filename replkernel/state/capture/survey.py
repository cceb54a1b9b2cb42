"""One look at the whole namespace: every unit dumped, classes found, units joined and taken apart.

A unit is a component as it was last time, or a new name. One whose fingerprint changed is taken apart into
its names, and what is linked is joined again.
Law: nothing is remembered here; what the survey returns lives as long as the capture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from replkernel.state import hints
from replkernel.state.capture import bundles, sharing
from replkernel.state.capture.budget import EVERYTHING, Gate, GiveWay, Terms
from replkernel.state.capture.dump import FAST, BufferDigests, Dump, Mode, hash_buffers, roots_of
from replkernel.state.capture.partition import Linkable, joined, rest_without
from replkernel.state.capture.pickling import CapturePickler
from replkernel.state.capture.survey_order import Begun, Job, Known, grouped, is_heavy, measured, survey_order
from replkernel.state.format.shared_values import Value
from replkernel.state.hooks import HOOKS_ROOT, registered
from replkernel.state.patches.book import book
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.python.functions import is_library_function
from replkernel.state.tombstone import Loss
from replkernel.state.world import World


def _is_heavy(dump: Dump) -> bool:
    return dump.table is not None or is_heavy(dump.seconds)


CHECKED_UNITS = 16
"""So many light units are dumped without a look at who waits."""


class Survey:
    """One survey: `units` are the dumps of the namespace, `untouched` the names that stayed without a look.

    `bundles` are variables that were looked at together, and are as they were.

    `unseen` are the names that were left to an audit, or not come to: it is empty after a whole survey. What
    hangs together with them is not in `units`, and `gave_way` tells that the survey was cut short.
    """

    def __init__(self, world: World, known: Mapping[str, Known], terms: Terms = EVERYTHING) -> None:
        self._world = world
        self._values = self._as_captured(book.present() if book else {})
        self._known = known
        self._terms = terms
        self.sparing, self.kept, self.settled = terms.sparing, terms.kept, terms.settled
        self.gate = Gate(terms)
        self._digests = BufferDigests(self.gate)
        main = world.seeds.main_name
        self._linkable = Linkable(lambda function: is_library_function(function, main))
        self._first: CapturePickler | None = None
        self._large: list[CapturePickler] = []
        self._holders: list[Dump] = []
        """The large units of this survey."""
        self._wholes: dict[frozenset[str], Dump] = {}
        self._plain: bundles.PlainPickler | None = None
        self.units: list[Dump] = []
        self.bundles: list[bundles.Seen] = []
        self.untouched: list[str] = []
        self.unseen: set[str] = set()
        self.unfinished: set[str] = set()
        """New names whose dump had to give way."""
        self.gave_way = False
        self._order: list[str] = []
        self._shuffled = False
        """Whether units were not dumped in the order of the namespace."""
        self.changed = False
        """Whether a unit, or a bundle, is not as it was."""
        self._loosened = False
        """Whether a bundle is not as it was: its members may be, and have something new in common."""

    def _as_captured(self, patches: Mapping[str, Any]) -> dict[str, Any]:
        """Return the variables and the changed places in libraries, with stand-ins for what is transient."""
        values = self._world.namespace
        if hints.transient:
            values = hints.spared(self._world, values)
        return book.over(values, patches) if patches else values

    def release(self) -> None:
        """Let go of all user objects."""
        self.units = []
        self.bundles = []
        self._wholes = {}
        self._holders = []
        if self._plain is not None:
            self._plain.release()
            self._plain = None
        for pickler in (self._first, *self._large):
            if pickler is not None:
                pickler.release()
        self._first = None
        self._large = []

    @property
    def _pickler(self) -> CapturePickler:
        """The pickler of all units but large ones, made when there is something to dump."""
        if self._first is None:
            self._first = CapturePickler(self._world, gate=self.gate, digests=self._digests)
        return self._first

    @property
    def plain(self) -> bundles.PlainPickler:
        """The pickler of bundles, made when there are any."""
        if self._plain is None:
            self._plain = bundles.PlainPickler(self._world.seeds)
        return self._plain

    def _dump(
        self,
        values: dict[str, Any],
        before: Known | None,
        classes: dict[str, type] | None = None,
        mode: Mode = FAST,
        losses: tuple[Loss, ...] = (),
        *,
        as_came: bool = False,
    ) -> Dump:
        """Dump one unit, by what is known of it; a pickler whose memo is large dumps nothing else.

        One that is not as it was is asked anew which values it holds together with others; with `as_came`
        it holds what it was said to hold.
        """

        roots = (*values, *[ROOT_PREFIX + class_id for class_id in classes]) if classes else (*values,)
        held = self._held_by(roots)
        dump = self._dump_holding(held, values, before, classes, mode, losses)
        if as_came or (before is not None and before.fingerprint == dump.fingerprint):
            return dump

        def holding(held: tuple[Value, ...]) -> Dump:
            return self._dump_holding(held, values, before, classes, mode, losses)

        return self._asked_anew(dump, held, roots, holding)

    def _held_by(self, roots: tuple[str, ...]) -> tuple[Value, ...]:
        """Return the values that a unit is known to hold together with others."""
        shared = self._world.shared
        return shared.held_by(roots) if shared.names else ()

    def _asked_anew(
        self,
        dump: Dump,
        held: tuple[Value, ...],
        roots: tuple[str, ...],
        holding: Callable[[tuple[Value, ...]], Dump],
    ) -> Dump:
        """Return the dump of a unit that is not as it was with the values that it now holds with others.

        `dump` was made `holding` those of `held`.
        """
        self.changed = True
        shared = self._world.shared
        if not shared.names:
            return dump
        if held:
            dump = holding(())
        held = shared.among(dump.memo)
        shared.hold(roots, held)
        return holding(held) if held else dump

    def _dump_holding(
        self,
        held: tuple[Value, ...],
        values: dict[str, Any],
        before: Known | None,
        classes: dict[str, type] | None = None,
        mode: Mode = FAST,
        losses: tuple[Loss, ...] = (),
        *,
        hashed: bool = True,
    ) -> Dump:
        pickler = self._pickler
        if before is not None:
            mode, losses = before.mode, before.losses
        began = time.perf_counter()
        dump = pickler.dump_unit(values, mode, classes, losses, held, hashed=hashed)
        dump.seconds = measured(time.perf_counter() - began, dump, before)
        if dump.table is not None and pickler is self._first:
            self._large.append(pickler)
            self._first = None
        return dump

    def look(
        self,
        names: Iterable[str],
        unfinished: Collection[str] = (),
        patches: Mapping[str, Any] | None = None,
        kept_back: Collection[str] = (),
    ) -> None:
        """Dump what `names` reach, as far as the terms allow, and join what belongs together.

        `patches` are the values at changed places in libraries: they are surveyed like variables. At those of
        `kept_back` that the terms keep nobody looks: they have changed.
        """
        self._order = names = [*names, *(patches or ())]
        if patches:
            self._values = self._as_captured(patches)
        try:
            passed = self.kept.intersection(kept_back, names) if kept_back else frozenset()
            self.unseen.update(passed)
            looked = [name for name in names if name not in passed] if passed else names
            self._look_at_names(looked, unfinished)
            if registered:
                self._look_at_values({HOOKS_ROOT: registered})
        except GiveWay:
            self._give_way()
        if self._shuffled:
            self._put_in_order()
        dumped = self.units.copy()
        try:
            self._look_at_classes()
            self._join()
        except GiveWay:
            self._give_way()
            self.units = [unit for unit in dumped if not _is_heavy(unit)]
            self._look_at_classes()
            self._join()
        if self.gave_way or self.unseen:
            self._leave_out(names)

    def _put_in_order(self) -> None:
        """Sort the units by their variables' places in the namespace, classes last."""
        first = {unit.roots[0] for unit in self.units if unit.roots}
        place = {name: index for index, name in enumerate(self._order) if name in first}
        last = len(self._order)
        self.units.sort(key=lambda unit: place.get(unit.roots[0], -1) if unit.roots else last)

    def _give_way(self) -> None:
        """Go on with what is light and at hand only: it must hang together before it may be told."""
        self.gave_way = True
        self.gate.open()

    def again(self, roots: Iterable[str]) -> Dump | None:
        """Dump one component by its roots, as it is now; None when nothing of it is here."""
        values, classes = self._of_roots(roots)
        return self._dump(values, None, classes, as_came=True) if values or classes else None

    def _of_roots(self, roots: Iterable[str]) -> tuple[dict[str, Any], dict[str, type]]:
        """Return the variables and classes of roots that are here."""
        values: dict[str, Any] = {}
        classes: dict[str, type] = {}
        for root in roots:
            if root.startswith(ROOT_PREFIX):
                cls = self._world.classes.find(root.removeprefix(ROOT_PREFIX))
                if cls is not None:
                    classes[root.removeprefix(ROOT_PREFIX)] = cls
            elif root == HOOKS_ROOT:
                values[root] = registered
            elif root in self._values:
                values[root] = self._values[root]
        return values, classes

    # -- units ---------------------------------------------------------------------------------------

    def _look_at_names(self, names: list[str], unfinished: Collection[str]) -> None:
        namespace, gate = self._values, self.gate
        plan = survey_order(names, namespace, self._known, self._terms, unfinished)
        self.untouched = plan.untouched
        self.unseen.update(plan.left)
        self._shuffled = bool(
            plan.jobs
            or plan.heavy
            or plan.bulky
            or self._terms.first
            or (plan.light and plan.light[0][1] is None)
        )
        units, dump = self.units, self._dump
        groups = grouped(plan.bulky)
        try:
            begun = self._begin(next(groups, []))
            done = self._look_at_bundles(plan.light)
            for index, (name, before) in enumerate(plan.light):
                if not index % CHECKED_UNITS:
                    gate.check()
                if name in done:
                    continue
                units.append(dump({name: namespace[name]}, before))
            self._do(plan.jobs)
            self._end(begun)
            for group in groups:
                self._end(self._begin(group))
        finally:
            self._digests.end()
        self._do(plan.heavy)

    def _do(self, jobs: list[Job]) -> None:
        """Dump what is no variable of its own that is known and light."""
        for job in jobs:
            self.gate.check()
            if job.before is None or len(job.before.roots) == 1:
                (name,) = job.names
                self._look_at(name, self._values[name], job.before)
            else:
                self._look_at_whole(job.before, {name: self._values[name] for name in job.names})

    def _begin(self, group: list[tuple[str, Known]]) -> list[Begun]:
        """Dump variables with large buffers, and have these hashed while others are looked at."""
        begun = []
        for name, before in group:
            self.gate.check()
            values = {name: self._values[name]}
            held = self._held_by((name,))
            begun.append(Begun(self._dump_holding(held, values, before, hashed=False), held, values, before))
        if begun:
            self._digests.begin([view for one in begun for view in one.dump.buffers])
        return begun

    def _end(self, begun: list[Begun]) -> None:
        """Add what was hashed."""
        self._digests.finish()
        for dump, held, values, before in begun:
            began = time.perf_counter()
            try:
                hash_buffers(dump, self._digests)
            except Exception:  # of a device, for one: what comes of it is the affair of whole dumps
                self.units.append(self._dump(values, before))
                continue
            took = time.perf_counter() - began + sum(map(self._digests.seconds, dump.buffers))
            dump.seconds = measured(dump.seconds + took, dump, before)
            same = dump.fingerprint == before.fingerprint
            if not same:
                holding = partial(self._dump_holding, values=values, before=before)
                dump = self._asked_anew(dump, held, (*values,), holding)
            self.units.append(dump)

    def _look_at_bundles(self, light: list[tuple[str, Known | None]]) -> set[str]:
        """Look at what does not change as a rule; return the names that are as they were."""
        done: set[str] = set()
        for bundle in bundles.complete(light):
            self.gate.check()
            seen = bundles.look(bundle, self._values, self.plain)
            if seen is None:
                self.changed = self._loosened = True
            else:
                self.bundles.append(seen)
                done.update(bundle.names)
        return done

    def _look_at(self, name: str, value: object, before: Known | None) -> None:
        """Dump one variable; a new one that has to give way is remembered as heavy."""
        try:
            self._add(name, value, before)
        except GiveWay:
            if before is None:
                self.unfinished.add(name)
            raise

    def _look_at_values(self, values: dict[str, Any]) -> None:
        """Dump each value as a unit of its own."""
        for name, value in values.items():
            self._add(name, value, self._known.get(name))

    def _add(self, name: str, value: object, before: Known | None) -> None:
        """Dump one variable, unless a large unit holds it, which would be dumped once more for each name."""
        unit = self._part_of_large(name, value)
        if unit is None:
            unit = self._dump({name: value}, before)
            if unit.table is not None and not unit.mode.careful and not unit.losses:
                self._holders.append(unit)
        self.units.append(unit)

    def _part_of_large(self, name: str, value: object) -> Dump | None:
        """Return a part of the large unit that holds a variable's object: their common table joins them."""
        if not self._holders or not self._linkable(value) or (type(value) is dict and "__spec__" in value):
            return None
        key = id(value)
        if key in self._world.seeds.memo():  # Every table has those: they join nobody.
            return None
        for one in self._holders:
            if one.table is not None and key in one.table and key not in one.unlinked:
                return Dump((name,), True, one.mode, [], b"", {}, one.table, unlinked=one.unlinked)
        return None

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
            self.gate.check()
            class_id = queue.pop(0)
            cls = self._world.classes.find(class_id)
            if class_id in seen or cls is None:
                continue
            seen.add(class_id)
            before = self._known.get(ROOT_PREFIX + class_id)
            if self.gave_way and before is not None and is_heavy(before.seconds):
                continue
            unit = self._dump({}, before, {class_id: cls})
            self.units.append(unit)
            queue.extend(sorted(unit.classes))

    # -- components -----------------------------------------------------------------------------------

    def _join(self) -> None:
        if len(self.units) + len(self.bundles) <= 1:
            # It may still hold what a variable that nobody had to look at is bound to.
            if self.changed and self.untouched and self._name_shared({}):
                self._tell_shared()
            return
        seeds = frozenset(self._world.seeds.memo())
        while len(self.units) + len(self.bundles) > 1:
            units = [*self.units, *(seen.as_unit() for seen in self.bundles)]
            groups, met = joined(units, seeds, self._linkable, self.gate, self._values)
            torn = self._torn_bundles(groups, met)
            if torn:
                self._take_apart(torn)
                self._put_in_order()
                continue
            if groups:
                self._merge_all(groups)
            if self.changed and self._name_shared(met):
                self._tell_shared()
            return

    def _torn_bundles(self, groups: list[list[int]], met: Mapping[int, Any]) -> list[bundles.Seen]:
        """Return the bundles that share with other units what joins them, or what has to be told."""
        if not self.bundles:
            return []
        first = len(self.units)
        torn = {index - first for group in groups for index in group if index >= first}
        if self.changed and met:
            fresh = sharing.fresh(self._world, self._values, self.units, self.untouched, met)
            torn.update(
                index for index, seen in enumerate(self.bundles) if not fresh.keys().isdisjoint(seen.memo)
            )
        return [self.bundles[index] for index in sorted(torn)]

    def _take_apart(self, torn: list[bundles.Seen]) -> None:
        """Dump the members of bundles one by one."""
        for seen in torn:
            self.bundles.remove(seen)
            for name in seen.bundle.names:
                self.units.append(self._dump({name: self._values[name]}, self._known.get(name)))

    def _merge_all(self, groups: list[list[int]]) -> None:
        gone = {index for group in groups for index in group}
        alone = [unit for index, unit in enumerate(self.units) if index not in gone]
        units, self.units = self.units, alone
        for group in groups:
            alone.append(self._merge([units[index] for index in group]))

    def _merge(self, parts: list[Dump]) -> Dump:
        roots = [root for part in parts for root in part.roots]
        class_ids = [class_id for part in parts for class_id in part.own_classes]
        whole = self._wholes.get(frozenset([*roots, *(ROOT_PREFIX + class_id for class_id in class_ids)]))
        if whole is not None:
            return whole
        before = self._known.get(next(iter([*roots, *(ROOT_PREFIX + class_id for class_id in class_ids)])))
        if before is not None and len(before.roots) == len(roots) + len(class_ids):
            place = {root: index for index, root in enumerate(before.roots)}
            roots.sort(key=lambda root: place.get(root, -1))
            class_ids.sort(key=lambda class_id: place.get(ROOT_PREFIX + class_id, -1))
        values = {root: registered if root == HOOKS_ROOT else self._values[root] for root in roots}
        find = self._world.classes.find
        classes = {class_id: cls for class_id in class_ids if (cls := find(class_id)) is not None}
        mode = Mode(any(part.mode.careful for part in parts), any(part.mode.deep for part in parts))
        losses = tuple(loss for part in parts for loss in part.losses)
        return self._dump(values, None, classes, mode, losses)

    # -- values that several units hold ---------------------------------------------------------------

    def _name_shared(self, met: Mapping[int, Any]) -> bool:
        """Give the values that several units hold a name; tell whether there are new ones."""
        changed = [unit for unit in self.units if not self._is_as_it_was(unit)]
        if not changed and not self._loosened:
            return False
        if self._first is not None:
            self._first.forget_last()
        found = sharing.find(self._world, self._values, self.units, changed, self.untouched, met)
        for name in found.untold:
            self.units.append(self._dump({name: self._values[name]}, None))
        if found.untold:
            told = set(found.untold)
            self.untouched = [name for name in self.untouched if name not in told]
        return found.new

    def _is_as_it_was(self, unit: Dump) -> bool:
        before = self._known.get(next(iter(roots_of(unit)), ""))
        return before is not None and before.fingerprint == unit.fingerprint

    def _tell_shared(self) -> None:
        """Dump the units again that hold values with a new name."""
        shared = self._world.shared
        self._take_apart([seen for seen in self.bundles if shared.among(seen.memo)])
        for index, unit in enumerate(self.units):
            if unit.table is None and shared.among(unit.memo) != shared.held_by(roots_of(unit)):
                values, classes = self._of_roots(roots_of(unit))
                self.units[index] = self._dump(values, None, classes, unit.mode, tuple(unit.losses))

    def bind(self) -> None:
        """Take what has been as it was for a while together, for the captures to come."""
        bundles.bind(self.units, self._known, self._values, lambda: self.plain)

    # -- what is left out ------------------------------------------------------------------------------

    def _leave_out(self, names: Iterable[str]) -> None:
        """Say which roots were not seen, and take out what hangs together with them."""
        roots = {*names, *(root for root in self._known if root.startswith(ROOT_PREFIX))}
        if registered:
            roots.add(HOOKS_ROOT)
        seen = {root for unit in self.units for root in roots_of(unit)}
        seen.update(name for one in self.bundles for name in one.bundle.names)
        self.unseen = roots - seen - set(self.untouched)
        self.take_back(())

    def take_back(self, units: Collection[Dump]) -> None:
        """Take `units` out, and whatever could not be told truly without them."""
        self.units = rest_without(units, self.units, self.unseen, self._known, self._world.classes)
