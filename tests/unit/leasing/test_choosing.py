"""On which hosts a new kernel begins: those that the scheduler names and that are found, else its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replkernel.errors import SettingError
from replkernel.hosts.places import hosts_are_chosen, named_hosts
from replkernel.leasing import choosing
from replkernel.leasing.asking import NoAnswer
from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wanted import wanted_by
from replkernel.records import KernelId
from replkernel.settings import read_settings

ENV = {"REPLKERNEL_HOST_NAME": "lab", "REPLKERNEL_SCHEDULER_URL": "http://127.0.0.1:9", "HOME": "/nowhere"}


FULL = {"missing": 3, "coming": 0}
ON_THEIR_WAY = {"missing": 1, "coming": 1}


class Asked:
    """A scheduler that names hosts, then tells how the placement stands, one answer after the other."""

    def __init__(self, named: list[str] | Exception, *stands: object) -> None:
        self.named, self.stands = named, list(stands)
        self.bodies: list[dict[str, Any]] = []
        self.said: list[str] = []

    def ask(
        self, _url: str, _token: str, path: str, _bounds: object, _method: str, body: bytes | None
    ) -> bytes:
        if body is not None:
            self.bodies.append(msgspec.json.decode(body))
        stands = self.stands[0] if len(self.stands) == 1 else None
        answer = {"hosts": self.named} if path.endswith("/hosts") else (stands or self.stands.pop(0))
        for failed in (self.named, answer):
            if isinstance(failed, Exception):
                raise failed
        return msgspec.json.encode(answer)


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    asked: Asked,
    found: str,
    env: Mapping[str, str] = ENV,
    wanted: GpuRequest | None = None,
    wait_s: float = 0.0,
) -> tuple[tuple[str, ...], str]:
    monkeypatch.setattr(choosing, "ask", asked.ask)
    monkeypatch.setattr(choosing, "AGAIN_S", 0.0)
    monkeypatch.setattr(choosing, "find_agent", lambda host, _: host if host in found.split() else None)
    return choosing.choose_hosts(KernelId("k"), 3, env, wanted, wait_s, asked.said.append)


def on(hosts: str) -> dict[str, list[str]]:
    return {"hosts": list(hosts)}


def test_the_replicas_are_where_the_scheduler_places_them_and_the_next_best_are_spare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(list("fbacdge"), on("gba"))
    wanted = GpuRequest(2, 20.0, "H100", 4.0, 32.0)
    assert chosen(monkeypatch, asked, "a b c d f g", wanted=wanted) == (tuple("gbafc"), "")
    assert asked.bodies == [
        {
            "gpus": 2,
            "replicas": 3,
            "gpu_model": "H100",
            "vram_gb": 20.0,
            "cpu": 4.0,
            "memory_gb": 32.0,
            "without": ["e"],
        }
    ]


def test_where_its_hosts_have_no_agent_of_ours_it_begins_on_those_that_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, told = chosen(monkeypatch, Asked(list("abcd"), on("dxy")), "a b c d")
    assert hosts == tuple("abcd")
    assert "the same: the scheduler places it on x, y too, where no agent of yours is found." in told


def test_a_kernel_waits_for_hosts_that_are_on_their_way_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(list("ab"), ON_THEIR_WAY, ON_THEIR_WAY, on("abn"), on("abn"))
    assert chosen(monkeypatch, asked, "a b n", wait_s=60.0) == (tuple("abn"), "")
    assert asked.said == ["REPLKERNEL_HOSTS=auto: this kernel waits for 1 hosts that are on their way to it."]
    hosts, told = chosen(monkeypatch, Asked(list("ab"), ON_THEIR_WAY), "a b")
    assert hosts == tuple("ab")
    assert "1 on their way have not come within 0 s (REPLKERNEL_PLACE_WAIT_S)" in told


def test_without_room_it_begins_on_the_best_there_are_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, told = chosen(monkeypatch, Asked(list("abcd"), FULL), "a b c d", wanted=GpuRequest(2, cpu=4.0))
    assert hosts == tuple("abcd")
    assert told == (
        "REPLKERNEL_HOSTS=auto: this kernel, which asks for 2 GPUs, 4 cores, begins on a, b, c all the same: "
        "no host has room for it below the subscription limit, and none is on its way."
    )
    refused = NoAnswer("it answers 409", 409, "No host has 9 GPUs; the largest possible request is 4 GPUs.")
    hosts, told = chosen(monkeypatch, Asked(list("abc"), refused), "a b c", wanted=GpuRequest(9))
    assert hosts == tuple("abc")
    assert "all the same: No host has 9 GPUs; the largest possible request is 4 GPUs." in told
    hosts, told = chosen(monkeypatch, Asked(list("abc"), NoAnswer("it does not answer")), "a b c")
    assert hosts == tuple("abc")
    assert "the scheduler does not place it, for it does not answer." in told


def test_missing_hosts_are_told_with_their_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, told = chosen(monkeypatch, Asked(list("ab"), on("b")), "b")
    assert hosts == ("b",)
    assert "1 host with room and agents of yours for 3 replicas" in told
    hosts, told = chosen(monkeypatch, Asked(list("ab"), on("a")), "")
    assert hosts == ("lab",)
    assert "has 2 hosts, and none has an agent that is found from here" in told
    hosts, told = chosen(monkeypatch, Asked(NoAnswer("it does not answer")), "")
    assert hosts == ("lab",)
    assert told.startswith("REPLKERNEL_HOSTS=auto: all replicas of this kernel are on this machine")
    assert "it does not answer" in told
    hosts, told = chosen(monkeypatch, Asked([]), "", {"REPLKERNEL_HOST_NAME": "lab", "HOME": "/nowhere"})
    assert hosts == ("lab",)
    assert "no scheduler runs" in told
    hosts, told = chosen(monkeypatch, Asked([], FULL), "")
    assert hosts == ("lab",)
    assert "on this machine, for no host has room for it" in told


def test_the_request_is_the_notebooks_else_the_settings(tmp_path: Path) -> None:
    notebook = tmp_path / "n.ipynb"
    env = {"JPY_SESSION_NAME": str(notebook), "REPLKERNEL_REQUEST": "1 --cpu 2"}
    assert wanted_by({}) == (None, "")
    assert wanted_by(env) == (GpuRequest(1, cpu=2.0), "")
    notebook.write_text('{"metadata": {"replkernel": {"gpus": 2, "memory_gib": 8}}, "cells": []}')
    assert wanted_by(env) == (GpuRequest(2, memory_gib=8.0), "")
    notebook.write_text('{"metadata": {"replkernel": {"gpus": 99}}, "cells": []}')
    asked, told = wanted_by(env)
    assert asked == GpuRequest(1, cpu=2.0)
    assert "ask for 99 GPUs, and one kernel is placed for 8 at most" in told


@pytest.mark.parametrize("text", ["two", "1 --memory 4GB", "9", "1 --cpu -1"])
def test_a_request_that_cannot_be_understood_is_refused_with_one_that_can(text: str) -> None:
    with pytest.raises(SettingError, match="set REPLKERNEL_REQUEST='1 --cpu 4 --memory 32'"):
        read_settings({"REPLKERNEL_REQUEST": text, "HOME": "/nowhere"})


def test_auto_stands_alone() -> None:
    assert hosts_are_chosen({"REPLKERNEL_HOSTS": " auto "})
    assert named_hosts({"REPLKERNEL_HOSTS": "auto"}) == ()
    assert read_settings({"REPLKERNEL_HOSTS": "auto", "HOME": "/nowhere"}).hosts == ()
    with pytest.raises(SettingError, match="'auto' among names: it stands alone"):
        read_settings({"REPLKERNEL_HOSTS": "gpu1,auto", "HOME": "/nowhere"})
