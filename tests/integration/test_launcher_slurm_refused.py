"""The launcher of Slurm where Slurm or the shared disk refuses: it goes on. Slurm's answers are played."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from replkernel_server.launchers import slurm
from replkernel_server.launchers.protocol import LauncherFailed
from replkernel_server.launchers.slurm import SlurmLauncher
from replkernel_server.launchers.slurm_jobs import SlurmOptions
from replkernel_server.testing import Heard


class PlayedSlurm:
    """Jobs by number, each on a node of its own at once."""

    def __init__(self, directory: Path) -> None:
        env = {"PATH": str(directory), "JUPYTER_DATA_DIR": str(directory)}
        self.launcher = SlurmLauncher(SlurmOptions(hosts=1, most=4, gpus=4), env)
        self.jobs: dict[int, str] = {}
        self.asked = 0
        self.refuses = ""

    async def answer(self, command: list[str], told: str = "") -> str:
        if command[0] == "sbatch":
            self.asked += 1
            if self.refuses:
                raise LauncherFailed(self.refuses)
            self.jobs[self.asked] = "RUNNING"
            return f"{self.asked}\n"
        mark = self.launcher._mark
        return "".join(f"{job}|{state}|n{job}|UNLIMITED|{mark}|None\n" for job, state in self.jobs.items())


@pytest.fixture
async def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[PlayedSlurm, Heard]]:
    for name in ("sbatch", "squeue", "scancel"):
        (tmp_path / name).touch(0o700)
    monkeypatch.setattr(slurm, "LOOK_S", 0.05)
    monkeypatch.setattr(slurm, "LOOK_SOON_S", 0.05)
    made, heard = PlayedSlurm(tmp_path), Heard()
    monkeypatch.setattr(made.launcher, "_ask", made.answer)
    await made.launcher.open(heard)
    await heard.until(lambda: heard.hosts() == {"n1"})
    yield made, heard
    await made.launcher.close()


async def test_a_job_that_slurm_refuses_is_not_asked_for_again_when_nobody_awaits_it(
    played: tuple[PlayedSlurm, Heard],
) -> None:
    there, _ = played
    there.refuses = "Slurm's sbatch failed: Job violates accounting/QOS policy."
    with pytest.raises(LauncherFailed, match="QOS policy"):
        await there.launcher.ask_hosts(1)
    tried = there.asked
    await asyncio.sleep(0.5)  # Several looks.
    assert there.asked == tried


async def test_a_shared_disk_that_was_full_for_a_moment_does_not_end_the_launcher(
    played: tuple[PlayedSlurm, Heard], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there, heard = played
    write, left = slurm.replace_own, [OSError(errno.ENOSPC, "No space left on device")]

    def replace_own(path: Path, data: bytes) -> None:
        if left:
            raise left.pop()
        write(path, data)

    monkeypatch.setattr(slurm, "replace_own", replace_own)
    there.jobs[1] = "TIMEOUT"
    await heard.until(lambda: heard.hosts() == {"n2"})
    assert not left and "No space left on device" in caplog.text and "launchers/slurm" in caplog.text
    await there.launcher.close()


async def test_a_turn_that_fails_otherwise_is_not_the_launchers_last(
    played: tuple[PlayedSlurm, Heard], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there, heard = played
    monkeypatch.setattr(there.launcher, "_tell", lambda word: 1 / 0)
    there.jobs[1] = "TIMEOUT"
    await heard.until(lambda: "ZeroDivisionError" in caplog.text)
    monkeypatch.setattr(there.launcher, "_tell", heard)
    await heard.until(lambda: "n2" in heard.hosts())
