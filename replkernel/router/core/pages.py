"""What pages have widgets do: which process has taken the notebook over, and what the log may not have yet.

Pure. Law: a page's message reaches a process that has the notebook, or takes it over with that message; what
it changes holds up whatever needs all to be durable, until the log has it or somebody has waited too long.
"""

from __future__ import annotations

from replkernel.records import Mark, ReplicaId


class Pages:
    """The messages of pages to the notebook's widgets."""

    def __init__(self) -> None:
        self._holder: tuple[ReplicaId, str] | None = None
        self._spoke = ""
        self._in: Mark | None = None
        self.spoke_at = 0.0
        """When a page has first said something to a widget that the log may lack."""

    def begins_in(self, replica: ReplicaId, process: str) -> None:
        """Take note of the process that was given the last execution: it has the notebook."""
        self._holder = (replica, process)

    def not_begun(self) -> None:
        """Take note that the last execution was not run, so that its process may not have the notebook."""
        self._holder = None

    def has_notebook(self, replica: ReplicaId, process: str) -> bool:
        """Tell whether a process was given the last execution."""
        return self._holder == (replica, process)

    def spoke(self, msg_id: str, now: float) -> None:
        """Take note that a page's message is given to the process that has the notebook."""
        self.spoke_at = self.spoke_at if self._spoke else now
        self._spoke, self._in = msg_id, None

    def saved(self, msg_id: str, mark: Mark) -> bool:
        """Take note with which audit the log gets what pages have changed; tell whether it was awaited."""
        if not self._spoke or msg_id != self._spoke:
            return False
        self._in = mark
        return True

    def refused(self, msg_id: str) -> None:
        """Take note that nothing was done for a message: the log lacks nothing of it."""
        if msg_id == self._spoke:
            self._spoke, self._in = "", None

    def lost(self) -> None:
        """Take note that the process is gone, with what was in it alone; another may get its address."""
        self._holder, self._spoke, self._in = None, "", None

    def logged(self, mark: Mark) -> None:
        """Take note of what the log has."""
        if self._in is not None and mark >= self._in:
            self._spoke, self._in = "", None

    @property
    def waits(self) -> bool:
        """Tell whether the log may lack something that a page has changed."""
        return bool(self._spoke)
