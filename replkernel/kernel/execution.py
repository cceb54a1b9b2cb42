"""What one execution is to a replica, and what the replica asks of the parts around it.

Law: no steps here, only the shapes; `replica.py` owns their order.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from replkernel.errors import ReplkernelError
from replkernel.protocol import Envelope
from replkernel.records import BlobRef, Delta, Fence, Pin, Seq


class State(Protocol):
    """The part of `namespace.capture.StateCapture` that a replica uses."""

    @property
    def applied(self) -> Seq:
        """The last execution whose delta was captured here or received."""

    @property
    def state_bytes(self) -> int:
        """The bytes of everything captured or received."""

    @property
    def components(self) -> int:
        """The number of components."""

    @property
    def pending_bytes(self) -> int:
        """The bytes received and not rebuilt."""

    def capture(self, seq: Seq, fence: Fence, execution_count: int) -> Delta:
        """Return what changed since the last capture."""

    def receive(self, delta: Delta) -> None:
        """Take a foreign delta in, to be rebuilt."""

    def rebuild(self, *, everything: bool, fetch: Callable[[Sequence[BlobRef]], None]) -> Any:
        """Rebuild the small received components, or all."""

    def table(self) -> Any:
        """Return the components for `%replkernel state`."""


class Execution:
    """One execution of the main shell: its envelope, and what kept it from running."""

    def __init__(self, envelope: Envelope | None) -> None:
        self.envelope = envelope
        self.trouble: BaseException | None = None
        self.captured = False
        self.kept_back = ""
        """Why what it changed could not be proposed."""
        self.durable = False


class FetchRefused(BaseException):
    """Blobs did not come, so nothing is rebuilt and the cell is not run; `error` says why.

    It is no Exception, for the rebuilding turns those into variables that are lost for good.
    """

    def __init__(self, error: ReplkernelError) -> None:
        super().__init__(error)
        self.error = error


class ProcessState(NamedTuple):
    """The process's own state beside the namespace: its pins, what loads put off, what could not be followed.

    `pins` takes the number of the execution; `settle` returns the modules that could not be imported.
    """

    pins: Callable[[Seq], Sequence[Pin]]
    settle: Callable[[], Sequence[str]]
    troubles: Callable[[], Sequence[str]]


def describe(error: BaseException) -> str:
    """Return the lines that stand for `error` in an error reply."""
    lines = traceback.format_exception_only(error)
    return "".join([lines[0].removeprefix(f"{type(error).__module__}."), *lines[1:]]).strip()
