"""`replkernel drain` and `undrain`: a host of the scheduler's is emptied, or used again.

Law: it only asks; what the scheduler refuses is told in its own words.
"""

from __future__ import annotations

import os
import urllib.parse

from replkernel.errors import ReplkernelError
from replkernel.leasing.asking import Bounds, NoAnswer, ask, explained
from replkernel.leasing.finding import DEFAULT_URL, find_scheduler, token_for

BOUNDS = Bounds(10.0, 30.0, 64 * 1024)


def run_draining(host: str, *, drained: bool) -> int:
    """Have a host emptied, or used again; return the exit code."""
    if not host:
        raise ReplkernelError("Name the host as `replkernel status` shows it.")
    url = find_scheduler(os.environ)[0] or DEFAULT_URL
    token = token_for(url, os.environ)
    path = f"/api/v1/hosts/{urllib.parse.quote(host, safe='')}/draining"
    try:
        ask(url, token, path, BOUNDS, "POST" if drained else "DELETE")
    except NoAnswer as error:
        told = error.said if error.code != 401 else ""
        raise ReplkernelError(told or explained(url, os.environ, error)) from error
    if drained:
        print(
            f"Nothing new is leased on {host}, until `replkernel undrain {host}`; notebooks' replicas move "
            "to hosts that have none of theirs. `replkernel status` tells which are still there, and why."
        )
    else:
        print(f"{host} is used again.")
    return 0
