"""What can be wrong with a load test, in one sentence that says what to do."""

from __future__ import annotations

from replkernel_server.errors import ServerError


class LoadTestError(ServerError):
    """The load test cannot be run."""


class CellFailed(Exception):
    """A cell did not end as it should; its text is the error's name; of a kernel's first one, also why."""
