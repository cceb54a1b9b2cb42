"""A row for each task that is over, as CSV.

Law: one writer a file, rows in the order in which tasks end; times in seconds from the beginning of the
run, with six decimals, so the same run gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from replkernel_scheduler.sim.task import Outcome, Task

COLUMNS = (
    "kind", "name", "number", "outcome", "gpus", "host",
    "submitted_s", "bound_s", "started_s", "ended_s", "done_s", "immediate", "moved", "reused", "lost_runs",
)  # fmt: skip


class Rows:
    """The file; a task that was not served has no times but its submission."""

    def __init__(self, path: Path) -> None:
        """Begin the file anew."""
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._file.write(",".join(COLUMNS) + "\n")

    def __enter__(self) -> Rows:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()

    def __call__(self, task: Task, outcome: Outcome) -> None:
        """Write a row."""
        kind = "job" if task.job else "cell"
        begin = f"{kind},{_text(task.name)},{task.number},{outcome},{task.gpus}"
        if outcome != "done":
            self._file.write(f"{begin},,{task.submitted:.6f},,,,,,,,{task.tries}\n")
            return
        times = (task.submitted, task.bound, task.started, task.ended, task.done)
        written = ",".join([f"{time:.6f}" for time in times])
        flags = f"{task.immediate:d},{task.moved:d},{task.reused:d},{task.tries}"
        self._file.write(f"{begin},{task.host},{written},{flags}\n")


def _text(name: str) -> str:
    """Return a name as CSV wants it."""
    return '"' + name.replace('"', '""') + '"' if any(sign in name for sign in ',"\n') else name
