"""Where real kernels begin: by their requests and the subscription limit, on two agents' hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live import eventually, kernel
from tests.support.scheduler_service import Service, serving

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_machine]
LAUNCHER = ("--launcher", "local", "--launcher-option", "hosts=2", "--launcher-option", "gpus=2")
START_S = 60.0


def kernels(service: Service) -> list[dict[str, object]]:
    return list(service.rest.get("kernels")[1]["kernels"])


def test_the_limit_sends_the_second_kernel_to_the_other_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_POLICIES", "notebook limit=static placement=bin-pack")
    asks = {"REPLKERNEL_HOSTS": "auto", "REPLKERNEL_REPLICAS": "1", "REPLKERNEL_REQUEST": "2 --cpu 0.5"}
    with serving(*LAUNCHER) as service:
        eventually(lambda: len(service.rest.get("status")[1]["hosts"]) == 2, "two hosts", START_S)
        with kernel(tmp_path, **asks) as first:
            assert first.value("print(1)") == "1"
            one = eventually(
                lambda: [known for known in kernels(service) if known["connected"]], "its router"
            )
            assert one[0]["gpus"] == 2
            with kernel(tmp_path, **asks) as second:
                assert second.value("print(2)") == "2"
                both = eventually(
                    lambda: len(found := [k for k in kernels(service) if k["connected"]]) == 2 and found,
                    "both routers",
                )
                (other,) = [known["hosts"] for known in both if known["kernel_id"] != one[0]["kernel_id"]]
                assert other != one[0]["hosts"]
                ran = second.run("%%gpu 2 --cpu 0.5 --memory 0.25\nprint(3)", 60)
                assert (ran.error, ran.out.strip(), [ran.said["host"]]) == ("", "3", other)
                with kernel(tmp_path, **asks) as third:
                    assert third.value("print(4)") == "4"
                    told = "no host has room for it below the subscription limit"
                    eventually(lambda: told in third.terminal, "why it begins all the same")
    assert "REPLKERNEL_HOSTS" not in first.terminal
