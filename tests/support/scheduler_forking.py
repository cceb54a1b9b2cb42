"""`python -m tests.support.scheduler_forking FD`: forks schedulers for tests, until the socket FD is closed.

A request is JSON (arguments, environment, directory) with three descriptors: of the output, of the errors and
of what the scheduler's number is told on, and its exit code once it has ended, a line each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from replkernel_server import service
from sqlalchemy.dialects import sqlite

assert sqlite, "The journal's; SQLAlchemy imports it at its first use."
REQUEST_BYTES_MAX = 1 << 20


def serve(link: socket.socket) -> int:
    """Fork whenever asked, until nobody asks; return the exit code, also a forked scheduler's."""
    told_on: dict[int, int] = {}

    def tell_ends(*_: Any) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                _tell(told_on.pop(ended[0]), os.waitstatus_to_exitcode(ended[1]), last=True)

    signal.signal(signal.SIGCHLD, tell_ends)
    while True:
        request, descriptors, _, _ = socket.recv_fds(link, REQUEST_BYTES_MAX, 3)
        if not request:
            return 0
        output, errors, told = descriptors
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        if not (pid := os.fork()):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            link.close()
            for descriptor in (told, *told_on.values()):
                os.close(descriptor)
            return _become_scheduler(json.loads(request), output, errors)
        told_on[pid] = told
        _tell(told, pid, last=False)
        os.close(output)
        os.close(errors)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _tell(told: int, number: int, *, last: bool) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(told, b"%d\n" % number)
    if last:
        os.close(told)


def _become_scheduler(asked: dict[str, Any], output: int, errors: int) -> int:
    os.setsid()
    for descriptor, standard in ((output, 1), (errors, 2)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    return service.main(asked["arguments"])


if __name__ == "__main__":
    raise SystemExit(serve(socket.socket(fileno=int(sys.argv[1]))))
