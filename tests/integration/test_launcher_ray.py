"""The launcher of Ray clusters keeps the contract, on a cluster of three invented nodes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.installed import make
from replkernel_server.launchers.protocol import Launcher, LauncherFailed
from replkernel_server.testing import Heard, LauncherContract

from replkernel.agent.io.lookup import find_agent
from tests.conftest import SOURCE_PATHS
from tests.support.ray_cluster import NEEDS, RayCluster, ray_cluster


@pytest.fixture(scope="module")
def place() -> Iterator[dict[str, str]]:
    """The cluster outlives a test, and so do its agents' directories."""
    base = Path(tempfile.mkdtemp(prefix="rk-", dir="/tmp"))
    env = {"JUPYTER_DATA_DIR": str(base / "data"), "REPLKERNEL_SOCKET_DIR": str(base / "s")}
    yield env | {"PYTHONPATH": os.pathsep.join(SOURCE_PATHS)}
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(place: dict[str, str]) -> Iterator[RayCluster]:
    log = Path(place["JUPYTER_DATA_DIR"]).parent / "ray.log"
    with ray_cluster("a", "b", log=log, env=place) as made:
        made.autoscale()
        yield made


@pytest.mark.slow
@pytest.mark.timeout(240)
@NEEDS
class TestRayLauncher(LauncherContract):
    @pytest.fixture
    async def launcher(
        self, cluster: RayCluster, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Launcher]:
        for name, value in place.items():
            monkeypatch.setenv(name, value)
        made = make("ray", {"address": cluster.address, "pretend": "yes", "scale": "yes", "gpus": "4"})
        yield made
        await made.close()

    def listens(self, host: str) -> bool:
        return find_agent(host, os.environ) is not None

    async def test_gpus_that_a_dead_process_took_are_found_by_the_next(
        self, launcher: Launcher, opened: Heard, cluster: RayCluster
    ) -> None:
        host = min(opened.hosts())
        given = await launcher.take_gpu(host, "place-7")
        before = len(opened.words)
        await launcher.close()
        await launcher.open(opened)
        held = {"place-7": given}
        await opened.until(
            lambda: any(getattr(word, "given", None) == held for word in opened.words[before:])
        )
        await launcher.leave_gpu(host, "place-7")
        await opened.until(lambda: cluster.used()[host.removeprefix("ray-")] == 0.0)


@NEEDS
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"adress": "auto"}, "no option 'adress'"),
        ({"labels": "zone"}, "labels=ray.io"),
        ({"pretend": "maybe"}, "yes or no for pretend"),
        ({"gpus": "x"}, "gpus=8"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: dict[str, str], what: str) -> None:
    with pytest.raises(ServiceSettingError, match=what):
        make("ray", options)


@NEEDS
async def test_a_cluster_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from replkernel_server.launchers.ray import launcher as module

    monkeypatch.setattr(module, "OPEN_S", 0.1)
    made = make("ray", {"address": "127.0.0.1:1"})
    with pytest.raises(LauncherFailed, match="No Ray cluster answers"):
        await made.open(Heard())
