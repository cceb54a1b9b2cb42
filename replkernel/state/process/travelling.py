"""The process parts of one capture: which of them changed, and how those of other replicas are loaded.

Law: a part is shipped when its bytes differ from those last told; parts are loaded in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from replkernel.records import ComponentId, ComponentRecord, Delta, Seq
from replkernel.state.capture.shipping import Shipper
from replkernel.state.process.part import OptionsPart, Part
from replkernel.state.process.parts import ProcessPart
from replkernel.state.restore.rebuild import Failure, in_hand
from replkernel.state.tombstone import shorten


class PartFamily(Protocol):
    """Process parts whose number grows; all their ids begin with `prefix`."""

    prefix: str

    @property
    def blocks(self) -> Sequence[ProcessPart]:
        """Return the parts there are."""
        ...

    def block(self, cid: str) -> ProcessPart:
        """Return the part of that id, made when there is none yet."""
        ...


def _is_family(part: ProcessPart | PartFamily) -> TypeGuard[PartFamily]:
    """Tell by what only a family has: to ask the protocol takes a fiftieth of a kernel process's start."""
    return hasattr(part, "block")


class ProcessState:
    """The parts of one process, and the bytes of each that other replicas have."""

    def __init__(self, parts: Sequence[ProcessPart | PartFamily]) -> None:
        self._families = tuple(part for part in parts if _is_family(part))
        self._parts = tuple(part for part in parts if not hasattr(part, "block"))
        self._told: dict[ComponentId, bytes] = {}

    def changed(self) -> dict[ComponentId, bytes]:
        """Return the parts that differ from what was told, with their bytes."""
        found: dict[ComponentId, bytes] = {}
        for part in self._all():
            data = part.dump()
            told = self._told.get(part.cid)
            if data is not None and data is not told and data != told:
                found[part.cid] = data
        return found

    def gone(self) -> list[ComponentId]:
        """Return the parts that were told and have become one with others since."""
        there = {block.cid for family in self._families for block in family.blocks}
        prefixes = tuple(family.prefix for family in self._families)
        return [cid for cid in self._told if cid not in there and cid.startswith(prefixes)]

    def ship(self, changed: Mapping[ComponentId, bytes], shipper: Shipper, seq: Seq) -> list[ComponentRecord]:
        """Return the records of changed parts."""
        return [shipper.ship_part(cid, data, seq) for cid, data in changed.items()]

    def told(self, changed: Mapping[ComponentId, bytes], gone: Iterable[ComponentId] = ()) -> None:
        """Note that others have these bytes, and that parts are gone."""
        self._told.update(changed)
        for cid in gone:
            self._told.pop(cid, None)

    def load(
        self,
        records: Sequence[ComponentRecord],
        read: Callable[[ComponentRecord], bytes],
        *,
        everything: bool,
    ) -> tuple[list[ComponentRecord], list[Failure]]:
        """Load parts in their order; return those that are done with, and those that failed."""
        rank = {part.cid: index for index, part in enumerate(self._all())}
        done: list[ComponentRecord] = []
        failed: list[Failure] = []
        for record in sorted(records, key=lambda record: rank.get(record.cid, len(rank))):
            part = self._find(record.cid)
            if part is None:
                done.append(record)
            elif everything or in_hand(record):
                try:
                    part.load(read(record))
                except Exception as error:
                    failed.append(Failure(record.cid, (), shorten(f"{type(error).__name__}: {error}")))
                    continue
                self._told[record.cid] = part.dump() or b""
                done.append(record)
        return done, failed

    def revert(self, way: Delta) -> None:
        """Take back what parts have from after a point, before what they had there is loaded."""
        loaded = {record.cid for record in way.components}
        for part in self._reverting(way):
            if part.cid not in loaded or isinstance(part, OptionsPart):
                part.revert()

    def reverted(self, way: Delta) -> None:
        """Have parts tell what they are now to replicas that only ever go forward."""
        for part in self._reverting(way):
            part.look_anew()

    def _reverting(self, way: Delta) -> list[Part[Any]]:
        cids = {*way.dropped, *(record.cid for record in way.components)}
        return [part for part in self._parts if isinstance(part, Part) and part.cid in cids]

    def _all(self) -> Iterator[ProcessPart]:
        yield from self._parts
        for family in self._families:
            yield from family.blocks

    def _find(self, cid: ComponentId) -> ProcessPart | None:
        for family in self._families:
            if cid.startswith(family.prefix):
                return family.block(cid)
        return next((part for part in self._parts if part.cid == cid), None)
