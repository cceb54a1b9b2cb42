"""Files that are unpacked while they are read (gzip, bz2, lzma): opened again, and read on from there.

Law: only a file that unpacks one on disk which it has opened itself; one that is written to stays.
"""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.files.closed import PACKED, is_packed, packed_kind, reduce_closed, told_of
from replkernel.state.python.files.file_paths import path_of
from replkernel.state.python.files.text import newline_of, newlines_seen, place_of, remember_newlines
from replkernel.state.restore.loading import absent

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

UNPACKED_BYTES_MAX = 1 << 28
"""A file that has been read further than this is not unpacked again up to there."""

_READING = 1
"""What gzip, bz2 and lzma note of a file that they read."""


def reduce_packed(pickler: UnitContext, file: Any) -> object:
    """Reduce a file that packs: a closed one, or one that is read."""
    if file.closed:
        return reduce_closed(pickler, file)
    return reopen_packed, (*_source(file), _within(file.tell()), (), told_of(file), pickler.world.replica)


def reduce_text(pickler: UnitContext, file: io.TextIOWrapper) -> object:
    """Reduce a text file over one that unpacks."""
    source = _source(file.buffer)
    try:
        place = int(file.tell())
    except OSError:
        place = _place_between_lines(file)
    text = (file.encoding, file.errors, newline_of(file), newlines_seen(file))
    return reopen_packed, (*source, _within(place), text, told_of(file.buffer), pickler.world.replica)


def _source(packed: Any) -> tuple[str, str]:
    """Return the kind of a file that unpacks, and the path of what it reads."""
    held = vars(packed)
    raw = held.get("fileobj", held.get("_fp"))
    own = held.get("myfileobj") is raw if "fileobj" in held else held.get("_closefp")
    if not own or held.get("mode", held.get("_mode")) != _READING or not isinstance(raw, io.BufferedReader):
        raise CannotTravel("Only a packed file on disk that is read can be opened again elsewhere.")
    return packed_kind(packed), path_of(raw)


def _within(place: int) -> int:
    if place > UNPACKED_BYTES_MAX:
        raise CannotTravel(f"More than {UNPACKED_BYTES_MAX >> 20} MiB have been read of the packed file.")
    return place


def _place_between_lines(file: io.TextIOWrapper) -> int:
    """Return the place of a text file that is gone through line by line."""
    place = place_of(file, checked=False) if file.errors == "strict" else None
    if place is None:
        raise CannotTravel("The position of a packed text file cannot be told while it is read line by line.")
    return place


@loader("files:reopen_packed")
def reopen_packed(
    kind: str, path: str, place: int, text: tuple[Any, ...], told: dict[str, Any], replica: str
) -> object:
    """Open a packed file again, and unpack it up to its place (called by payloads)."""
    try:
        packed = getattr(importlib.import_module(kind), PACKED[kind])(path, "rb")
        vars(packed).update({name: value for name, value in told.items() if name == "name"})
        if not text:
            packed.seek(place)
            return packed
        encoding, errors, newline, seen = text
        file = io.TextIOWrapper(packed, encoding, errors, newline)
        file.seek(place)
        remember_newlines(file, seen)
        return file
    except (OSError, EOFError) as error:
        reason = f"The file {path} could not be opened here ({error})."
        return absent(path, f"file open with {kind}", replica, reason)


TESTED_MODULES = (*PACKED,)
TESTS = [(is_packed, reduce_packed)]
