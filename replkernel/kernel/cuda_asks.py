"""Who is about to start CUDA in a notebook that has no lease, and waits for one: processes, threads, C code.

The main thread gets the lease, for a cell that runs: a signal brings it here, out of a sleep or a wait too.
Law: a cell gets a lease for who came while it ran; who came before waits for a cell that has one. Whoever
waits takes no lock, and the handler tries again in a moment where the cell has a question of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from replkernel.agent.io.death import start_time
from replkernel.errors import NoLease, ReplkernelError
from replkernel.gpu import door
from replkernel.gpu.door import Asked, Door
from replkernel.kernel.hand_over import SIGNAL, is_safe
from replkernel.kernel.lease_in_cell import ELSEWHERE
from replkernel.state.process.own_threads import own_thread

log = logging.getLogger(__name__)

ASKED_BYTES_MAX = 4096
WAITING_MAX = 256
READ_LIMIT_S = 5.0
ACCEPT_AGAIN_S = 0.1
LOOK_S, LOOK_MAX_S = 0.02, 0.5
QUESTIONS = ("replkernel.kernel.asking", "replkernel.kernel.lease_in_cell", "replkernel.kernel.cuda_asks")
"""Below these the main thread has a question to the router under way."""
INPUT = "_input_request"
INTERRUPTED = "The wait for a GPU was interrupted."
MANY = f"More than {WAITING_MAX} processes of this notebook wait for a GPU."


class _Waiter:
    """One that waits; `fresh`: it came while this cell ran."""

    def __init__(self, asked: Asked) -> None:
        self.asked, self.fresh, self.told = asked, True, False
        self.answer, self.answered = "", threading.Event()

    def tell(self, answer: str) -> None:
        self.answer = answer
        self.answered.set()


class CudaAsks:
    """One kernel process's. `get` gets a lease for the cell that runs, on the main thread, or raises.

    `here` is what C code on the main thread asks; `moves` tells whether a lease would move state.
    """

    def __init__(
        self,
        get: Callable[[], None],
        here: Callable[[], None],
        moves: Callable[[], bool],
    ) -> None:
        self._get, self._here, self._moves = get, here, moves
        self._door: Door | None = None
        self._leased: tuple[str, ...] | None = None
        """What the running cell has; None: no cell runs, or nothing is leased."""
        self._waiting: list[_Waiter] = []
        self._fetching = False
        """Whether the main thread is at getting a lease, or waits for one off its GPUs."""
        self._path = ""
        self._let_in: dict[int, int] = {}
        """The processes that were let in to a GPU, and when each began."""

    # -- on the main thread ---------------------------------------------------------------------------

    def cell(self, gpus: tuple[str, ...] | None, path: str) -> bool:
        """Take note of what the cell that begins, or goes on, has; None: GPUs are for everybody.

        Return whether somebody may come to wait.
        """
        if self._door is None and gpus is not None:
            self._door = Door(self._asked_here)
        if self._door is None or not self._door.is_there:
            return False
        self._fetching = False
        self._door.stand(open_=gpus != ())
        if gpus is not None and not self._path:
            self._listen(path)
        door.announce(self._path if gpus is not None else "")
        self._leased = gpus
        return True

    def shut(self) -> Callable[[], Iterable[int]] | None:
        """Have whoever comes wait until `cell` opens it again: the one that runs leaves its GPUs.

        Return who is in; None: there is no door.
        """
        if self._door is None or not self._door.is_there:
            return None
        self._fetching, self._leased = True, ()
        self._door.stand(open_=False)
        return lambda: tuple(self._let_in)

    def over(self) -> None:
        """Take note that the cell has ended; who still waits does so for a cell that has a lease."""
        self._leased = None
        for waiter in self._waiting:
            waiter.fresh = False

    def rest(self, *, hidden: bool) -> None:
        """Take note that no GPU is to be had between cells, where that is so."""
        if self._door is not None:
            self._door.stand(open_=not hidden)

    def notice(self) -> str:
        """Say once who waits for a cell with a GPU."""
        fresh = [waiter for waiter in self._waiting if not waiter.told and not waiter.fresh]
        for waiter in fresh:
            waiter.told = True
        if not fresh:
            return ""
        names = ", ".join(f"{waiter.asked.pid} ({_name(waiter.asked.pid)})" for waiter in fresh[:5])
        return (
            f"Process {names}, which this notebook has started, waits for a GPU, and has one with the next "
            "cell that does: `%%gpu` at its top."
        )

    def visit(self, frame: FrameType | None) -> None:
        """Get a lease for the cell that runs, if somebody waits for one and the cell is at a place for it."""
        wanted = any(waiter.fresh and not waiter.answered.is_set() for waiter in self._waiting)
        if self._leased != () or not wanted or self._fetching or not self._may(frame):
            return
        self._fetching = True
        try:
            self._get()
        except ReplkernelError as error:
            self._refuse(str(error))
        except BaseException:
            self._refuse(INTERRUPTED)
            raise
        finally:
            self._fetching = False

    def _may(self, frame: FrameType | None) -> bool:
        return may_ask(frame) and (is_safe(frame) or not self._moves())

    def _refuse(self, why: str) -> None:
        for waiter in self._waiting:
            if waiter.fresh:
                waiter.tell(f"{door.NO} {why}")

    def _asked_here(self) -> int:
        """Have C code of this process wait, whatever thread it is on; return what `cuInit` is to return."""
        try:
            if threading.current_thread() is threading.main_thread():
                self._here()
            elif self._leased == ():
                said = self._await(Asked(os.getpid(), True, "-1"), lambda: self._leased is not None)
                if not said or said.startswith(door.NO):
                    raise NoLease(said.removeprefix(door.NO).strip() or ELSEWHERE)
            elif self._leased is None:
                raise NoLease(ELSEWHERE)
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            return door.NO_DEVICE
        except ReplkernelError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - the cell's own
            return door.NO_DEVICE
        except Exception:
            log.exception("CUDA is started without a lease")
        return door.OK

    # -- on other threads -----------------------------------------------------------------------------

    def _await(self, asked: Asked, there: Callable[[], bool]) -> str:
        """Return the answer, however long it takes; nothing where who asked is there no more."""
        waiter, look_s = _Waiter(asked), LOOK_S
        self._waiting.append(waiter)
        try:
            while there():
                self._let(asked)
                said = door.ruling(asked, self._leased)
                if said:
                    return said
                self._let_in.pop(asked.pid, None)
                if self._leased == () and waiter.fresh and not self._fetching:
                    signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
                if waiter.answered.wait(look_s):
                    return waiter.answer
                look_s = min(look_s * 1.5, LOOK_MAX_S)
            return ""
        finally:
            self._waiting.remove(waiter)

    def _let(self, asked: Asked) -> None:
        """Take note of a process before it is let in: who shuts the door after that knows of it."""
        if asked.pid == os.getpid() or door.ruling(asked, None):
            return
        if len(self._let_in) >= WAITING_MAX:
            for pid, began in list(self._let_in.items()):
                if start_time(pid) != began:
                    self._let_in.pop(pid, None)
        self._let_in[asked.pid] = start_time(asked.pid)

    def _listen(self, path: str) -> None:
        """Hear processes at a socket in the kernel's own directory."""
        Path(path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(WAITING_MAX)
        self._path = path
        own_thread(self._accept, "cuda-asks", (listener,)).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:  # There are no descriptors left for a moment.
                time.sleep(ACCEPT_AGAIN_S)
                continue
            own_thread(self._serve, "cuda-asked", (link,)).start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            link.settimeout(READ_LIMIT_S)
            asked = door.parse(link.makefile("r").readline(ASKED_BYTES_MAX))
            if asked is None:
                return
            link.setblocking(False)
            full = len(self._waiting) >= WAITING_MAX
            said = f"{door.NO} {MANY}" if full else self._await(asked, lambda: _is_there(link))
            link.settimeout(READ_LIMIT_S)
            link.sendall(f"{said}\n".encode() if said else b"")


def may_ask(frame: FrameType | None) -> bool:
    """Tell whether the main thread may ask its router in this frame: it asks nobody there already."""
    while frame is not None:
        asks = str(frame.f_globals.get("__name__", "")).startswith(QUESTIONS)
        if asks or frame.f_code.co_name == INPUT:
            return False
        frame = frame.f_back
    return True


def _is_there(link: socket.socket) -> bool:
    try:
        return bool(link.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return "?"
