"""The one thread that drives every Raft member of this process: one poll, one clock, no hand-overs.

Members in one process hand their messages over on this thread alone (`raft_near`), so a commit among them
waits for no other thread's turn, and idle groups wake the process together. Holds no Raft rule.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from replkernel.errors import ReplkernelError

READ, WRITE, FAILED = 1, 2, 4
"""PySyncObj's event bits."""

CALL_LIMIT_S = 30.0
FAULT_PAUSE_S = 0.1
LATE_S = 0.02
"""A wake-up later than this was a stall of the whole process, not a silent peer."""
ROUNDS_MAX = 8
"""Members that hand messages over among themselves leave sockets and jobs their turn after so many rounds."""
TAKEN_MAX = 4
"""In a round, a member takes so many of them: other groups go on while a large snapshot comes in pieces."""

T = TypeVar("T")
OnEvent = Callable[[int, int], None]
log = logging.getLogger(__name__)


class Ticking(Protocol):
    """What the thread drives."""

    def tick(self, now: float) -> float:
        """Do what is due and return when to be ticked next, unless an event or `wake` comes first."""

    def forgive(self, late_s: float) -> None:
        """Do not hold `late_s` seconds of silence against any peer: this process stood still."""


class MemberPoller:
    """PySyncObj's poller interface for one member, on top of the thread's one poll."""

    def __init__(self, thread: RaftThread, owner: Ticking) -> None:
        self._thread = thread
        self._owner = owner

    def subscribe(self, fd: int, on_event: OnEvent, mask: int) -> None:
        """Watch a file descriptor."""
        self._thread.watch(fd, self._owner, on_event, mask)

    def unsubscribe(self, fd: int) -> None:
        """Watch a file descriptor no longer."""
        self._thread.unwatch(fd)

    def poll(self, timeout_s: float) -> None:
        """Do nothing: the thread polls for all members at once."""

    @property
    def near(self) -> dict[str, Any]:
        """Return the transports of the thread's members that listen, by address."""
        return self._thread.near

    def hand(self, job: Callable[[], None]) -> None:
        """Have `job` run for this member once the one that runs now is done; on the thread alone."""
        self._thread.hand(self._owner, job)

    def steady(self) -> bool:
        """Tell whether the clock may be trusted: the thread has not stood still just now."""
        return self._thread.steady()


class RaftThread:
    """A thread, its poll and its members. Made by `acquire`, ended by the last `release`."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._watched: dict[int, tuple[Ticking, OnEvent]] = {}
        self._changed: set[int] = set()
        self._touched: set[Ticking] = set()
        self._due: dict[Ticking, float] = {}
        self._handed: dict[Ticking, deque[Callable[[], None]]] = {}
        self.near: dict[str, Any] = {}
        """What members of this thread find one another by; theirs alone."""
        self._awake_at = 0.0
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._woken: set[Ticking] = set()
        self._signalled = False
        self._ending = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poll.register(self._wake_read, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="replkernel-raft", daemon=True)

    # -- from any thread --

    def start(self) -> None:
        """Begin to run."""
        self._thread.start()

    def wake(self, member: Ticking) -> None:
        """Have `member` ticked at once."""
        with self._lock:
            self._woken.add(member)
            self._signal()

    def call(self, job: Callable[[], T]) -> T:
        """Run `job` on the thread and return what it returns, or raise what it raises."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        if not self.post(run):
            raise ReplkernelError("The Raft thread has ended; make a new member.")
        return future.result(CALL_LIMIT_S)

    def post(self, job: Callable[[], None]) -> bool:
        """Run `job` on the thread soon; tell whether the thread still runs."""
        with self._lock:
            if self._ending:
                return False
            self._jobs.append(job)
            self._signal()
            return True

    def inside(self) -> bool:
        """Tell whether the caller is on the thread."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Stop the thread and wait until it is gone (unless called on it)."""
        with self._lock:
            self._ending = True
            self._signal()
        if not self.inside():
            self._thread.join(CALL_LIMIT_S)

    def _signal(self) -> None:
        if not self._signalled:
            self._signalled = True
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"w")

    # -- on the thread --

    def add(self, member: Ticking) -> None:
        """Tick `member` from now on."""
        self._due[member] = 0.0

    def remove(self, member: Ticking) -> None:
        """Tick `member` no longer, and watch nothing for it."""
        self._due.pop(member, None)
        self._touched.discard(member)
        for fd in [fd for fd, (owner, _) in self._watched.items() if owner is member]:
            self.unwatch(fd)

    def watch(self, fd: int, owner: Ticking, on_event: OnEvent, mask: int) -> None:
        """Call `on_event(fd, events)` for `owner` when something in `mask` happens."""
        if fd not in self._watched:
            self._changed.add(fd)
        self._watched[fd] = (owner, on_event)
        events = select.POLLIN if mask & READ else 0
        self._poll.register(fd, events | (select.POLLOUT if mask & WRITE else 0))

    def unwatch(self, fd: int) -> None:
        """Forget a file descriptor; nothing happens when it is not watched."""
        if self._watched.pop(fd, None) is not None:
            self._changed.add(fd)
            self._poll.unregister(fd)

    def hand(self, member: Ticking, job: Callable[[], None]) -> None:
        """Run `job` after what was handed over to `member` before, and tick that then."""
        self._handed.setdefault(member, deque()).append(job)

    def _run(self) -> None:
        try:
            while not self._ending or self._jobs:
                self._turn()
        except BaseException:
            log.exception("the Raft thread ends on an error of its own")
            raise
        finally:
            with self._lock:
                self._ending = True
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _turn(self) -> None:
        now = time.monotonic()
        planned = now if self._handed else min(self._due.values(), default=None)
        wait_ms = None if planned is None else max(0.0, planned - now) * 1000
        events = self._poll.poll(wait_ms)
        self._awake_at = max(now, planned or now)
        self._check_stall()
        self._dispatch(events)
        self._run_jobs()
        for _ in range(ROUNDS_MAX):
            self._take_handed()
            self._tick_all()
            if not self._handed:
                break

    def _tick_all(self) -> None:
        now = self._check_stall()
        touched, self._touched = self._touched, set()
        due = [member for member, at in self._due.items() if at <= now or member in touched]
        for member in due:
            self._tick(member, self._check_stall())

    def _take_handed(self) -> None:
        """Deliver some of what each member has been handed; what comes of that is for the next round."""
        for member, count in [(each, len(jobs)) for each, jobs in self._handed.items()]:
            jobs = self._handed[member]
            self._touched.add(member)
            for _ in range(min(count, TAKEN_MAX)):
                try:
                    jobs.popleft()()
                except Exception:
                    log.exception("a Raft message could not be handled")
            if not jobs:
                del self._handed[member]

    def steady(self) -> bool:
        """Tell whether the thread has not stood still since the last tick began."""
        return time.monotonic() - self._awake_at <= LATE_S

    def _check_stall(self) -> float:
        """Return the time, having forgiven every peer a stall since this was asked last.

        A stall may come wherever another thread can take the interpreter, so it is asked before each tick.
        """
        now = time.monotonic()
        if now - self._awake_at > LATE_S:
            for member in self._due:
                member.forgive(now - self._awake_at)
        self._awake_at = now
        return now

    def _dispatch(self, events: list[tuple[int, int]]) -> None:
        self._changed.clear()
        for fd, event in events:
            if fd == self._wake_read or fd in self._changed or fd not in self._watched:
                continue
            if event & select.POLLNVAL:
                self.unwatch(fd)
                continue
            owner, on_event = self._watched[fd]
            mask = (READ if event & select.POLLIN else 0) | (WRITE if event & select.POLLOUT else 0)
            if event & (select.POLLERR | select.POLLHUP):
                mask |= FAILED
            self._touched.add(owner)
            try:
                on_event(fd, mask)
            except Exception:
                log.exception("a Raft message could not be handled")

    def _run_jobs(self) -> None:
        with self._lock:
            if self._signalled:
                self._signalled = False
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 64)
            jobs, self._jobs = self._jobs, deque()
            self._touched |= self._woken
            self._woken.clear()
        for job in jobs:
            try:
                job()
            except Exception:
                log.exception("a job of the Raft thread failed")

    def _tick(self, member: Ticking, now: float) -> None:
        try:
            due = member.tick(now)
        except Exception:
            log.exception("a Raft member's tick failed")
            due = now + FAULT_PAUSE_S
        if member in self._due:
            self._due[member] = due


_shared_lock = threading.Lock()
_shared: RaftThread | None = None
_users = 0


def acquire() -> RaftThread:
    """Return this process's Raft thread, starting it for its first user."""
    global _shared, _users
    with _shared_lock:
        if _shared is None:
            _shared = RaftThread()
            _shared.start()
        _users += 1
        return _shared


def release() -> None:
    """Give the thread back; it ends with its last user."""
    global _shared, _users
    with _shared_lock:
        _users -= 1
        if _users > 0 or _shared is None:
            return
        ending, _shared = _shared, None
    ending.end()
