"""What a reducer may raise, and the shape of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from replkernel.state.capture.budget import GiveWay

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

Reducer: TypeAlias = "Callable[[UnitContext, Any], Any]"


class CannotTravel(Exception):
    """An object cannot be copied to another process; the text is one sentence for the user.

    One that stays `alone` leaves what it holds to other variables: they are no component with it.
    """

    def __init__(self, text: str, *, alone: bool = False) -> None:
        super().__init__(text)
        self.alone = alone


OURS = (GiveWay, KeyboardInterrupt)
"""What is no Exception, and no fault of an object's either: the capture ends, or was interrupted."""


def no_end(error: BaseException) -> CannotTravel:
    """Return what an object's way to copy raised as its own failure, where that would end a whole capture."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return CannotTravel(f"Copying it failed ({text}).")


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
