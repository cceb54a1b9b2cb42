"""Plays a client without the key that announces a huge frame to a ZMQ listener, and sends what it can of it.

`python -m tests.security.hoard HOST PORT MECHANISM[:KIND] MEBIBYTES CONNECTIONS`. It holds what it has begun
for ten seconds, or until its connections are closed, and prints how many bytes it got rid of.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time

LARGE_COMMAND, LARGE_MESSAGE = 0x06, 0x02
PIECE = b"\0" * 1024 * 1024


def greeting(mechanism: str) -> bytes:
    """Return the 64 bytes with which a ZMTP 3.0 connection begins."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.encode().ljust(20, b"\0") + bytes(32)


def ready(kind: str) -> bytes:
    """Return the command with which a socket of some kind is ready where there is no key."""
    said = b"\x05READY\x0bSocket-Type" + struct.pack("!I", len(kind)) + kind.encode()
    return b"\x04" + bytes([len(said)]) + said


def announce(host: str, port: int, mechanism: str, size: int) -> socket.socket:
    """Connect, greet, and say that a frame of `size` bytes follows."""
    made = socket.create_connection((host, port), timeout=5)
    mechanism, _, kind = mechanism.partition(":")
    made.sendall(greeting(mechanism))
    if kind:
        made.sendall(ready(kind))
        made.sendall(struct.pack("!BQ", LARGE_MESSAGE, size))
    else:
        made.sendall(struct.pack("!BQ", LARGE_COMMAND, size))
    made.settimeout(0.5)
    return made


def main(host: str, port: str, mechanism: str, mebibytes: str, connections: str) -> None:
    """Send all but the last piece of each frame."""
    size, sent = int(mebibytes) * len(PIECE), 0
    made = [announce(host, int(port), mechanism, size) for _ in range(int(connections))]
    left = {each: int(mebibytes) - 1 for each in made}
    while any(left.values()):
        for each in made:
            with contextlib.suppress(TimeoutError):
                try:
                    if left[each]:
                        sent += each.send(PIECE)
                        left[each] -= 1
                except (ConnectionError, BrokenPipeError):
                    left[each] = 0
    ends_at = time.monotonic() + 10
    for each in made:
        with contextlib.suppress(OSError):
            while time.monotonic() < ends_at and each.recv(65_536):
                pass
    print(sent)


if __name__ == "__main__":
    main(*sys.argv[1:])
