"""Ports for servers whose port a test must know before they listen, or keep while they are away.

Law: a port is given once, and outside of those that the system or an agent chooses itself: a server that
starts later, or again, finds it free, whatever other tests and other runs on this machine open meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from replkernel.hosts.reach import PORT_FIRST, PORT_LAST

LEAST = 10_240
"""Ports below are those of well-known services."""
PLACE = Path(tempfile.gettempdir()) / f"replkernel-test-ports-{os.getuid()}.lock"
"""Its byte at a port is locked by the process that has the port: the system lets go of it when that ends."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_given: set[int] = set()


def free_port() -> int:
    """Return a loopback port that nobody has, and that no other test gets while this process lives."""
    for number in _candidates():
        with contextlib.suppress(OSError), socket.socket() as probe:
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            probe.bind(("127.0.0.1", number))
            _given.add(number)
            return number
    raise OSError("no port is free for a test's server")


@functools.cache
def _locks() -> int:
    """Return the one descriptor of `PLACE`: to close another one would unlock all."""
    return os.open(PLACE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def free_ports(count: int) -> list[int]:
    """Return so many distinct ones."""
    return [free_port() for _ in range(count)]


def of_the_system() -> range:
    """Return the ports that the system gives to those who ask for any."""
    first, last = (int(word) for word in _RANGE.read_text().split())
    return range(first, last + 1)


def _candidates() -> Iterator[int]:
    taken = _given | set(of_the_system()) | set(range(PORT_FIRST, PORT_LAST + 1))
    numbers = [number for number in range(LEAST, 1 << 16) if number not in taken]
    random.shuffle(numbers)
    yield from numbers
