"""What the stand-in's zygote imports."""

import os
from collections.abc import Callable


def preload() -> None:
    if os.environ.get("STANDIN_BROKEN"):
        raise ImportError("standin: told not to preload")
    import replkernel.kernel.link  # noqa: F401


def preload_more() -> None:
    """Import nothing more."""


def practise(wanted: Callable[[], bool]) -> bool:
    """Practise nothing."""
    return True


def look_ahead() -> None:
    """Look for nothing."""
