"""Ports handed to a router: held against everybody, passed on to nobody, refused when they are no ports."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from replkernel.launch.given_ports import GIVEN_PORTS, HeldPorts, close_given, listens_at, take_given

IP = "127.0.0.1"


def test_a_held_port_can_be_bound_by_nobody_else() -> None:
    held = HeldPorts(IP, {"shell_port": 0, "hb_port": 0})
    try:
        for number in held.numbers.values():
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((IP, number))
    finally:
        held.close()


def test_where_one_port_is_taken_none_is_held() -> None:
    with socket.socket() as other, socket.socket() as free:
        other.bind((IP, 0))
        other.listen()
        free.bind((IP, 0))
        number = free.getsockname()[1]
        free.close()
        with pytest.raises(OSError, match="in use"):
            HeldPorts(IP, {"shell_port": number, "hb_port": other.getsockname()[1]})
        HeldPorts(IP, {"shell_port": number}).close()


def test_a_port_taken_over_goes_to_no_child_and_out_of_the_environment() -> None:
    held = HeldPorts(IP, {"shell_port": 0})
    os.set_inheritable(held.descriptors[0], True)
    env = {GIVEN_PORTS: held.text, "OTHER": "1"}
    try:
        given = take_given(env)
        assert (given, env) == ({"shell_port": held.descriptors[0]}, {"OTHER": "1"})
        assert not os.get_inheritable(held.descriptors[0])
        assert listens_at(given["shell_port"], held.numbers["shell_port"])
        assert not listens_at(given["shell_port"], 1)
    finally:
        held.close()


@pytest.mark.parametrize(
    "text", ["", "shell_port", "shell_port=x", "shell_port=-1", "shell_port=99999999999"]
)
def test_nonsense_gives_nothing(text: str) -> None:
    assert take_given({GIVEN_PORTS: text}) == {}


def test_a_descriptor_of_something_else_is_not_used(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with socket.socket() as silent:
        silent.bind((IP, 0))
        assert not listens_at(silent.fileno(), silent.getsockname()[1])
    assert not listens_at(descriptor, 1)
    close_given([descriptor, descriptor])
