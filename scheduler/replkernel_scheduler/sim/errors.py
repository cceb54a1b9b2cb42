"""What is wrong when a simulation cannot be run: faults that tell where they are and what to do."""

from __future__ import annotations

from replkernel_scheduler.errors import SchedulerError


class SimulationError(SchedulerError):
    """The root of the simulator's errors; its text is for whoever gave the command."""


class TraceUnreadable(SimulationError):
    """A file is not there, is damaged, or is of no form that is known."""


class BadRow(SimulationError):
    """A row of a trace that cannot be; `path`, `line` and `reason` say where and why."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        """Keep the parts and make one text of them."""
        self.path, self.line, self.reason = path, line, reason
        super().__init__(
            f"{path}, line {line}: {reason}. Correct it, or leave out such rows with --skip-bad."
        )
