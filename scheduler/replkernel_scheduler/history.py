"""The last events, so that a fault can be told with its story.

Law: it holds at most EVENTS_MAX events and is only read when something is wrong.
"""

from __future__ import annotations

from collections import deque

import msgspec

from replkernel_scheduler.errors import UnexpectedEvent
from replkernel_scheduler.events import Event

EVENTS_MAX = 1_000
STORY_MAX = 8


class History:
    """The last events with their times."""

    __slots__ = ("_events", "keep")

    def __init__(self) -> None:
        """Start with none."""
        self._events: deque[tuple[float, Event]] = deque(maxlen=EVENTS_MAX)
        self.keep = self._events.append

    def events(self) -> list[tuple[float, Event]]:
        """Return the last events, oldest first."""
        return list(self._events)

    def about(self, name: str) -> list[str]:
        """Return the last events that name the object, oldest first, one line each."""
        quoted = msgspec.json.encode(name)
        found: list[str] = []
        for at, event in reversed(self._events):
            text = msgspec.json.encode(event)
            if quoted in text:
                found.append(f"{at:.3f} {text.decode()}")
                if len(found) == STORY_MAX:
                    break
        return found[::-1]

    def unexpected(self, about: str, expected: str, came: str) -> UnexpectedEvent:
        """Return the error to raise."""
        return UnexpectedEvent(about, expected, came, self.about(about))
