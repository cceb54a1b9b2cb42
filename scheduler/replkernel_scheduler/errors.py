"""What is wrong when the scheduler's core raises: faults only; what may happen is an effect."""

from __future__ import annotations

from collections.abc import Sequence


class SchedulerError(Exception):
    """The root of this package's errors."""


class InvariantBroken(SchedulerError, AssertionError):
    """The core is in a state that its laws exclude: a bug, never an outcome."""


class PolicyUnknown(SchedulerError, LookupError):
    """No policy of this kind has this name."""


class ImageUnfit(SchedulerError):
    """The image of a core cannot be restored; the text says why, as the end of a sentence."""


class UnexpectedEvent(SchedulerError):
    """An event that cannot follow what came before it; the state is as it was without it.

    `about` is the object's id, `expected` and `came` say what does not fit, `story` holds the last events
    about that object, oldest first.
    """

    def __init__(self, about: str, expected: str, came: str, story: Sequence[str]) -> None:
        """Keep the parts and make one text of them."""
        self.about, self.expected, self.came, self.story = about, expected, came, tuple(story)
        lines = [f"{about}: expected {expected}, but {came} came.", *(f"  {line}" for line in story)]
        super().__init__("\n".join(lines))
