"""`replkernel loadtest`: become the load test, which belongs to the server's side.

`replkernel` never imports the server's side: it is started by name.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

LOADTEST = "replkernel_server.loadtest"


def run_loadtest(arguments: Sequence[str]) -> int:
    """Replace this process by the load test; return only if it is not installed."""
    if importlib.util.find_spec(LOADTEST.partition(".")[0]) is None:
        print(
            "The load test (replkernel_server) is not installed: reinstall with `pip install "
            "--force-reinstall replkernel`.",
            file=sys.stderr,
        )
        return 1
    os.execv(sys.executable, [sys.executable, "-m", LOADTEST, *arguments])
