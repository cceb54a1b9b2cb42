"""``@warned_once``: what torch's compiled code has warned of, once in a process: not once a replica.

Whether it has is kept where nobody reaches it, so each process would warn anew after a move.
Law: what is held back was shown to the notebook; a warning that one process gave twice is never held back.
"""

from __future__ import annotations

import warnings
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain

COMPILED = "(Triggered internally at "
"""Stands in each warning of torch's compiled code, with the line that gave it."""

AT_EACH_USE = ("not a leaf Tensor is being accessed",)
"""Stands in the warnings that are given each time, and often."""

TEXTS_MAX = 500

Given = dict[str, bool]
"""The warnings that were shown, and whether a process gave it more than once."""


class WarnedOncePart(Part[Given]):
    """The warnings of torch's compiled code that any process of the notebook has shown."""

    cid = ComponentId("@warned_once")

    def __init__(self) -> None:
        self._given: Given = {}
        self._here: set[str] = set()
        """What this process itself has given, whether it was shown or held back."""
        self._show: Any = vars(warnings)["_showwarnmsg"]
        vars(warnings)["_showwarnmsg"] = self._hear
        super().__init__()

    def _hear(self, message: Any) -> None:
        text = str(message.message)
        if COMPILED not in text or self._is_to_be_shown(text):
            self._show(message)

    def _is_to_be_shown(self, text: str) -> bool:
        again = text in self._here
        shown = again or self._given.get(text, True) or any(words in text for words in AT_EACH_USE)
        if len(self._given) < TEXTS_MAX or text in self._given:
            self._here.add(text)
            self._given[text] = again or self._given.get(text, False)
        return shown

    def look(self) -> Given:
        """Return what was given so far."""
        return self._given.copy()

    def pack(self, seen: Given) -> bytes | None:
        """Write it."""
        return encode_plain(sorted(seen.items())) if seen else None

    def apply(self, data: bytes) -> None:
        """Remember what other processes gave."""
        for text, again in decode_plain(data):
            self._given[str(text)] = bool(again) or self._given.get(str(text), False)
