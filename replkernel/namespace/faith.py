"""What of the state this process rebuilt otherwise than it was captured, and what it could not prove.

Law: an unfaithful component is a pin of the replica that made it; it stays in the book until it is gone,
comes anew, or is made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from replkernel.namespace import paths
from replkernel.namespace.class_registry import ROOT_PREFIX, ClassRegistry, qualname_of
from replkernel.namespace.hooks import HOOKS_ROOT, REGISTRATIONS
from replkernel.namespace.proof import Proof, Verdict
from replkernel.namespace.tombstone import Loss, is_tombstone, loss_of, lost, shorten
from replkernel.records import ComponentId, ComponentRecord, Pin

PINS_MAX = 100
"""No more pins of one component are told; the tombstones are all there."""


class Unfaithful(msgspec.Struct, frozen=True):
    """A component that was rebuilt otherwise than captured: one pin for each of its variables."""

    cid: ComponentId
    pins: tuple[Pin, ...]


class FaithBook:
    """The components of this process that are not as they were captured, or not known to be."""

    def __init__(self) -> None:
        self._wrong: dict[ComponentId, Unfaithful] = {}
        self._open: set[ComponentId] = set()

    @property
    def unfaithful(self) -> tuple[Unfaithful, ...]:
        """Return what is wrong here."""
        return tuple(self._wrong.values())

    @property
    def unproven(self) -> int:
        """Return how many components could not be proven."""
        return len(self._open)

    def note(self, cid: ComponentId, verdict: Verdict) -> None:
        """Enter a component that is bound."""
        self.forget([cid])
        if verdict.proof is Proof.OPEN:
            self._open.add(cid)

    def condemn(self, cid: ComponentId, losses: Iterable[Loss]) -> Unfaithful:
        """Enter an unfaithful component by the losses that stand for it."""
        self.forget([cid])
        self._wrong[cid] = Unfaithful(cid, tuple(loss.pin() for loss in losses)[:PINS_MAX])
        return self._wrong[cid]

    def forget(self, cids: Iterable[ComponentId]) -> None:
        """Take out components that are gone, or come anew."""
        for cid in cids:
            self._wrong.pop(cid, None)
            self._open.discard(cid)


def losses_for(
    record: ComponentRecord,
    namespace: Mapping[str, Any],
    classes: ClassRegistry,
    names: Iterable[str],
    origin: str,
    verdict: Verdict,
) -> dict[str, Loss]:
    """Return what is to be said of each variable of an unfaithful component.

    A class has no variable of its own: those that hold it, or an instance, are lost with it. Registrations,
    and a class that no variable holds, are named by what they are: what has no name is no pin.
    """
    wanted = [name for name in names if not name.startswith(ROOT_PREFIX) and name != HOOKS_ROOT]
    own = [name.removeprefix(ROOT_PREFIX) for name in names if name.startswith(ROOT_PREFIX)]
    found = [cls for class_id in own if (cls := classes.find(class_id)) is not None]
    if found:
        wanted += [name for name in _held_by(namespace, found) if name not in wanted]
    if not wanted:
        wanted = [f"class {qualname_of(cls)}" for cls in found]
    if HOOKS_ROOT in names and not wanted:
        wanted = [REGISTRATIONS]
    reason, cell = shorten(verdict.sentence()), record.cell or record.seq
    return {
        name: Loss(name, _type_name(namespace, name), origin, record.seq, cell, "", reason) for name in wanted
    }


def _type_name(namespace: Mapping[str, Any], name: str) -> str:
    if name not in namespace:
        return "object"
    value = namespace[name]
    return loss_of(value).type_name if is_tombstone(value) else paths.type_name(value)


def _held_by(namespace: Mapping[str, Any], classes: list[type]) -> list[str]:
    mro = type.__dict__["__mro__"].__get__
    return [
        name
        for name, value in namespace.items()
        if any(value is cls or cls in mro(type(value)) or _is_child(value, cls) for cls in classes)
    ]


def _is_child(value: Any, cls: type) -> bool:
    return type in type.__dict__["__mro__"].__get__(type(value)) and (
        cls in type.__dict__["__mro__"].__get__(value)
    )


def graves_of(losses: Mapping[str, Loss]) -> dict[str, Any]:
    """Return the tombstones that take the place of unfaithful variables."""
    return {name: lost(*msgspec.structs.astuple(loss)) for name, loss in losses.items()}
