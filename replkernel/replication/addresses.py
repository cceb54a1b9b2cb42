"""Raft addresses: hand out free ports, hold them until a member binds them, and say plainly when one is lost.

An address is the one under which other members reach it; where its host listens at another one, that is
`listens_at`. Law: no address is handed out twice while it is held.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import threading
import time

from replkernel.errors import SettingError
from replkernel.hosts.reach import LOOPBACK, Reach
from replkernel.replication.consensus import RaftAddressLost

BIND = "REPLKERNEL_BIND"
PORTS = "REPLKERNEL_PORTS"
SHOWN = "one that `ip address` shows"
TRIES_MAX = 128
HELD_MAX = 256
"""No more addresses than this are held at a time; the oldest one is let go."""
HOLD_S = 120.0
"""An address that no member has bound after this long is let go."""
CLAIM_S = 3.0
"""One that is taken is tried again for so long: a child of this process has it until its program runs."""

_lock = threading.Lock()
_held: dict[str, tuple[socket.socket, float]] = {}


def free_raft_address(host_ip: str = LOOPBACK, reach: Reach | None = None) -> str:
    """Return the address of a free TCP port, held for this process until a member binds it.

    Raises RaftAddressLost, which names the setting, when no port is free or the address is not ours.
    """
    reach = Reach(host_ip, host_ip) if reach is None else reach
    family = _family(reach.bind)
    default = (reach.port_first, reach.port_last) == (Reach().port_first, Reach().port_last)
    with _lock:
        _let_go_of_old(time.monotonic())
        problem, away = "", False
        for port in [*reach.ports(TRIES_MAX), *([0] if default else [])]:
            holder = socket.socket(family, socket.SOCK_STREAM)
            try:
                holder.bind((reach.bind, port))
            except OSError as error:
                holder.close()
                problem, away = error.strerror or str(error), error.errno == errno.EADDRNOTAVAIL
                continue
            address = f"{reach.advertise}:{holder.getsockname()[1]}"
            _held[address] = (holder, time.monotonic())
            return address
    ports = f"{reach.port_first}-{reach.port_last}"
    fix = f"set {BIND} to {SHOWN}" if away else f"set {PORTS} to a range with more ports that are free"
    raise RaftAddressLost(f"{reach.bind}:{ports}", problem, fix)


def listens_at(address: str, bind: str) -> str:
    """Return where a member listens that others reach at `address`; without `bind`, right there."""
    return f"{bind}:{address.rpartition(':')[2]}" if bind else address


def check_bind(host_ip: str) -> None:
    """Raise SettingError unless members of this machine can listen at `host_ip`."""
    try:
        with socket.socket(_family(host_ip), socket.SOCK_STREAM) as probe:
            probe.bind((host_ip, 0))
    except (OSError, RaftAddressLost) as error:
        fix = f"unset it, or set {BIND} to {SHOWN}"
        raise SettingError(BIND, host_ip, "not an address of this machine", fix) from error


def claim_raft_address(address: str, bind: str = "") -> None:
    """Let go of a held address so that a member can bind it (at `bind`, if given), and make sure that it can.

    Blocks for CLAIM_S at most. Raises RaftAddressLost with the system's reason when somebody else has it.
    """
    release_raft_address(address)
    host_ip, _, port = listens_at(address, bind).rpartition(":")
    deadline = time.monotonic() + CLAIM_S
    while True:
        try:
            with socket.socket(_family(host_ip), socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host_ip, int(port)))
            return
        except (OSError, ValueError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if not taken or time.monotonic() >= deadline:
                raise RaftAddressLost(address, getattr(error, "strerror", None) or str(error)) from error
        time.sleep(0.01)


def release_raft_address(address: str) -> None:
    """Let go of a held address; nothing happens when it is not held."""
    with _lock:
        held = _held.pop(address, None)
    if held is not None:
        held[0].close()


def _let_go_of_old(now: float) -> None:
    for address, (holder, since) in list(_held.items()):
        if now - since > HOLD_S or len(_held) >= HELD_MAX:
            holder.close()
            del _held[address]


def _family(host_ip: str) -> socket.AddressFamily:
    try:
        version = ipaddress.ip_address(host_ip).version
    except ValueError as error:
        raise RaftAddressLost(f"{host_ip}:*", "not an IP address of this machine") from error
    return socket.AF_INET if version == 4 else socket.AF_INET6
