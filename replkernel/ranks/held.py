"""A job's program on a host that is not its first: it ends with whoever started it.

`python -m replkernel.ranks.held PARENT COMMAND…`
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CANNOT = 127


def ends_with(parent: int) -> bool:
    """Have this process end when its parent does; tell whether that is there still."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def main(parent: int, command: list[str]) -> int:
    """Become the program; return the exit status where that cannot be."""
    if not ends_with(parent):
        return 1
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"it cannot be started: {error}\n")
        return CANNOT


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
