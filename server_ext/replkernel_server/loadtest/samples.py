"""What one session's start and one cell have shown. Times are seconds from the test's beginning."""

from __future__ import annotations

import msgspec


class CellSample(msgspec.Struct, kw_only=True):
    """One cell: what its page saw, and what the kernel's router told of it."""

    session: str
    msg_id: str
    due_s: float
    runs_s: float
    submitted_s: float = 0.0
    gpus: int = 0
    began_s: float | None = None
    """When the page heard that its code runs (`execute_input`)."""
    replied_s: float | None = None
    trouble: str = ""
    """The error's name, `wrong-state` where a change of an earlier cell was missing; else empty."""
    safety: str = ""
    durability_lag_s: float | None = None
    """From its reply to its commit by a majority, as the router saw both."""
    commit_s: float | None = None
    """The same without the time that its process took to find what had changed."""
    lease_wait_s: float | None = None
    host: str = ""


class StartSample(msgspec.Struct, kw_only=True):
    """The start of a session's kernel: from asking for it to the reply of its first cell."""

    session: str
    took_s: float
    trouble: str = ""
