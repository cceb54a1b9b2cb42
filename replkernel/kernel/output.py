"""sys.stdout, sys.stderr and the thread that publishes: ipykernel's, but a flush waits for nothing in vain.

Law: what Python code wrote before a flush has been handed to the iopub socket when it returns; what was
written below Python before `take_descriptor` is in the buffer when that returns; one thread's messages
keep their order.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zmq
from ipykernel import iostream
from zmq.eventloop.zmqstream import ZMQStream

from replkernel.kernel.held_output import HeldOutput
from replkernel.protocol.confirmation import read_confirmation
from replkernel.state.process.own_threads import marked

DESCRIPTOR_WAIT_S = 0.2
DESCRIPTOR_LOOKS = 500
"""A cell's end waits no longer for the thread that reads what C code and child processes wrote.

But it looks so often, which takes less: where the whole process did not get to run, neither did that thread.
"""

READ_BYTES = 1000

CHILD_LINGER_MS = 3000
"""A forked child that ends waits no longer for what it printed to be taken."""

# As plain numbers: `&` of an enum member costs as much as a receipt.
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)


class OutputThread(iostream.IOPubThread):
    """ipykernel's thread for the iopub socket; it can tell whether anything is left to do.

    While nothing is, the main thread may use the socket itself: `_door` is held by whoever does.
    """

    _at_once = False

    def __init__(self, socket: zmq.Socket[Any], *args: Any, children: str = "", **options: Any) -> None:
        """`children` is the path of the socket to which forked children print."""
        self._children = f"ipc://{children}"
        # A router is sent nothing before what the last one missed; and one that comes while the last one's
        # connection seems to live, cut off, is told of.
        socket.setsockopt(zmq.XPUB_MANUAL, 1)
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._scheduled = self._done = 0
        self._held = HeldOutput()
        """Used behind the lock."""
        super().__init__(socket, *args, **options)

    def schedule(self, f: Callable[[], object]) -> None:
        """Have the thread call `f`, and know until when it has not."""

        def call() -> None:
            try:
                f()
            finally:
                self._done += 1

        if not self._is_master_process():  # A forked child may have got the lock locked, for ever.
            super().schedule(f)
            return
        with self._counting:
            self._scheduled += 1
        super().schedule(call)

    def _setup_pipe_in(self) -> None:
        """Listen to forked children in the process's own directory: stock's port hears any local user."""
        self._pipe_uuid = os.urandom(16)
        pipe = self.socket.context.socket(zmq.PULL)
        pipe.linger = 0
        pipe.bind(self._children)
        self._pipe_in = ZMQStream(pipe, self.io_loop)
        self._pipe_in.on_recv(self._handle_pipe_msg)

    def _setup_pipe_out(self) -> object:
        """Return a context and a socket of a forked child's own, with which it prints."""
        context = zmq.Context()
        pipe = context.socket(zmq.PUSH)
        pipe.linger = CHILD_LINGER_MS
        pipe.connect(self._children)
        return context, pipe

    def idle(self) -> bool:
        """Tell whether everything that was scheduled is done (`_done` is read first: it never overtakes)."""
        done = self._done
        return done == self._scheduled

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let the main thread send without this one in the block, which no SIGINT may break."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def send_multipart(self, *args: Any, **options: Any) -> None:
        """Send as stock does, unless it can be done at once: all before is sent and the socket is free.

        This thread itself always does: stock has it come back to that later, and by then a flush has returned
        to code that may hold the interpreter's lock for a minute.
        """
        if threading.current_thread() is self.thread:
            self._really_send(*args, **options)
        elif not self._send_at_once(*args, **options):
            super().send_multipart(*args, **options)

    def _send_at_once(self, *args: Any, **options: Any) -> bool:
        if not self._at_once or threading.current_thread() is not threading.main_thread():
            return False
        if not self.idle() or not self._is_master_process() or not self.thread.is_alive():
            return False
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._welcome()
            self._publish(*args, **options)
            news = self._has_news()
        finally:
            self._lock.release()
        if news:
            self.io_loop.add_callback(self._take_subscriptions)
        return True

    def _really_send(self, *args: Any, **options: Any) -> None:
        if not self._is_master_process():
            super()._really_send(*args, **options)
            return
        with self._lock:
            self._welcome()
            self._publish(*args, **options)
            news = self._has_news()
        if news:
            self.io_loop.add_callback(self._take_subscriptions)

    def _publish(self, msg: list[Any], *args: Any, **options: Any) -> None:
        """Send, and hold the message for the next router (the caller holds the lock)."""
        super()._really_send(msg, *args, **options)
        self._held.published(msg)

    def keep_reply(self, frames: list[Any]) -> None:
        """Hold a reply that is sent another way, for the router after the one that it is sent to."""
        with self._lock:
            self._held.replied(frames)

    def replies_heard(self) -> bool:
        """Tell whether a router has confirmed all replies."""
        with self._lock:
            return not self._held.owes_replies

    def _setup_xpub_listener(self) -> None:
        """Listen for subscriptions, knowing that sending takes ZMQ's news of them away."""
        self.io_loop.add_handler(self.socket, self._take_subscriptions, self.io_loop.READ)

    def _take_subscriptions(self, *_: object) -> None:
        with self._lock:
            self._welcome()

    def _welcome(self) -> None:
        """Let the routers in that have come, and take what they confirm (the caller holds the lock)."""
        while self._has_news():
            self._take_news(self.socket.recv_multipart(zmq.NOBLOCK))

    def _take_news(self, frames: list[bytes]) -> None:
        """Take a router's coming, which is sent what it missed, its going, or what it confirms.

        ZMQ sends it nothing before it is let in here: else what is published in that moment would come before
        what it missed, and then once more with it.
        """
        confirmation = read_confirmation(frames[0])
        if confirmation is not None:
            self._held.confirmed(confirmation)
            return
        topic = frames[0][1:]
        if frames[0][:1] != b"\x01":
            self.socket.setsockopt(zmq.UNSUBSCRIBE, topic)
            return
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self._handle_subscription(frames)
        for held in self._held.begin():
            self.socket.send_multipart(held)

    def _has_news(self) -> bool:
        socket = self.socket
        if socket is None or socket.closed:
            return False
        return bool(int(socket.getsockopt(_EVENTS)) & _READABLE)


class KeptWay:
    """A way on which replies leave, each of which is held until its router confirms it."""

    def __init__(self, way: Any, thread: OutputThread) -> None:
        self._way, self._thread = way, thread

    def __getattr__(self, name: str) -> object:
        return getattr(self._way, name)

    def send_multipart(self, frames: list[Any], **options: Any) -> object:
        """Send a reply."""
        self._thread.keep_reply(frames)
        return self._way.send_multipart(frames, **options)


class OutStream(iostream.OutStream):
    """ipykernel's stream, whose flush costs nothing when there is nothing to send."""

    _taking = False
    _sending = False
    _fid: int

    def _setup_stream_redirects(self, name: str) -> None:
        """Read the descriptor in a thread, as stock does; it is the kernel's own, not the notebook's."""
        super()._setup_stream_redirects(name)
        marked(self.watch_fd_thread)

    def flush(self) -> None:
        """Send what was written and wait until it is sent."""
        thread = self.pub_thread
        idle = isinstance(thread, OutputThread) and thread.idle()
        if self._buffers or self._sending or self.echo is not None or not idle:
            super().flush()

    def _flush(self) -> None:
        self._sending = True
        try:
            super()._flush()
        finally:
            self._sending = False

    def take_descriptor(self) -> None:
        """Wait until what lies in the pipe behind descriptor 1 or 2 is in the buffer."""
        if not self._should_watch or not self._is_master_process():
            return
        deadline, looks = None, 0
        while self._taking or _readable(self._fid):
            now = time.monotonic()
            deadline = now + DESCRIPTOR_WAIT_S if deadline is None else deadline
            late = now >= deadline and looks >= DESCRIPTOR_LOOKS
            if late or not self.watch_fd_thread.is_alive():
                return
            looks += 1
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
