"""Sockets for many notebooks: ZeroMQ gives a server 1,023, and a notebook in a page takes seven."""

from __future__ import annotations

import zmq

SOCKETS_MAX = 16_384
"""Room for 2,300 notebooks on one server; a quarter of what ZeroMQ can have, in 200 KB of memory."""


def allow_sockets(kernels: object) -> None:
    """Let a kernel manager's context have `SOCKETS_MAX` sockets, before its first one; more stay allowed.

    Without them a start fails after its process has been started: it runs on, and belongs to no notebook.
    """
    context = getattr(kernels, "context", None)
    if isinstance(context, zmq.Context) and context.get(zmq.MAX_SOCKETS) < SOCKETS_MAX:
        context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
