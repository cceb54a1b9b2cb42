"""sys.stdout, sys.stderr and the thread that publishes: ipykernel's, but a flush waits for nothing in vain.

Law: what Python code wrote before a flush has been handed to the iopub socket when it returns; what was
written below Python before `take_descriptor` is in the buffer when that returns.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any

from ipykernel import iostream

DESCRIPTOR_WAIT_S = 0.2
"""A cell's end waits no longer for the thread that reads what C code and child processes wrote."""

READ_BYTES = 1000


class OutputThread(iostream.IOPubThread):
    """ipykernel's thread for the iopub socket; it can tell whether anything is left to do."""

    _working = False

    def _handle_event(self, msg: Any) -> None:
        self._working = True
        try:
            super()._handle_event(msg)
        finally:
            self._working = False

    def idle(self) -> bool:
        """Tell whether everything that was scheduled is done: an event leaves the list while working."""
        return not self._events and not self._working


class OutStream(iostream.OutStream):
    """ipykernel's stream, whose flush costs nothing when there is nothing to send."""

    _taking = False
    _fid: int

    def flush(self) -> None:
        """Send what was written and wait until it is sent."""
        thread = self.pub_thread
        idle = isinstance(thread, OutputThread) and thread.idle()
        if self._buffers or self.echo is not None or not idle:
            super().flush()

    def take_descriptor(self) -> None:
        """Wait until what lies in the pipe behind descriptor 1 or 2 is in the buffer."""
        if not self._should_watch or not self._is_master_process():
            return
        deadline = None
        while self._taking or _readable(self._fid):
            now = time.monotonic()
            deadline = now + DESCRIPTOR_WAIT_S if deadline is None else deadline
            if now >= deadline or not self.watch_fd_thread.is_alive():
                return
            time.sleep(0.0001)

    def _watch_pipe_fd(self) -> None:
        """Take what is written below Python, as stock does; `_taking` is set before the pipe is emptied."""
        try:
            while self._should_watch:
                select.select([self._fid], [], [])
                self._taking = True
                data = os.read(self._fid, READ_BYTES)
                if not data or not self._should_watch:
                    break
                self.write(data.decode(errors="replace"))
                self._taking = False
                os.write(self._original_stdstream_copy, data)
        except Exception:
            self._exc = sys.exc_info()
        finally:
            self._taking = False


def _readable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


OutStream.__module__ = iostream.__name__
