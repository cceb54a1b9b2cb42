"""How a command of the simulator ends: its exit code, and a sentence instead of a traceback.

Law: whoever ends it (Ctrl-C, SIGTERM, a terminal that goes), its temporary files and its processes go too.
"""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from replkernel_scheduler.sim.errors import SimulationError

SIGNALLED = 128
"""What the number of a signal is added to for an exit code."""


class Ended(BaseException):
    """Somebody ended the command with a signal; `code` is its exit code."""

    def __init__(self, number: int) -> None:
        """Keep the code."""
        self.code = SIGNALLED + number
        super().__init__(self.code)


def exit_code(command: Callable[[], int], where: object = None) -> int:
    """Run a command and return its exit code; `where` is what it writes, if a full disk is to be told so."""
    try:
        with _signals():
            code = command()
            sys.stdout.flush()
    except SimulationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except BrokenPipeError:
        sys.stdout = io.StringIO()  # The reader (`| head`) has gone: what is left is for nobody.
        return 0
    except OSError as error:
        if where is None:
            raise
        sys.stderr.write(f"{where} cannot be written: {error.strerror or error}.\n")
        return 1
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT
    except Ended as ended:
        return ended.code
    return code


@contextmanager
def _signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP unwind the command as Ctrl-C does, unless they mean something else already."""
    taken = []
    with suppress(ValueError):  # Only a main thread hears of signals.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    raise Ended(number)
