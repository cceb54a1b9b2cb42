"""Raft addresses: hand out free ports, hold them until a member binds them, and say plainly when one is lost.

Ports are taken below the range that the system gives to outgoing connections, because a member must find
its port free again after a restart. Law: no address is handed out twice while it is held.
"""

from __future__ import annotations

import ipaddress
import random
import socket
import threading
import time

from replkernel.errors import SettingError
from replkernel.replication.consensus import RaftAddressLost

BIND = "REPLKERNEL_BIND"
PORT_FIRST = 20_000
PORT_LAST = 32_700
TRIES_MAX = 128
HELD_MAX = 256
"""No more addresses than this are held at a time; the oldest one is let go."""
HOLD_S = 120.0
"""An address that no member has bound after this long is let go."""

_lock = threading.Lock()
_held: dict[str, tuple[socket.socket, float]] = {}


def free_raft_address(host_ip: str = "127.0.0.1") -> str:
    """Return ``host_ip:port`` of a free TCP port, held for this process until a member binds it.

    Raises RaftAddressLost when this machine does not have `host_ip`, or no port of it is free.
    """
    family = _family(host_ip)
    with _lock:
        _let_go_of_old(time.monotonic())
        problem = ""
        for attempt in range(TRIES_MAX):
            last = attempt == TRIES_MAX - 1
            port = 0 if last else random.randint(PORT_FIRST, PORT_LAST)  # noqa: S311 - not a secret
            holder = socket.socket(family, socket.SOCK_STREAM)
            try:
                holder.bind((host_ip, port))
            except OSError as error:
                holder.close()
                problem = error.strerror or str(error)
                continue
            address = f"{host_ip}:{holder.getsockname()[1]}"
            _held[address] = (holder, time.monotonic())
            return address
    raise RaftAddressLost(f"{host_ip}:*", problem)


def check_bind(host_ip: str) -> None:
    """Raise SettingError unless members of this machine can listen at `host_ip`."""
    try:
        with socket.socket(_family(host_ip), socket.SOCK_STREAM) as probe:
            probe.bind((host_ip, 0))
    except (OSError, RaftAddressLost) as error:
        fix = f"unset it, or set {BIND} to one that `ip address` shows"
        raise SettingError(BIND, host_ip, "not an address of this machine", fix) from error


def claim_raft_address(address: str) -> None:
    """Let go of a held address so that a member can bind it, and make sure that it can.

    Raises RaftAddressLost with the system's reason when somebody else has it.
    """
    release_raft_address(address)
    host_ip, _, port = address.rpartition(":")
    probe = socket.socket(_family(host_ip), socket.SOCK_STREAM)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host_ip, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        raise RaftAddressLost(address, getattr(error, "strerror", None) or str(error)) from error
    finally:
        probe.close()


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
