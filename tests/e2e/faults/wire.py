"""The network between the hosts: each packet passes here, and is kept, dropped or delayed.

A host's only way to another one is a TUN device whose other end is held here, so nothing of the system's own
network is touched. Law: `Links` decides and knows no clock; `Wire` reads, waits and writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PACKET_BYTES_MAX = 65_536
WAITING_MAX = 10_000
"""No more packets are under way; more are dropped, as a full queue does."""

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


@dataclass(slots=True)
class Link:
    """One direction between two hosts."""

    cuts: int = 0
    delay_s: float = 0.0
    loss: float = 0.0
    jitter_s: float | None = None
    """A packet takes so much more or less than `delay_s`, by chance; None: half of it."""


@dataclass(slots=True)
class Links:
    """All directions, and what happens to a packet that takes one."""

    chance: random.Random
    links: dict[tuple[str, str], Link] = field(default_factory=dict)

    def link(self, source: str, target: str) -> Link:
        """Return one direction."""
        return self.links.setdefault((source, target), Link())

    def verdict(self, source: str, target: str) -> float | None:
        """Return how long the next packet is under way, or None when it gets lost."""
        link = self.link(source, target)
        if link.cuts or (link.loss and self.chance.random() < link.loss):
            return None
        jitter_s = link.delay_s / 2 if link.jitter_s is None else link.jitter_s
        return max(0.0, link.delay_s + self.chance.uniform(-jitter_s, jitter_s)) if link.delay_s else 0.0

    def heal(self) -> None:
        """Make every direction whole and quick."""
        self.links.clear()


class Wire:
    """The devices of all hosts, and a thread that carries packets between them."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.lock = threading.Lock()
        """Held by who changes `links`."""
        self._devices: dict[int, str] = {}
        self._by_address: dict[bytes, tuple[str, int]] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._order = 0
        self._taps: list[Callable[[str, str, bytes], None]] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)

    def add(self, host: str, address: str, device: int) -> None:
        """Take in the open TUN device of a host."""
        os.set_blocking(device, False)
        self._devices[device] = host
        self._by_address[bytes(int(part) for part in address.split("."))] = (host, device)

    def hosts(self) -> list[str]:
        """Return the names of those whose devices are here."""
        return list(self._devices.values())

    def tap(self, listener: Callable[[str, str, bytes], None]) -> None:
        """Have every packet shown to `listener(source, target, packet)`, lost ones too."""
        self._taps.append(listener)

    def start(self) -> None:
        """Begin to carry."""
        self._thread.start()

    def close(self) -> None:
        """Stop and close the devices."""
        self._closing.set()
        self._thread.join(5)
        for device in self._devices:
            os.close(device)

    def _carry(self) -> None:
        while not self._closing.is_set():
            due = self._waiting[0][0] - time.monotonic() if self._waiting else 0.2
            readable, _, _ = select.select(list(self._devices), [], [], min(0.2, max(0.0, due)))
            for device in readable:
                with contextlib.suppress(BlockingIOError):
                    self._take(device, os.read(device, PACKET_BYTES_MAX))
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, device, packet = heapq.heappop(self._waiting)
                _write(device, packet)

    def _take(self, device: int, packet: bytes) -> None:
        target = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        if target is None:
            return
        for listener in self._taps:
            listener(self._devices[device], target[0], packet)
        with self.lock:
            delay_s = self.links.verdict(self._devices[device], target[0])
        if delay_s is None or len(self._waiting) >= WAITING_MAX:
            return
        if delay_s == 0.0:
            _write(target[1], packet)
            return
        self._order += 1
        heapq.heappush(self._waiting, (time.monotonic() + delay_s, self._order, target[1], packet))


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # A device whose host is gone, or whose queue is full, loses packets.
        os.write(device, packet)


def open_tun(name: str) -> int:
    """Return a new TUN device of the calling thread's network namespace."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device
