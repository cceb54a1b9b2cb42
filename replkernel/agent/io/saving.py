"""Writes what the next agent needs to know of a replica, again later when the disk does not take it now.

Law: the newest record is written, never one that was asked for earlier; nothing is written after `close`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

SAVE_RETRY_S = 1.0

log = logging.getLogger(__name__)


class Saving:
    """`write` puts the record as it is then in its place; it may raise OSError."""

    def __init__(self, write: Callable[[], None], what: Callable[[], str]) -> None:
        self._write = write
        self._what = what
        self._later: asyncio.TimerHandle | None = None
        self._closed = False

    def save(self) -> None:
        """Write now, or as soon as that can be done."""
        if self._closed:
            return
        if self._later is not None:
            self._later.cancel()
            self._later = None
        try:
            self._write()
        except OSError as error:
            log.warning("the record of %s cannot be written, and is tried again: %s", self._what(), error)
            self._later = asyncio.get_running_loop().call_later(SAVE_RETRY_S, self.save)

    def close(self) -> None:
        """Write no more."""
        self._closed = True
        if self._later is not None:
            self._later.cancel()
            self._later = None
