"""From a birth to a running kernel: the steps between the zygote's fork and ipykernel's event loop.

Law: when `run_kernel` is called the process has one thread, a session of its own and no ZMQ context; what the
zygote or an interpreter's start left in it is replaced here, and the process never returns to its caller.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from replkernel.gpu import door_library
from replkernel.kernel.birth import Birth
from replkernel.state.process.parts import reseed_after_fork

LOG_MODE = 0o600
_NOT_INHERITED = ("JPY_PARENT_PID", "JPY_INTERRUPT_EVENT")
_DEFAULT_SIGNALS = (
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)


def run_kernel(birth: Birth) -> NoReturn:
    """Become the kernel process of `birth` and end with it."""
    code = 1
    try:
        _serve(birth)
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:
        logging.getLogger(__name__).exception("The kernel process failed")
    finally:
        _end(code)


def _serve(birth: Birth) -> None:
    redirect_output(birth.log_path)
    keep_log(birth.log_path)
    reset_signals()
    notices = adopt_surroundings(birth)
    reseed_after_fork()
    from replkernel.kernel.app import ReplicaApp

    app = ReplicaApp.instance()
    app.birth = birth
    app.initialize(list(birth.spec.argv_extra))
    app.kernel.replica.notices.extend(notices)
    app.start()


def redirect_output(log_path: str) -> None:
    """Send descriptors 1 and 2 to the process's log file, and read nothing from descriptor 0."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    log_fd = os.open(log_path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, LOG_MODE)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null_fd, 0), (log_fd, 1), (log_fd, 2)):
        os.dup2(source, target)
    for fd in {log_fd, null_fd} - {0, 1, 2}:
        os.close(fd)


def keep_log(log_path: str) -> None:
    """Write replkernel's own log to the process's log file, for stderr is the notebook's from now on."""
    own = logging.getLogger("replkernel")
    own.propagate = False
    handler = _LogFile(log_path) if log_path else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    own.addHandler(handler)


class _LogFile(logging.FileHandler):
    """A log file that is done without when it cannot be written: a full disk is no news for the notebook.

    Nor may it keep the process from ending when its directory is gone already.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or nothing."""
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say nothing."""


def reset_signals() -> None:
    """Handle signals as a newly started interpreter does."""
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def adopt_surroundings(birth: Birth) -> list[str]:
    """Take over environment, directory and arguments; return notices for the user."""
    preloads = os.environ.get(door_library.PRELOAD, "")
    os.environ.clear()
    os.environ.update({name: value for name, value in birth.spec.env.items() if name not in _NOT_INHERITED})
    door_library.carry(preloads, os.environ)
    time.tzset()
    notices = _change_directory(birth.spec.cwd)
    import ipykernel_launcher  # type: ignore[import-untyped]

    sys.argv[:] = [ipykernel_launcher.__file__, "-f", birth.spec.connection_file]
    return notices


def _change_directory(cwd: str) -> list[str]:
    try:
        os.chdir(cwd)
    except OSError as error:
        home = os.path.expanduser("~")
        os.chdir(home if os.path.isdir(home) else "/")
        why = error.strerror or type(error).__name__
        return [
            f"The directory {cwd} cannot be used on this host ({why}); the notebook runs in {os.getcwd()}."
        ]
    return []


def _end(code: int) -> NoReturn:
    """End as an interpreter does, but never in the frames of whoever called us."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        if not _driver_has_gpus():
            gc.collect()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def _driver_has_gpus() -> bool:
    """Tell whether the CUDA driver has the process's state: who lets go of an event then waits for ever."""
    driver = sys.modules.get("replkernel.gpu.driver")
    return driver is not None and bool(vars(driver)["has_this_process"]())
