"""On which hosts a new kernel begins: those that the scheduler names and that are found, else its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from replkernel.errors import SettingError
from replkernel.leasing import choosing
from replkernel.leasing.asking import NoAnswer
from replkernel.places import hosts_are_chosen, named_hosts
from replkernel.records import KernelId
from replkernel.settings import read_settings

ENV = {"REPLKERNEL_HOST_NAME": "lab", "REPLKERNEL_SCHEDULER_URL": "http://127.0.0.1:9", "HOME": "/nowhere"}


def chosen(
    monkeypatch: pytest.MonkeyPatch, named: list[str] | Exception, found: str, env: Mapping[str, str] = ENV
) -> tuple[tuple[str, ...], str]:
    def ask(*_: Any) -> bytes:
        if isinstance(named, Exception):
            raise named
        return msgspec.json.encode({"hosts": named})

    monkeypatch.setattr(choosing, "ask", ask)
    monkeypatch.setattr(choosing, "find_agent", lambda host, _: host if host in found.split() else None)
    return choosing.choose_hosts(KernelId("k"), 3, env)


def test_the_replicas_hosts_and_spare_ones_are_taken_in_the_schedulers_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen(monkeypatch, list("fbacdge"), "a b c d e f g") == (tuple("fbacd"), "")
    assert chosen(monkeypatch, list("fbacd"), "a c d") == (tuple("acd"), "")


def test_missing_hosts_are_told_with_their_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, told = chosen(monkeypatch, list("ab"), "b")
    assert hosts == ("b",)
    assert "1 host with agents of yours for 3 replicas" in told
    hosts, told = chosen(monkeypatch, list("ab"), "")
    assert hosts == ("lab",)
    assert "has 2 hosts, and none has an agent that is found from here" in told
    hosts, told = chosen(monkeypatch, NoAnswer("it does not answer"), "")
    assert hosts == ("lab",)
    assert told.startswith("REPLKERNEL_HOSTS=auto: all replicas of this kernel are on this machine")
    assert "it does not answer" in told
    hosts, told = chosen(monkeypatch, [], "", {"REPLKERNEL_HOST_NAME": "lab", "HOME": "/nowhere"})
    assert hosts == ("lab",)
    assert "no scheduler runs" in told


def test_auto_stands_alone() -> None:
    assert hosts_are_chosen({"REPLKERNEL_HOSTS": " auto "})
    assert named_hosts({"REPLKERNEL_HOSTS": "auto"}) == ()
    assert read_settings({"REPLKERNEL_HOSTS": "auto", "HOME": "/nowhere"}).hosts == ()
    with pytest.raises(SettingError, match="'auto' among names: it stands alone"):
        read_settings({"REPLKERNEL_HOSTS": "gpu1,auto", "HOME": "/nowhere"})
