"""A kernel's ports, bound by whoever launches it and handed to the router as sockets that listen already.

Between the choice of a port and its use somebody else's connection can be given it. Law: the launcher holds
the ports until the router has them; the router hands them on to nobody, and uses none that is not what it is
called. The standard library only, imported when asked: the router reads this before it does anything.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False  # As typing's own, whose import takes as long as all that is done here.
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Mapping, MutableMapping

GIVEN_PORTS = "REPLKERNEL_GIVEN_PORTS"
"""In the router's environment: `shell_port=11 iopub_port=12`, the descriptors of what listens."""
GIVEN_MAX = 16
BACKLOG = 100
"""So many connections of one port wait for the router to come."""


class HeldPorts:
    """Ports of this machine's address `ip` that nobody else can have while this lives."""

    def __init__(self, ip: str, numbers: Mapping[str, int]) -> None:
        """Bind every port, a number of 0 to any that is free; raises OSError when one is taken."""
        self._sockets: dict[str, socket.socket] = {}
        try:
            for name, number in numbers.items():
                self._sockets[name] = _listen(ip, number)
        except BaseException:
            self.close()
            raise

    @property
    def numbers(self) -> dict[str, int]:
        """Return the number of each port."""
        return {name: held.getsockname()[1] for name, held in self._sockets.items()}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return what the router is to inherit."""
        return tuple(held.fileno() for held in self._sockets.values())

    @property
    def text(self) -> str:
        """Return what GIVEN_PORTS tells the router."""
        return " ".join(f"{name}={held.fileno()}" for name, held in self._sockets.items())

    def close(self) -> None:
        """Let go of the ports, or leave them to the router that has inherited them."""
        for held in self._sockets.values():
            held.close()
        self._sockets.clear()


def take_given(env: MutableMapping[str, str]) -> dict[str, int]:
    """Return the descriptors that the launcher gave, by the ports' names; no child process gets them."""
    given: dict[str, int] = {}
    for part in env.pop(GIVEN_PORTS, "").split()[:GIVEN_MAX]:
        name, _, number = part.partition("=")
        with contextlib.suppress(ValueError, OSError, OverflowError):
            os.set_inheritable(int(number), False)
            given[name] = int(number)
    return given


def listens_at(descriptor: int, number: int) -> bool:
    """Tell whether a descriptor is a socket that listens at the port `number`."""
    import socket

    try:
        given = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return bool(listens) and given.getsockname()[1] == number
    except (OSError, IndexError, TypeError):
        return False
    finally:
        given.detach()


def close_given(descriptors: Iterable[int]) -> None:
    """Close descriptors that nobody is going to use."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _listen(ip: str, number: int) -> socket.socket:
    import socket

    family, _, _, _, address = socket.getaddrinfo(ip, number, type=socket.SOCK_STREAM)[0]
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        if number:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setblocking(False)
        held.bind(address)
        # Set in any case, or what lingers of this router's connections keeps the port from the next router. A
        # port that the system chooses is bound without, so that nobody at all has it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.listen(BACKLOG)
    except BaseException:
        held.close()
        raise
    return held
