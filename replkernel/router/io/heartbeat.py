"""The heartbeat: whatever arrives goes back at once, from a thread that holds neither the GIL nor a decision.

Law: it runs on a context of its own, so that nothing the router does can delay it.
"""

from __future__ import annotations

import threading

import zmq


def start_heartbeat(socket: zmq.Socket[bytes]) -> threading.Thread:
    """Echo everything that arrives on a bound ROUTER socket until its context ends."""
    thread = threading.Thread(target=_echo, args=(socket,), name="heartbeat", daemon=True)
    thread.start()
    return thread


def _echo(socket: zmq.Socket[bytes]) -> None:
    while True:
        try:
            zmq.proxy(socket, socket)
        except zmq.ZMQError as error:
            if error.errno in (zmq.ETERM, zmq.ENOTSOCK):
                socket.close(linger=0)
                return
