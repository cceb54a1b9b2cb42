"""How a command of the simulator ends: its exit code, and a sentence instead of a traceback."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

from replkernel_scheduler.sim.errors import SimulationError


def exit_code(command: Callable[[], int], where: object = None) -> int:
    """Run a command and return its exit code; `where` is what it writes, if a full disk is to be told so."""
    try:
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
        sys.stderr.write(f"{where} cannot be written: {error}.\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return code
