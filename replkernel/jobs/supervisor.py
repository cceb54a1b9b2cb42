"""The supervisor of one job on one host: `python -m replkernel.jobs.supervisor DIRECTORY HOST`.

It is nobody's child and outlives the agent, whose orders it finds in the job's directory; it starts the agent
again if that is gone. It holds no rule: `life.py` decides. Law: a lock makes it the only one of its job; what
an earlier one has left is saved and stopped before anything is started. Of a job on several hosts it is the
first one's, and has launchers on the others (`across.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replkernel.agent.io.death import start_time
from replkernel.errors import ReplkernelError
from replkernel.jobs import processes
from replkernel.jobs.agent_watch import AgentWatch
from replkernel.jobs.life import Act, Ask, End, Kill, Life, Say, Start
from replkernel.jobs.stepping_aside import MemoryWatch, WatchAside
from replkernel.jobs.words import (
    ASKED,
    FINAL,
    LISTENS,
    LOCK,
    LOG,
    LOG_BYTES_MAX,
    MEETING,
    MEMORY,
    MET,
    PROGRESS,
    SAVED,
    WAKE,
    JobPlace,
    Order,
    Record,
    checkpoint_of,
    open_fifo,
    wake,
)
from replkernel.ranks.words import LEAVE_S

if TYPE_CHECKING:
    from replkernel.jobs.across import Across

LOOK_S = 0.5
"""How often it looks for what nobody tells it: that the program has ended, or written its checkpoint."""
SETTLED_S = 1.0
"""A checkpoint file that has not changed for so long is whole."""
CANNOT = 127
FAILED_S = 5.0
"""When one of its hosts has failed, what runs on the first one has so long to end."""
ROLLED_BYTES_MAX = 64 << 20
"""Who writes faster than it is copied loses what comes after so much."""
MEMORY_STEP = 64 << 20
"""What a job on cores has of memory is written down when it has changed by so many bytes."""


class Supervisor:
    """One job's, until it has come to an end here."""

    def __init__(self, place: JobPlace, host: str) -> None:
        """Take over what the directory tells."""
        self._place, self._host = place, host
        self._record = place.record()
        self._fifo = open_fifo(place.directory / WAKE)
        self._program: subprocess.Popen[bytes] | None = None
        self._first = processes.first_of(self._record)
        self._told: list[processes.First] = []
        """Who was told to end: its parent may end sooner, and nothing else tells then whose it is."""
        self._number = 0
        self._asked_at: float | None = None
        self._asked = 0
        """As of which order it was asked to save: it answers with that number, whatever is ordered since."""
        self._unasked = self._unsaid = False
        """What could not be written, on a full disk: tried again at each look."""
        self._agent = AgentWatch(host, os.environ, time.monotonic())
        self._watch: WatchAside | None = None
        self._across: Across | None = None
        self._kill_at: float | None = None
        """When what is left of a job that has failed on another host is killed."""
        self._told_memory = place.number(MEMORY)
        order = place.order()
        left = order is not None and bool(self._members())
        self._life = Life(order if left else None, time.monotonic())

    def run(self) -> None:
        """Serve orders until one has come to its end."""
        while not self.turn():
            self._wait()
        self.close()

    def close(self) -> None:
        """Let go of what wakes it."""
        self._watch_no_more()
        if self._across is not None:
            self._across.close()
        if self._fifo is not None:
            os.close(self._fifo)

    def turn(self) -> bool:
        """Do what is to be done now; tell whether that was all."""
        self._do(self._life.time(time.monotonic()))
        self._take_order()
        self._look()
        over = self._record.state in FINAL and not self._life.lives and not self._unsaid
        return over and self._is_carried_out()

    def _is_carried_out(self) -> bool:
        order = self._place.order()
        return order is None or order.number <= self._number

    def _wait(self) -> None:
        """Wait for a wake-up, what is due, or the next look."""
        left_s = self._life.deadline() - time.monotonic()
        within_s = max(0.0, min(LOOK_S, left_s))
        wakers = [] if self._fifo is None else [self._fifo]
        if self._across is not None:
            self._across.wait(self._fifo, within_s)
            within_s = 0.0
        for ready in select.select(wakers, [], [], within_s)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(ready, 4096)

    def _take_order(self) -> None:
        order = self._place.order()
        if order is None or order.number <= self._number:
            return
        self._number = order.number
        known = self._record
        if order.attempt == known.attempt and known.state in ("done", "failed"):
            self._say(Say(known.state, known.said, elsewhere=known.elsewhere), order)
            return
        self._do(self._life.ordered(order, time.monotonic()))

    # -- what it sees ---------------------------------------------------------------------------------

    def _look(self) -> None:
        self._bound_log()
        if self._unasked:
            self._ask()
        if self._unsaid:
            self._write_record()
        now = time.monotonic()
        if self._asked_at is not None and self._has_saved():
            self._asked_at = None
            self._do(self._life.saved(now))
        self._look_at_memory()
        if self._across is not None:
            self._look_across(self._across, now)
        if self._life.lives and self._is_over(now):
            nowhere = None if self._across is None else self._across.nowhere
            code, how = self._end()
            self._do(self._life.ended(code, how, now, nowhere))
        self._agent.look(now)

    def _end(self) -> tuple[int | None, str]:
        """Let go of a program that is over; return its exit code, and how it ended."""
        code = self._program.returncode if self._program is not None else None
        how = _how(code)
        if self._across is not None:
            code, how = (CANNOT, self._across.problem) if self._across.problem else (code, how)
            self._across.close()
        self._program, self._first, self._asked_at = None, processes.NOBODY, None
        self._told.clear()
        self._across, self._kill_at, self._unasked = None, None, False
        return code, how

    def _look_across(self, across: Across, now: float) -> None:
        """Begin once all hosts are there; when the first of all programs fails, end the others."""
        across.look(self._place.number(MET) == across.meeting.number, now)
        if not across.begun and not across.is_stopped and across.all_here():
            self._begin_across(across)
        if across.is_to_leave:
            across.is_to_leave = False
            self._do(self._life.hastens(LEAVE_S, now))
        code = None if self._program is None else self._program.poll()
        if code:
            across.fails(f"its program on host {self._host} {_how(code).removeprefix('it ')}")
            across.stop()
        elif code is not None and across.have_ended():
            across.stop()
        if across.problem and self._program is not None:
            if self._kill_at is None:
                self._kill_at = now + FAILED_S
                self._send(signal.SIGTERM)
            elif self._kill_at <= now:
                self._send(signal.SIGKILL)

    def _begin_across(self, across: Across) -> None:
        order = self._life.order
        assert order is not None
        (self._place.directory / MEETING).unlink(missing_ok=True)
        try:
            across.takes_seat()
            self._program = self._start_program(order, across)
        except (OSError, ValueError) as error:
            across.fails(f"it cannot be started: {error}")
            across.stop()
            return
        self._first = processes.First(self._program.pid, start_time(self._program.pid))
        across.begin()
        self._say(Say("running"))

    def _look_at_memory(self) -> None:
        """End a program that has more memory than its job may; tell the agent how much it has."""
        order = self._life.order
        if order is None or not order.cpus or not self._life.lives:
            self._watch_no_more()
            self._tell_memory(0)
            return
        if self._watch is None:
            self._watch = WatchAside(MemoryWatch(order.memory_gb, self._members), LOOK_S)
        self._watch.turn()
        self._tell_memory(self._watch.held)
        if self._watch.told:
            self._do(self._life.takes_too_much(self._watch.told))

    def _watch_no_more(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _tell_memory(self, held: int) -> None:
        if abs(held - self._told_memory) >= MEMORY_STEP or (not held and self._told_memory):
            with contextlib.suppress(OSError):
                self._place.set_number(MEMORY, held)
                self._told_memory = held

    def _members(self) -> list[int]:
        return processes.members(self._place.directory, self._first, known=self._told)

    def _is_over(self, now: float) -> bool:
        """Tell whether the program has ended; what it has left behind is ended with it."""
        if self._program is not None and self._program.poll() is None:
            return False
        left = self._members()
        if left and self._program is not None:
            processes.send(left, signal.SIGKILL)
        return not left and (self._across is None or self._across.is_over(now))

    def _has_saved(self) -> bool:
        """Tell whether what was asked for is saved: the program says so, or its file has come and settled."""
        if self._place.number(SAVED) >= self._asked:
            return True
        order = self._life.order
        if order is None or self._asked_at is None or self._place.number(LISTENS):
            return False
        try:
            changed_at = checkpoint_of(order.directory, order.job).stat().st_mtime
        except OSError:
            return False
        return self._asked_at <= changed_at <= time.time() - SETTLED_S

    # -- what it does ---------------------------------------------------------------------------------

    def _do(self, acts: list[Act]) -> None:
        for act in acts:
            match act:
                case Start(order):
                    self._start(order)
                case Ask():
                    self._ask()
                case End():
                    self._signal(signal.SIGTERM)
                case Kill():
                    self._signal(signal.SIGKILL)
                case Say():
                    self._say(act)

    def _signal(self, signum: signal.Signals) -> None:
        """End the program, here and on its other hosts."""
        if self._across is not None:
            self._across.stop()
        self._send(signum)

    def _send(self, signum: signal.Signals) -> None:
        pids = self._members()
        self._told = [processes.First(pid, start_time(pid)) for pid in pids]
        processes.send(pids, signum)

    def _start(self, order: Order) -> None:
        for name in (ASKED, SAVED, LISTENS, PROGRESS, MEETING, MET):
            (self._place.directory / name).unlink(missing_ok=True)
        try:
            if order.others:
                self._meet(order)
                return
            self._program = self._start_program(order)
        except (OSError, ValueError, ReplkernelError) as error:
            why = f"it cannot be started: {error}"
            self._say(Say("starting", why))
            self._do(self._life.ended(CANNOT, why, time.monotonic()))
            return
        self._first = processes.First(self._program.pid, start_time(self._program.pid))
        self._say(Say("running"))

    def _meet(self, order: Order) -> None:
        """Have launchers come from the other hosts: the agent tells the scheduler where to."""
        from replkernel.jobs.across import Across  # Its sockets are not for others to pay for.

        self._across = Across(order, os.environ, self._open_log())
        self._place.write(self._across.meeting)
        self._say(Say("starting", "it waits for its other hosts"))

    def _open_log(self) -> int:
        return os.open(
            self._place.directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )

    def _start_program(self, order: Order, across: Across | None = None) -> subprocess.Popen[bytes]:
        env = os.environ if across is None else {**across.variables(), **os.environ}
        self._watch_no_more()  # What is forked here has no other thread.
        seat, log = None if across is None else across.seat, self._open_log()
        try:
            return processes.start(order, env, self._place.directory, log, seat)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                os.write(log, f"it cannot be started: {error}\n".encode())
            raise
        finally:
            os.close(log)

    def _ask(self) -> None:
        """Ask for a checkpoint: by the file that the API looks at, by the signal where there is a handler."""
        self._asked = self._number
        again, self._unasked = self._unasked, False
        try:
            self._place.set_number(ASKED, self._asked)
        except OSError:
            self._unasked = True
        listening = [pid for pid in self._members() if processes.catches(pid, signal.SIGUSR1)]
        if not again:
            self._asked_at = time.time()
            processes.send(listening, signal.SIGUSR1)
        hears = bool(listening) or bool(self._place.number(LISTENS))
        self._do(self._life.heard(hears, time.monotonic()))

    def _say(self, word: Say, order: Order | None = None) -> None:
        order = order or self._life.order
        self._record = Record(
            self._number,
            order.attempt if order is not None else 0,
            word.state,
            word.said[:1000],
            *self._first,
            self._record.log_base,
            processes.boot(),
            word.without,
            word.elsewhere,
        )
        self._write_record()

    def _write_record(self) -> None:
        try:
            self._place.write(self._record)
            self._unsaid = False
        except OSError:
            self._unsaid = True
            return
        wake(self._place.directory.parent / WAKE)

    def _bound_log(self) -> None:
        """Copy a full log aside and empty it; everybody writes at its end, so nobody needs to know.

        What is written meanwhile is copied as well: the log is emptied right after nothing more was found.
        """
        log = self._place.directory / LOG
        with contextlib.suppress(OSError):
            size = log.stat().st_size
            if size <= LOG_BYTES_MAX:
                return
            aside = os.open(f"{log}.1", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(aside, "wb") as kept, log.open("r+b") as file:
                data, moved = file.read(), 0
                while data and moved <= ROLLED_BYTES_MAX:
                    kept.write(data[-LOG_BYTES_MAX:])
                    moved += len(data)
                    data = file.read()
                file.truncate(0)
            changed = {name: getattr(self._record, name) for name in Record.__struct_fields__}
            self._record = Record(**{**changed, "log_base": self._record.log_base + moved + len(data)})
            self._write_record()


def _how(code: int | None) -> str:
    if code is None:
        return "it ended while nobody watched it"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"


def main(directory: str, host: str) -> int:
    """Step out of whoever started us, take the lock, serve."""
    if os.fork():
        os._exit(0)
    os.setsid()
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    place = JobPlace(Path(directory))
    lock = os.open(place.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    Supervisor(place, host).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2]))
