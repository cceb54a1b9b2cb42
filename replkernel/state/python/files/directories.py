"""Entries of directories (`os.scandir`): found again by name, where the directory is.

A reading of a directory that has come to its end, or was closed, travels; one that goes on stays.
Law: a reading is never advanced. Whether it is over stands in its memory, where a sample shows it.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.memory_words import words_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_entry(pickler: UnitContext, entry: os.DirEntry[Any]) -> object:
    """Reduce an entry to its directory and its name."""
    place = entry.path[: -len(entry.name)]
    if not place:
        raise CannotTravel("The directory was read by a descriptor of this process.")
    if not os.path.lexists(entry.path):
        raise CannotTravel("The file is gone, so that the entry cannot be read again elsewhere.")
    return found_again, (place, entry.name, pickler.world.replica)


@loader("files:entry")
def found_again(place: Any, name: Any, replica: str) -> object:
    """Return the entry of a directory; a tombstone when it is not here (called by payloads)."""
    read = loading.current().directories
    try:
        if name not in read.get(place, ()):
            with os.scandir(place) as entries:
                read[place] = {entry.name: entry for entry in entries}
        return read[place].pop(name)
    except (OSError, KeyError) as error:
        path = os.fsdecode(place + name)
        what = "it is not there" if isinstance(error, KeyError) else error
        return loading.absent(path, "entry of a directory", replica, f"{path} was not found here ({what}).")


def _sample() -> Any:
    return os.scandir(os.sep)


with _sample() as _open:
    KIND: type = type(_open)


def reduce_reading(pickler: UnitContext, reading: object) -> object:
    """Reduce a reading of a directory that is over."""
    at = _at()
    if at is None or words_of(reading, KIND)[at]:
        raise CannotTravel("A directory that is being read is open in this process only.")
    return read_to_its_end, ()


@loader("files:read_directory")
def read_to_its_end() -> object:
    """Return a reading of a directory that is over (called by payloads)."""
    with _sample() as over:
        return over


@functools.cache
def _at() -> int | None:
    """Return which word of a reading is zero once it is over; None where that does not show."""
    with _sample() as reading:
        before = tuple(words_of(reading, KIND))
    after = tuple(words_of(reading, KIND))
    found = [at for at in range(2, len(before)) if before[at] != after[at]]
    return found[0] if len(found) == 1 and not after[found[0]] else None


EXACT: dict[type, Any] = {os.DirEntry: reduce_entry, KIND: reduce_reading}
