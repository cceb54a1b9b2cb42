"""How other machines reach this one: the address to listen at, the address that they use, the ports.

Pure, and light: settings are read into it. Law: a host that is not told otherwise is reached by nobody else.
"""

from __future__ import annotations

import random

import msgspec

PORT_FIRST = 20_000
PORT_LAST = 32_700
"""Below what the system gives to outgoing connections: a port must be free again after a restart."""
PORT_TRIES_MAX = 512
LOOPBACK = "127.0.0.1"


class Reach(msgspec.Struct, frozen=True):
    """Where a host listens, under which address others reach it, and which ports it uses."""

    bind: str = LOOPBACK
    advertise: str = LOOPBACK
    port_first: int = PORT_FIRST
    port_last: int = PORT_LAST

    @property
    def spans(self) -> bool:
        """Tell whether other machines are to reach this one."""
        import ipaddress

        return not ipaddress.ip_address(self.advertise).is_loopback

    def ports(self, tries: int = PORT_TRIES_MAX) -> list[int]:
        """Return ports of the range to be tried, in an order of chance."""
        everything = range(self.port_first, self.port_last + 1)
        return random.sample(everything, min(tries, len(everything)))
