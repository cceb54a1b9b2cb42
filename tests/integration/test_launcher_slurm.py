"""The launcher of a Slurm cluster, against a real one: agents are jobs with GPUs of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from replkernel_server.launchers.installed import make
from replkernel_server.launchers.protocol import HostComing, HostLost, Launcher, LauncherFailed
from replkernel_server.launchers.slurm import SlurmLauncher
from replkernel_server.launchers.slurm_agent import AgentSettings
from replkernel_server.testing import Heard, LauncherContract

from replkernel.agent.io.lookup import find_agent
from tests.support.live import eventually
from tests.support.slurm import NODES, SlurmCluster, slurm, why_not

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not()), pytest.mark.timeout(240)]
SCRIPT = Path(__file__).parents[2] / "docs" / "deployments" / "slurm" / "agents.sbatch"
OPTIONS = {"hosts": "2", "most": "4", "gpus": "4", "pretend": "yes", "bind": ""}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm() as running:
        yield running


class TestSlurmLauncher(LauncherContract):
    agents_come_along = True

    @pytest.fixture
    async def launcher(
        self, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Launcher]:
        for name, value in cluster.env.items():
            monkeypatch.setenv(name, value)
        made = make("slurm", OPTIONS)
        yield made
        await made.close()
        cluster.empty()

    def listens(self, host: str) -> bool:
        return find_agent(host, os.environ) is not None

    async def test_nothing_of_a_job_shows_a_secret_and_its_settings_are_ones_own(
        self, launcher: Launcher, opened: Heard, cluster: SlurmCluster
    ) -> None:
        place = Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "launchers" / "slurm"
        assert (place / "agent.json").stat().st_mode & 0o777 == 0o600
        assert place.stat().st_mode & 0o777 == 0o700
        shown = cluster.run("scontrol", "show", "job")
        assert "TresPerNode=gres:gpu:4" in shown
        assert "REPLKERNEL" not in shown

    async def test_a_host_that_cannot_come_yet_says_slurms_reason(
        self, launcher: Launcher, opened: Heard
    ) -> None:
        await launcher.ask_hosts(2)
        await opened.until(
            lambda: any(isinstance(word, HostComing) and word.why == "Resources" for word in opened.words)
        )
        assert len(opened.hosts()) <= 3, "there are three nodes"
        await launcher.ask_hosts(0)
        await opened.until(lambda: isinstance(opened.words[-1], HostComing) and opened.words[-1].over)
        with pytest.raises(LauncherFailed, match="most="):
            await launcher.ask_hosts(9)

    async def test_a_host_that_was_given_back_frees_its_node_also_when_jobs_are_listed_meanwhile(
        self, launcher: Launcher, opened: Heard, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(launcher, SlurmLauncher)
        ask = launcher._ask

        async def answered_late(command: list[str], told: str = "") -> str:
            said = await ask(command, told)
            if command[0] == "scancel":
                launcher._poke.set()
                await asyncio.sleep(0.6)  # Jobs are listed within this, if they may be.
            return said

        monkeypatch.setattr(launcher, "_ask", answered_late)
        host = max(opened.hosts())
        await launcher.give_back(host)
        lost = [word for word in opened.words if isinstance(word, HostLost)]
        assert lost == [HostLost(host, "it was given back")]
        await opened.until(lambda: cluster.states()[host] == "idle")


def test_the_batch_script_of_the_documentation_brings_agents_up(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "slurm.json"
    kept = {name: os.environ[name] for name in ("JUPYTER_DATA_DIR", "PYTHONPATH", "REPLKERNEL_SOCKET_DIR")}
    settings.write_bytes(msgspec.json.encode(AgentSettings(kept, bind="", pretend=True)))
    settings.chmod(0o600)
    for name, value in {
        "REPLKERNEL_PYTHON": sys.executable,
        "REPLKERNEL_SETTINGS": str(settings),
        **cluster.env,
    }.items():
        monkeypatch.setenv(name, value)
    cluster.run("sbatch", "--array=1-3", f"--chdir={tmp_path}", str(SCRIPT))
    for node in NODES:
        eventually(lambda node=node: find_agent(node, os.environ), f"the agent of {node}", 180)
    cluster.empty()
    assert all(find_agent(node, os.environ) is None for node in NODES)
