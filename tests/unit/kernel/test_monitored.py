"""What a kernel's link hears of its connections: an event whose address is yet to come makes nobody wait."""

from __future__ import annotations

import struct
from typing import Any, cast

import zmq

from replkernel.kernel.shared_socket import monitored


class Monitor:
    """A monitor's socket, whose frames come one by one."""

    def __init__(self) -> None:
        self.frames: list[tuple[bytes, bool]] = []
        self._more = False

    def event(self, event: int, value: int) -> None:
        self.frames.append((struct.pack("=hi", event, value), True))

    def address(self) -> None:
        self.frames.append((b"tcp://10.0.0.1:7700", False))

    def getsockopt(self, option: int) -> int:
        if option == zmq.RCVMORE:
            return int(self._more)
        return int(zmq.POLLIN) if self.frames else 0

    def recv(self, flags: int = 0) -> bytes:
        assert flags & zmq.DONTWAIT, "it would wait"
        frame, self._more = self.frames.pop(0)
        return frame

    def told(self) -> list[tuple[int, int]]:
        return [*monitored(cast("Any", self))]


def test_an_event_is_heard_before_its_address_is_there_and_the_next_ones_after_it() -> None:
    monitor = Monitor()
    monitor.event(int(zmq.EVENT_ACCEPTED), 69)
    assert monitor.told() == [(32, 69)]
    monitor.address()
    assert monitor.told() == []
    monitor.event(int(zmq.EVENT_DISCONNECTED), 69)
    monitor.address()
    assert monitor.told() == [(512, 69)]
