"""Plays whoever reaches a port and has no secret: silent connections, held or made again and again.

Runs as a process of its own, as another Unix user where that is allowed:
`python -m tests.security.flood UID HELD ADDRESS…`. Prints `ready` once each address has had HELD connections,
then goes on until it is ended: whatever is closed is opened anew. HELD of zero makes connections as fast as
it can and holds the last 200 of them.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - while its file can be read: another user may not enter this home
import os
import select
import socket
import sys
import time
from collections import deque

STORM_HELD = 200
PAUSE_S = 0.003
"""Not to fill the short queue of those whom nobody has accepted yet: they would only wait in it."""


def place_of(address: str) -> tuple[str, int]:
    """Return host and port."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def opened(address: str) -> socket.socket | None:
    """Connect without waiting for anybody's answer."""
    made = socket.socket()
    made.setblocking(False)
    try:
        made.connect(place_of(address))
    except BlockingIOError:
        return made
    except OSError:
        made.close()
        return None
    return made


def closed(held: list[socket.socket]) -> set[socket.socket]:
    """Return those that the other side gave up."""
    poll = select.poll()
    by_number = {each.fileno(): each for each in held}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return {by_number[number] for number, event in poll.poll(50) if event}


def hold(addresses: list[str], count: int) -> None:
    """Hold `count` silent connections to each address."""
    held: dict[str, list[socket.socket]] = {address: [] for address in addresses}
    told = False
    while True:
        for address, mine in held.items():
            gone = closed(mine)
            for each in gone:
                each.close()
            mine[:] = [each for each in mine if each not in gone]
            for _ in range(count - len(mine)):
                with contextlib.suppress(OSError):
                    mine.append(socket.create_connection(place_of(address), timeout=2))
                time.sleep(PAUSE_S)
        if not told:
            time.sleep(0.2)
            print("ready", flush=True)
            told = True


def storm(addresses: list[str]) -> None:
    """Open connections as fast as this process can."""
    held: deque[socket.socket] = deque()
    print("ready", flush=True)
    while True:
        for address in addresses:
            made = opened(address)
            if made is not None:
                held.append(made)
        while len(held) > STORM_HELD:
            held.popleft().close()


def main(uid: str, count: str, *addresses: str) -> None:
    """Become `uid`, then play."""
    if os.getuid() == 0:
        os.setuid(int(uid))
    if int(count):
        hold(list(addresses), int(count))
    else:
        storm(list(addresses))


if __name__ == "__main__":
    main(*sys.argv[1:])
