"""What a reducer may raise, and the shape of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

Reducer: TypeAlias = "Callable[[UnitContext, Any], Any]"


class CannotTravel(Exception):
    """An object cannot be copied to another process; the text is one sentence for the user."""


class Again(Exception):
    """The unit is to be dumped again, with what was found in mind."""


class Endless(Again):
    """What a dump of a user's returned for `value` holds `value`; `whose` says whose dump it is."""

    def __init__(self, value: object, whose: str) -> None:
        super().__init__()
        self.value = value
        self.whose = whose


class Overlap(Again):
    """Two buffers of one unit overlap, and the smaller one was met first: dump again, `cover` in mind.

    `cover` is (start address, end address, owner of the larger buffer).
    """

    def __init__(self, cover: tuple[int, int, Any]) -> None:
        super().__init__()
        self.cover = cover
