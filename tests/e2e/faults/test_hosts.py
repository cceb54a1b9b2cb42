"""The faults are real: a cut host is not reached, one direction alone can be cut, delays delay."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.e2e.faults.hosts import CLONE_NEWNET, in_thread, make_network, may_have_networks
from tests.e2e.faults.wire import Links, Wire

Made = TypeVar("Made")
HOSTS = {"h1": "10.77.1.1", "h2": "10.77.1.2"}
PORT = 4711
ARRIVES_S = 10.0
LOST_S = 0.7
"""A packet that has not come by then never will."""

pytestmark = pytest.mark.skipif(not may_have_networks(), reason="no right to make network namespaces")


class Net:
    """Two hosts on a wire, and a UDP socket on each."""

    def __init__(self) -> None:
        self.links = Links(random.Random(1))
        self.wire = Wire(self.links)
        self.sockets: dict[str, socket.socket] = {}
        for host, address in HOSTS.items():
            namespace, device = in_thread(lambda: make_network(address, f"t-{host}"))
            self.wire.add(host, address, device)
            self.sockets[host] = self._inside(namespace, lambda: _bound(address))
            os.close(namespace)
        self.wire.start()

    @staticmethod
    def _inside(namespace: int, work: Callable[[], Made]) -> Made:
        def enter_and_work() -> Made:
            assert ctypes.CDLL(None).setns(namespace, CLONE_NEWNET) == 0
            return work()

        return in_thread(enter_and_work)

    def sent_arrives(self, source: str, target: str) -> float:
        """Return the seconds that a packet takes."""
        began = time.monotonic()
        self.sockets[source].sendto(b"x", (HOSTS[target], PORT))
        self.sockets[target].settimeout(ARRIVES_S)
        self.sockets[target].recv(10)
        return time.monotonic() - began

    def sent_is_lost(self, source: str, target: str) -> bool:
        """Tell whether a packet does not arrive."""
        self.sockets[source].sendto(b"x", (HOSTS[target], PORT))
        self.sockets[target].settimeout(LOST_S)
        try:
            self.sockets[target].recv(10)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self.wire.close()
        for each in self.sockets.values():
            each.close()


def _bound(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, PORT))
    return made


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.close()


def test_whole_links_carry_and_a_cut_host_is_reached_by_nobody(net: Net) -> None:
    assert net.sent_arrives("h1", "h2")
    for direction in (("h1", "h2"), ("h2", "h1")):
        net.links.link(*direction).cuts = 1
        assert net.sent_is_lost(*direction)
    net.links.heal()
    assert net.sent_arrives("h2", "h1")


def test_one_direction_alone_can_be_cut(net: Net) -> None:
    net.links.link("h1", "h2").cuts = 1
    assert net.sent_is_lost("h1", "h2")
    assert net.sent_arrives("h2", "h1")


def test_a_delay_delays_one_direction(net: Net) -> None:
    link = net.links.link("h1", "h2")
    link.delay_s, link.jitter_s = 0.3, 0.0
    assert (slow := net.sent_arrives("h1", "h2")) >= 0.3
    assert min(net.sent_arrives("h2", "h1") for _ in range(3)) < slow
