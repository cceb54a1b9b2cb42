"""SIGINT while replkernel works on the user's behalf: put off where it would do harm, and not forgotten.

Law: only the main thread uses this; user code never runs inside.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

WAIT_MAX_S = 0.1
"""The main thread blocks no longer at a time, for a SIGINT right before a lock blocks does not end that."""

REMEMBERED_S = 0.1
"""A cell that starts so many seconds after a put-off interrupt was queued behind it and is interrupted."""

MEANT_S = 10.0
"""So is one that was seen to wait when the interrupt came: on a busy machine it may start later."""

_set_handler = vars(sys.modules["_signal"])["signal"]
_handler = vars(sys.modules["_signal"])["getsignal"]
"""`signal.signal` and `signal.getsignal` without their detour through enumerations."""


class PutOffInterrupts:
    """Interrupts that arrived while they could not be delivered."""

    def __init__(self) -> None:
        self._arrived = False
        self._kept = False
        self._until = 0.0
        self._meant = False
        """Whether the one that arrived is for a cell that waited."""
        self.count = 0
        """How many were put off so far."""
        self.next_waits: Callable[[], bool] = lambda: False
        """Tells whether the next cell is there already."""

    @contextmanager
    def put_off(self, *, after_cell: bool = False) -> Iterator[None]:
        """Let no SIGINT break the block; outside of the main thread nothing needs to be done.

        A handler that the block set stays. What comes `after_cell` is forgotten, as stock does it
        when no cell runs, unless the next one waits already: that one was meant.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handler = self._arrive_after_cell if after_cell else self._arrive
        saved = _set_handler(signal.SIGINT, handler)
        try:
            yield
        finally:
            if _handler(signal.SIGINT) == handler:
                _set_handler(signal.SIGINT, signal.SIG_DFL if saved is None else saved)
            if self._arrived:
                self._until = time.monotonic() + (MEANT_S if self._meant else REMEMBERED_S)

    @contextmanager
    def delivered(self) -> Iterator[None]:
        """Inside `put_off`, let SIGINT break this block, which only waits; so does one that came before."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        saved = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if self._arrived:
                self.forget()
                raise KeyboardInterrupt
            yield
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL if saved is None else saved)

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Let SIGINT break what comes after the block instead of the block, whoever handles it now."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        arrived: list[FrameType | None] = []

        def handler(number: int, frame: FrameType | None) -> None:
            arrived.append(frame)

        saved = _set_handler(signal.SIGINT, handler)
        try:
            yield
        finally:
            if _handler(signal.SIGINT) is handler:
                _set_handler(signal.SIGINT, signal.SIG_DFL if saved is None else saved)
            if arrived and callable(saved):
                saved(signal.SIGINT, arrived[0])

    def keep(self) -> Any:
        """Keep SIGINT for `deliver` from now on; return the handler before. Main thread only."""
        saved = _set_handler(signal.SIGINT, self._keep)
        self._kept = False
        return saved

    def deliver(self) -> None:
        """Let SIGINT break the main thread again, as in a cell; one that was kept does so here."""
        if _handler(signal.SIGINT) == self._keep:
            _set_handler(signal.SIGINT, signal.default_int_handler)
            if self._kept:
                self._kept = False
                raise KeyboardInterrupt

    def forget(self) -> None:
        """Forget what was put off."""
        self._arrived = self._meant = False

    def take(self) -> bool:
        """Tell once whether an interrupt was put off a moment ago."""
        fresh = self._arrived and time.monotonic() <= self._until
        self.forget()
        return fresh

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._kept = True

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        self._arrived = True
        self.count += 1

    def _arrive_after_cell(self, number: int, frame: FrameType | None) -> None:
        if self.next_waits():
            self._arrived = self._meant = True
        self.count += 1
