"""An IPython kernel whose main thread takes executions and publishes their statuses without other threads.

Law: the order of messages is stock's, and no SIGINT breaks one in two.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import copy_context
from typing import Any

from ipykernel.ipkernel import IPythonKernel

from replkernel.kernel.direct import DirectChannel, DirectMessage, MainShellStream
from replkernel.kernel.interrupts import PutOffInterrupts
from replkernel.kernel.output import KeptWay, OutputThread

SIGNALS_READ = 4096
"""So many signals are taken note of at a time."""


def on_main_shell(parent: Mapping[str, Any]) -> bool:
    """Tell whether a message is the main shell's, on its thread: not a subshell's or control's."""
    main = threading.current_thread() is threading.main_thread()
    return main and parent["header"].get("subshell_id") is None


class ShortWaysKernel(IPythonKernel):
    """Stock's kernel with a direct way in and out; `direct` and `interrupts` are set before it starts."""

    direct: DirectChannel | None = None
    interrupts: PutOffInterrupts
    _came_directly = False
    """Whether the main shell's current message came on the direct way."""
    _input_shown = False
    """Whether the source of the main shell's current cell was published."""

    def __init__(self, **traits: object) -> None:
        self.interrupts = PutOffInterrupts()
        self._held = ExitStack()
        super().__init__(**traits)
        self._cells_context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start as stock does, but keep the context in which cells run, for the work between them."""
        super().start()
        self._cells_context = copy_context()
        self._wake_at_signals()
        if self.shell_channel_thread:
            pair = self.shell_channel_thread.manager.get_shell_channel_to_subshell_pair(None)
            pair.on_recv(self.io_loop, self._take_message)
            if self.direct is not None:
                self.direct.start(self._loop(), self._take_directly)
                pair.to_stream = MainShellStream(pair.to_stream, self.direct, self.has_taken)
        elif self.shell_stream:
            self.shell_stream.on_recv(self._take_message, copy=False)

    def _wake_at_signals(self) -> None:
        """Have a signal wake the loop: an interrupt of a cell that awaits something is an affair of the loop.

        Stock notes it and sleeps on, until what the cell awaits comes by itself.
        """
        awake, noted = socket.socketpair()
        for end in (awake, noted):
            end.setblocking(False)
        self._loop().add_reader(awake, awake.recv, SIGNALS_READ)
        signal.set_wakeup_fd(noted.fileno(), warn_on_full_buffer=False)
        self._waking = awake, noted

    def has_taken(self) -> bool:
        """Tell whether a message of the main shell was taken from its socket and nobody has begun with it."""
        return False

    def _loop(self) -> Any:
        loop: Any = self.io_loop
        return loop.asyncio_loop

    async def _take_message(self, msg: object) -> None:
        await asyncio.create_task(self.shell_main(None, msg), context=self._cells_context)

    def _take_directly(self, msg: DirectMessage) -> None:
        task = self._loop().create_task(self.shell_main(None, msg), context=self._cells_context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def dispatch_shell(
        self, msg: object, /, subshell_id: str | None = None, *, concurrent: bool = False
    ) -> None:
        """Handle a message as stock does, knowing which way it came."""
        if subshell_id is None and not concurrent:
            self._came_directly = isinstance(msg, DirectMessage)
        await super().dispatch_shell(msg, subshell_id=subshell_id, concurrent=concurrent)

    def hold_interrupts(self) -> None:
        """Put off SIGINT until the main shell's request has been dealt with."""
        if threading.current_thread() is threading.main_thread():
            self._held.enter_context(self.interrupts.put_off(after_cell=True))

    def pre_handler_hook(self) -> None:
        """Take SIGINT again, as stock does; it is kept until the handler can answer what it breaks."""
        self.saved_sigint_handler = self.interrupts.keep()

    def deliver_interrupts(self) -> None:
        """Let SIGINT break the main shell's request from now on."""
        if threading.current_thread() is threading.main_thread():
            self.interrupts.deliver()

    def post_handler_hook(self) -> None:
        """Ignore SIGINT again, as stock does; one that came while it was put off broke nothing until here."""
        super().post_handler_hook()
        self._held.close()

    def _way_back(self, stream: object, parent: Mapping[str, Any]) -> object:
        """Return where the current message is answered: `stream`, or the way on which it came directly."""
        way = self.direct if self._came_directly and on_main_shell(parent) else stream
        thread = self.iopub_thread
        return KeptWay(way, thread) if isinstance(thread, OutputThread) else way

    def _publishing(self) -> AbstractContextManager[None]:
        """Publish without a detour in the block, which no SIGINT may break."""
        thread = self.iopub_thread
        return thread.at_once() if isinstance(thread, OutputThread) else nullcontext()

    def _publish_status(self, status: str, channel: str, parent: Mapping[str, Any] | None = None) -> None:
        """Publish a status; while stock does, it ignores SIGINT."""
        with self._publishing():
            super()._publish_status(status, channel, parent)

    def _publish_execute_input(self, code: str, parent: Mapping[str, Any], execution_count: int) -> None:
        """Publish a cell's source; what comes meanwhile interrupts the cell, not this message."""
        if not on_main_shell(parent):
            super()._publish_execute_input(code, parent, execution_count)
            return
        with self.interrupts.put_off(), self._publishing():
            super()._publish_execute_input(code, parent, execution_count)
            self._input_shown = True
        if self.interrupts.take():
            raise KeyboardInterrupt

    def show_input(self, parent: Mapping[str, Any]) -> None:
        """Publish the source of a cell that was interrupted before stock did, unless it is silent."""
        content = parent["content"]
        if self._input_shown or content.get("silent", False) or not on_main_shell(parent):
            return
        with self._publishing():
            super()._publish_execute_input(content["code"], parent, self.execution_count)
