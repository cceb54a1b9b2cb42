"""The zygote: a process with everything imported, from which kernel processes are forked in milliseconds.

`python -m replkernel.agent.io.zygote [package …]`, child of the agent, which it hears on descriptor 3.
Law: one thread, no ZMQ context, no CUDA; it ends when its agent does, and its children do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from replkernel.agent.io.spawning_place import ZYGOTE_FD, zygote_idle_s
from replkernel.agent.io.zygote_wire import (
    ForkKernel,
    ForkRefused,
    FrameReader,
    KernelExited,
    KernelForked,
    ZygoteReady,
    request_decoder,
    send_frame,
)
from replkernel.gpu.seen import devices_open

if TYPE_CHECKING:
    from replkernel.kernel.birth import Birth

INLINE = "module://matplotlib_inline.backend_inline"
"""The MPLBACKEND that ipykernel sets unless the user has: matplotlib reads it once, when it is imported."""

BUSY_AFTER_S = 10.0
BUSY_QUIET_MS = 100
"""Where somebody has wanted something all the time for so long, a shorter pause than asked for has to do."""

_READ_BYTES = 256 * 1024


def main(packages: list[str]) -> None:
    """Serve births until the agent goes; in a forked child, become the kernel process."""
    link = socket.socket(fileno=ZYGOTE_FD)
    link.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # Imports make next to no garbage, and looking for it takes a tenth of their time.
    _forget_start_directory()
    skipped = _preload(packages)
    _refuse_what_cannot_be_forked(packages)
    send_frame(link, ZygoteReady(skipped))
    birth = _Spawner(link, packages).serve()
    if birth is not None:
        from replkernel.kernel.process import run_kernel

        run_kernel(birth)


def _forget_start_directory() -> None:
    """Take the directory that ``-m`` put there off the search path: kernels must not import from it."""
    if sys.path and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]


def _preload(packages: list[str]) -> dict[str, str]:
    from replkernel.kernel.ipython_at_hand import ipython_at_hand
    from replkernel.kernel.preload import look_ahead, preload

    preload()
    skipped: dict[str, str] = {}
    os.environ["MPLBACKEND"] = os.environ.get("MPLBACKEND") or INLINE
    for name in packages:
        try:
            with ipython_at_hand():
                importlib.import_module(name)
        except Exception as error:
            skipped[name] = f"{type(error).__name__}: {error}"
    if packages:
        look_ahead()
    gc.freeze()
    return skipped


def cannot_be_forked(threads: Sequence[str], devices: frozenset[str] | None, packages: list[str]) -> str:
    """Say why a process with these other threads and open devices must not be forked, or nothing."""
    found = [f"{name} is open" for name in sorted(f"/dev/{each}" for each in devices or ())]
    found += [f"thread {name} runs" for name in threads]
    if not found:
        return ""
    named = f"REPLKERNEL_PRELOAD={','.join(packages)}" if packages else "what is preloaded"
    return (
        f"{' and '.join(found)} after {named}, and neither lives in a forked process: kernels are started "
        "without a zygote, and slower. Take out the package that does so when it is imported."
    )


def _refuse_what_cannot_be_forked(packages: list[str]) -> None:
    """End, with the reason in the log, where a fork would have a dead thread or a GPU that is not its own."""
    main = threading.main_thread()
    threads = [each.name for each in threading.enumerate() if each is not main]
    why = cannot_be_forked(threads, devices_open(), packages)
    if why:
        sys.exit(why)


def _preload_more() -> bool:
    from replkernel.kernel.preload import preload_more

    gc.enable()
    preload_more()
    _share_memory()
    return True


def _practise(wanted: Callable[[], bool]) -> bool:
    from replkernel.kernel.preload import practise

    gc.enable()
    done = practise(wanted)
    if done:
        _share_memory()
    else:  # Somebody waits.
        gc.disable()
        gc.freeze()
    return done


def _share_memory() -> None:
    """Tidy the heap and leave it as it is from now on, so that children share its pages."""
    gc.unfreeze()
    gc.collect()
    gc.disable()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def quiet_ms(age_s: float, idle_s: float) -> int | None:
    """Return how long a pause has to be for the rest to be imported, so long after the start; None: never."""
    if not idle_s:
        return None
    asked_ms = round(idle_s * 1000)
    return asked_ms if age_s < BUSY_AFTER_S else min(asked_ms, BUSY_QUIET_MS)


def _note(signum: int, frame: object) -> None:
    """Let the signal wake the poll; a handler that does nothing is needed for that."""


class _Spawner:
    """The zygote's loop: births in, forks and exits out."""

    def __init__(self, link: socket.socket, packages: list[str]) -> None:
        self._link, self._packages = link, packages
        self._reader = FrameReader()
        self._wake, self._wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _note)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)

    def serve(self) -> Birth | None:
        """Return None when the agent is gone, or (in a new child) the birth that it is to become."""
        poller = select.poll()
        poller.register(self._link, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        began, idle_s = time.monotonic(), zygote_idle_s(os.environ)
        left: list[Callable[[], bool]] = [_preload_more, partial(_practise, self._wanted)]
        while True:
            ready = poller.poll(quiet_ms(time.monotonic() - began, idle_s) if left else None)
            while not ready and left and left[0]():
                del left[0]
            for fd, _ in ready:
                if fd == self._wake:
                    os.read(self._wake, 4096)
                    self._reap()
                    continue
                data = self._link.recv(_READ_BYTES)
                if not data:
                    return None
                for body in self._reader.feed(data):
                    birth = self._fork(request_decoder.decode(body))
                    if birth is not None:
                        return birth

    def _wanted(self) -> bool:
        """Tell whether the agent has sent something; the pipe also hears of the signal of who looks."""
        poller = select.poll()
        poller.register(self._link, select.POLLIN)
        return bool(poller.poll(0))

    def _fork(self, request: ForkKernel) -> Birth | None:
        from replkernel.kernel.birth import decode_birth

        _refuse_what_cannot_be_forked(self._packages)
        try:
            birth = decode_birth(request.birth)
            pid = os.fork()
        except (OSError, ValueError) as error:
            send_frame(self._link, ForkRefused(request.tag, f"{type(error).__name__}: {error}"))
            return None
        if pid == 0:
            self._leave()
            return birth
        send_frame(self._link, KernelForked(request.tag, pid))
        return None

    def _leave(self) -> None:
        """Shed everything of the zygote in a new child."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._link.close()
        os.close(self._wake)
        os.close(self._wake_end)
        gc.enable()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            send_frame(self._link, KernelExited(pid, status, usage.ru_maxrss, time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1:])
