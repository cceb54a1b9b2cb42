"""Everything that machines say to each other, as a listener on the wire has it: per connection, in order."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable

CAPTURE_BYTES_MAX = 256 * 1024 * 1024
TCP, UDP = 6, 17

Flow = tuple[str, int, str, int]
"""Source machine and port, target machine and port."""


class Capture:
    """The payloads of all packets on a wire, up to a bound."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: dict[Flow, dict[int, bytes]] = defaultdict(dict)
        self.size = 0

    def __call__(self, source: str, target: str, packet: bytes) -> None:
        """Take one IPv4 packet."""
        start = (packet[0] & 15) * 4
        ports = int.from_bytes(packet[start : start + 2]), int.from_bytes(packet[start + 2 : start + 4])
        flow = (source, ports[0], target, ports[1])
        head = (packet[start + 12] >> 4) * 4 if packet[9] == TCP else 8
        payload = packet[start + head :]
        if not payload:
            return
        with self._lock:
            self.size += len(payload)
            assert self.size < CAPTURE_BYTES_MAX, "the capture is larger than a test's should be"
            sent = self._segments[flow]
            sent[int.from_bytes(packet[start + 4 : start + 8]) if packet[9] == TCP else len(sent)] = payload

    def streams(self) -> dict[Flow, bytes]:
        """Return what went each way on each connection, by its place in the connection."""
        with self._lock:
            return {
                flow: b"".join(segments[place] for place in _in_order(segments))
                for flow, segments in self._segments.items()
            }

    def seen(self, what: bytes) -> list[Flow]:
        """Return the connections on which these bytes could be read."""
        return [flow for flow, stream in self.streams().items() if what in stream]


def _in_order(places: Iterable[int]) -> list[int]:
    """Return the places of a connection in order; behind 2^32 - 1 TCP counts on from 0."""
    first, *others = places
    return sorted([first, *others], key=lambda place: (place - first + (1 << 31)) % (1 << 32))
