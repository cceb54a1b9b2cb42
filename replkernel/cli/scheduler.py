"""`replkernel scheduler`: become the scheduler's service, which is a package of its own.

`replkernel` never imports the scheduler: it is started by name.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

SERVICE = "replkernel_server.service"


def run_scheduler(arguments: Sequence[str]) -> int:
    """Replace this process by the service; return only if the service is not installed."""
    if importlib.util.find_spec(SERVICE.partition(".")[0]) is None:
        print(
            "The scheduler's service (replkernel_server) is not installed: reinstall with `pip install "
            "--force-reinstall replkernel`.",
            file=sys.stderr,
        )
        return 1
    os.execv(sys.executable, [sys.executable, "-m", SERVICE, *arguments])
