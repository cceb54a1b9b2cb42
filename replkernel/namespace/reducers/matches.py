"""Matches of regular expressions: found again by the call that finds the same one; and scanners."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

MATCHES_MAX = 100_000


def reduce_match(pickler: CapturePickler, match: Any) -> Any:
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


def find(pattern: Any, string: Any, pos: int, endpos: int, how: str, index: int) -> Any:
    """Find a match again (called by payloads)."""
    if how == "finditer":
        return next(itertools.islice(pattern.finditer(string, pos, endpos), index, None))
    return getattr(pattern, how)(string, pos, endpos)


def reduce_scanner(pickler: CapturePickler, scanner: Any) -> Any:
    """Reduce an `re.Scanner` to its lexicon: the pattern that it compiled of it has no text."""
    return re.Scanner, (scanner.lexicon, scanner.scanner.flags)  # type: ignore[attr-defined]


EXACT = {re.Match: reduce_match, re.Scanner: reduce_scanner}  # type: ignore[attr-defined]
