"""Matches of regular expressions: found again by the call that finds the same one; patterns and scanners.

Python has one object for equal patterns, as long as it remembers it by text and flags. So has each replica: a
match is by the pattern that a variable of another component holds, and so is what compiles it once more.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import weakref
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
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


def reduce_match(context: ReducerContext, match: re.Match[Any]) -> object:
    """Reduce a match to its pattern, its string and the call that found it."""
    for how in ("match", "fullmatch", "search"):
        again = getattr(match.re, how)(match.string, match.pos, match.endpos)
        if again is not None and again.regs == match.regs:
            return find, (match.re, match.string, match.pos, match.endpos, how, 0)
    rows = itertools.islice(match.re.finditer(match.string, match.pos, match.endpos), MATCHES_MAX)
    for index, again in enumerate(rows):
        if again.regs == match.regs:
            return find, (match.re, match.string, match.pos, match.endpos, "finditer", index)
    raise CannotTravel("The call that found this match is not known.")


@loader("regex:find")
def find(pattern: re.Pattern[Any], string: object, pos: int, endpos: int, how: str, index: int) -> object:
    """Find a match again (called by payloads)."""
    if how == "finditer":
        return next(itertools.islice(pattern.finditer(string, pos, endpos), index, None))
    return getattr(pattern, how)(string, pos, endpos)


def reduce_scanner(context: ReducerContext, scanner: object) -> object:
    """Reduce an `re.Scanner` to its lexicon: the pattern that it compiled of it has no text."""
    return re.Scanner, (scanner.lexicon, scanner.scanner.flags)  # type: ignore[attr-defined]


EXACT = {
    re.Match: reduce_match,
    re.Pattern: reduce_pattern,
    re.Scanner: reduce_scanner,  # type: ignore[attr-defined]
}
