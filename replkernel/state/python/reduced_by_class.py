"""Instances that their class's own way of copying has rebuilt here, and what they held then.

A class has its way again for such an instance only as long as that holds the same: what it has been given
since would be left out. Law: nothing is kept alive; what cannot be referred to weakly is not remembered.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_WEAKREFS = type.__dict__["__weakrefoffset__"]


class Rebuilt:
    """What was rebuilt, by id."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def note(self, instance: object, held: Callable[[], Any]) -> None:
        """Remember an instance with what `held` says that it holds."""
        if not _WEAKREFS.__get__(type(instance)):
            return
        key = id(instance)
        self._held[key] = weakref.ref(instance, lambda _: self._held.pop(key, None)), held()

    def is_as_noted(self, instance: object, held: Callable[[], Any]) -> bool:
        """Tell whether an instance was noted, and holds the same still."""
        ref, before = self._held.get(id(instance), (None, None))
        return ref is not None and ref() is instance and held() == before


def can_be_copied(context: ReducerContext, held: object) -> bool:
    """Tell whether what an instance holds travels past its class's way; only careful dumps look into it."""
    if context.careful:
        try:
            context.probe(held)
        except CannotTravel:
            return False
    return True
