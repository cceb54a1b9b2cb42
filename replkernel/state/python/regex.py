"""re: matches are found again by the call that finds the same one, and searches part-way by searching again.

All matches of a text are found by one search: one for each would take the square of their number.

Python has one object for equal patterns, as long as it remembers it by text and flags. So has each replica: a
match is by the pattern that a variable of another component holds, and so is what compiles it once more.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import itertools
import re
import struct
import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import kind_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.library import ReducerContext


MATCHES_MAX = 100_000

_known: weakref.WeakValueDictionary[tuple[int, str | bytes, int], re.Pattern[Any]] = (
    weakref.WeakValueDictionary()
)


def reduce_pattern(context: ReducerContext, pattern: re.Pattern[Any]) -> object:
    """Reduce a pattern to its text and flags; it is this process's one for them from now on."""
    _known.setdefault((id(type(pattern.pattern)), pattern.pattern, pattern.flags), pattern)
    return pattern_of, (pattern.pattern, pattern.flags)


@loader("regex:pattern_of")
def pattern_of(text: str | bytes, flags: int) -> Any:
    """Return this process's pattern of a text with such flags (called by payloads)."""
    key = (id(type(text)), text, flags)
    pattern = _known.get(key)
    if pattern is None:
        pattern = _known[key] = _compiled(text, flags)
    return pattern


def _compiled(text: str | bytes, flags: int) -> Any:
    """Compile a text as the notebook has: with flags in the call, or in the text itself."""
    if text[:2] in ("(?", b"(?"):
        pattern = re.compile(text)
        if pattern.flags == flags:
            return pattern
    if isinstance(text, str):
        flags &= ~re.UNICODE.value
    with contextlib.redirect_stdout(io.StringIO()) if flags & re.DEBUG else contextlib.nullcontext():
        return re.compile(text, flags)


def reduce_match(context: UnitContext, match: re.Match[Any]) -> object:
    """Reduce a match to its pattern, its string and the call that found it.

    A call is tried only where it would have found a match at this place, and goes no further than the
    notebook's own: any other could try all ways of splitting a text, without end.
    """
    call = match.re, match.string, match.pos, match.endpos
    start, end = match.regs[0]
    if start == match.pos:
        for how in ("match", "fullmatch") if end == match.endpos else ("match",):
            again = getattr(match.re, how)(*call[1:])
            if again is not None and again.regs == match.regs:
                return find, (*call, how, 0)
    index = _walk(context.notes.searches, *call).index_of(match.regs)
    if index is None:
        raise CannotTravel("The call that found this match is not known.")
    return find, (*call, "finditer" if index else "search", index)


class _Walk:
    """A search for all matches in a text, as far as it was asked for them."""

    def __init__(self, pattern: re.Pattern[Any], string: Any, pos: int, endpos: int) -> None:
        self._held = pattern, string
        self._rows = pattern.finditer(string, pos, endpos)
        self._last = pos
        self._at: dict[tuple[tuple[int, int], ...], int] = {}
        self._untaken: list[re.Match[Any] | None] = []

    def index_of(self, regs: tuple[tuple[int, int], ...]) -> int | None:
        """Return which of the matches has such places; None where that is none of the first."""
        while regs not in self._at and self._last <= regs[0][0] and len(self._at) < MATCHES_MAX:
            again = next(self._rows, None)
            if again is None:
                break
            self._last = again.regs[0][0]
            self._at[again.regs] = len(self._at)
        return self._at.get(regs)

    def take(self, index: int) -> re.Match[Any] | None:
        """Return the match of a number; None where it was taken before."""
        self._untaken += itertools.islice(self._rows, max(index + 1 - len(self._untaken), 0))
        found, self._untaken[index] = self._untaken[index], None
        return found


def _walk(known: dict[Any, _Walk], pattern: re.Pattern[Any], string: Any, pos: int, endpos: int) -> _Walk:
    key = id(pattern), id(string), pos, endpos
    if key not in known:
        known[key] = _Walk(pattern, string, pos, endpos)
    return known[key]


@loader("regex:find")
def find(pattern: re.Pattern[Any], string: Any, pos: int, endpos: int, how: str, index: int) -> object:
    """Find a match again (called by payloads)."""
    if how != "finditer":
        return getattr(pattern, how)(string, pos, endpos)
    found = _walk(loading.current().searches, pattern, string, pos, endpos).take(index)
    return found or next(itertools.islice(pattern.finditer(string, pos, endpos), index, None))


def reduce_lexicon(context: ReducerContext, scanner: object) -> object:
    """Reduce an `re.Scanner` to its lexicon: the pattern that it compiled of it has no text."""
    return re.Scanner, (scanner.lexicon, scanner.scanner.flags)  # type: ignore[attr-defined]


# Searches of regular expressions part-way (`re.finditer`): brought to the same place by searching again.
#
# Python tells no one where a search stands; it is read from the scanner itself, as far as a search whose
# places are known shows where they are in this Python.
# Law: a scanner is read and never advanced; where it cannot be read it is refused.

KIND: type = type(re.compile("").scanner(""))  # type: ignore[attr-defined]

_SAMPLE, _FROM, _TO = "xxbaacxxx", 2, 7
_PLACES = (2, 2, 5, 5, 6, 7, None)
_ADVANCES = (0, 1, 0, 1, 1, 1, 0)
"""Where a search for ``a*`` in the sample stands, before its first match and after each call; whether the
next match must not be empty there."""

_WORD, _HALF = struct.calcsize("P"), struct.calcsize("i")


class _Layout(NamedTuple):
    """Where a scanner keeps things: words (the last one of halves of words), counted from its begin."""

    pattern: int
    begin: int
    string: int
    pos: int
    must_advance: int


class Place(NamedTuple):
    """Where a search stands, in characters, None at its end; whether its last match was empty."""

    at: int | None
    must_advance: int


def reduce_scanner(context: ReducerContext, scanner: Any) -> object:
    """Reduce a search to its pattern, its string and its place."""
    layout = _layout()
    if layout is None:
        raise CannotTravel("This Python does not show where a search of a regular expression stands.")
    words = _words(scanner)
    pattern: object = scanner.pattern
    string = _object_at(words[layout.string])
    if kind_of(string) not in (str, bytes):
        raise CannotTravel("A search in something other than text or bytes cannot be copied.")
    pos, endpos = words[layout.pos], words[layout.pos + 1]
    return searching, (pattern, string, pos, endpos, *_place(scanner, layout))


@loader("regex:searching")
def searching(
    pattern: Any, string: object, pos: int, endpos: int, at: int | None, must_advance: int
) -> object:
    """Return a search that stands at a place (called by payloads).

    Raises ValueError when it never comes there.
    """
    layout = _layout()
    scanner = pattern.scanner(string, pos, endpos)
    if layout is None:
        raise ValueError("this Python does not show where a search stands")
    wanted = Place(at, must_advance)
    while _place(scanner, layout) != wanted:
        if scanner.search() is None and wanted.at is not None:
            raise ValueError("the search does not come to where it stood")
    return scanner


def _place(scanner: object, layout: _Layout) -> Place:
    words = _words(scanner)
    begin, start, end = words[layout.begin : layout.begin + 3]
    must_advance = _halves(scanner)[layout.must_advance]
    if not start:
        return Place(None, must_advance)
    endpos = words[layout.pos + 1]
    return Place((start - begin) * endpos // (end - begin) if end > begin else 0, must_advance)


def _words(scanner: object) -> tuple[int, ...]:
    data = _bytes(scanner)
    return struct.unpack(f"{len(data) // _WORD}P", data)


def _halves(scanner: object) -> tuple[int, ...]:
    data = _bytes(scanner)
    return struct.unpack(f"{len(data) // _HALF}i", data)


def _bytes(scanner: object) -> bytes:
    size = KIND.__basicsize__
    return ctypes.string_at(id(scanner), size - size % _WORD)


def _object_at(address: int) -> object:
    return ctypes.cast(address, ctypes.py_object).value


@functools.cache
def _layout() -> _Layout | None:
    """Return where a scanner keeps things, as a search in a sample shows; None when it does not show that."""
    if sys.implementation.name != "cpython" or KIND.__itemsize__:
        return None
    sample: Any = re.compile("a*")
    scanner = sample.scanner(_SAMPLE, _FROM, _TO)
    words, halves = [_words(scanner)], [_halves(scanner)]
    for _ in _PLACES[1:]:
        scanner.search()
        words.append(_words(scanner))
        halves.append(_halves(scanner))
    count = len(words[0])
    found = _Layout(
        _only([at for at in range(2, count) if words[0][at] == id(sample)]),
        _only([at for at in range(2, count - 2) if _is_begin(words, at)]),
        _only([at for at in range(2, count) if words[0][at] == id(_SAMPLE)]),
        _only([at for at in range(2, count - 1) if words[0][at : at + 2] == (_FROM, _TO)]),
        _only([at for at in range(len(halves[0])) if tuple(row[at] for row in halves) == _ADVANCES]),
    )
    return found if min(found) > 0 else None


def _is_begin(words: Sequence[tuple[int, ...]], at: int) -> bool:
    """Tell whether a word is the address of the text, and the next two where the search is and ends."""
    begin = words[0][at]
    places = [row[at + 1] - begin if row[at + 1] else None for row in words]
    return (
        begin != 0
        and all(row[at] == begin and row[at + 2] == begin + _TO for row in words)
        and tuple(places) == _PLACES
    )


def _only(found: list[int]) -> int:
    """Return the one place that was found; -1 for none or several."""
    return found[0] if len(found) == 1 else -1


EXACT = {
    re.Match: reduce_match,
    re.Pattern: reduce_pattern,
    KIND: reduce_scanner,
    re.Scanner: reduce_lexicon,  # type: ignore[attr-defined]
}
