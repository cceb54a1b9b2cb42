"""What an agent tells of its host: the kernel's own interpreter is asked, again once it has changed."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import msgspec
import pytest

from replkernel.agent.io.host_environment import HostEnvironments, at_home, directory_trouble
from replkernel.protocol.agent_to_router import GroundDescribed
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.router_to_agent import DescribeGround, InstallHere
from replkernel.records import KernelId
from tests.e2e.test_host_environments import environment


def spec(python: str, cwd: str = "/") -> KernelSpec:
    return KernelSpec(
        KernelId("k"), "one", "key", "hmac-sha256", python, dict(os.environ), cwd, "memory://", 3
    )


async def describe(grounds: HostEnvironments, of: KernelSpec) -> GroundDescribed:
    return await grounds.describe(DescribeGround(KernelId("k"), of))


async def test_the_kernels_interpreter_is_asked_and_what_is_installed_later_is_seen(tmp_path: Path) -> None:
    python, grounds = environment(tmp_path / "own", ("rk-toy", "2.0")), HostEnvironments()
    told = await describe(grounds, spec(str(python)))
    version = platform.python_version()  # The environment is made by this interpreter.
    assert (told.python, told.packages["rk-toy"], told.why, told.no_directory) == (version, "2.0", "", "")
    assert "msgspec" in told.packages
    assert await describe(grounds, spec(str(python))) == told
    packages = next((tmp_path / "own" / "lib").glob("*/site-packages"))
    (packages / "rk_late-1.0.dist-info").mkdir()
    (packages / "rk_late-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nname: rk-late\nSummary: a\fName: other\nversion: 1.0\nVersion: 2.0\n"
    )
    assert (await describe(grounds, spec(str(python)))).packages["rk-late"] == "1.0"


async def test_an_interpreter_that_cannot_be_asked_and_a_missing_directory_are_told(tmp_path: Path) -> None:
    told = await describe(HostEnvironments(), spec("/bin/false", str(tmp_path / "absent")))
    assert "/bin/false cannot be asked" in told.why
    assert told.no_directory == f"the directory {tmp_path / 'absent'} is not there"
    (tmp_path / "file").touch()
    assert "is not there" in directory_trouble(str(tmp_path / "file"))
    assert directory_trouble(str(tmp_path)) == ""


async def test_an_installation_that_fails_says_what_pip_said(tmp_path: Path) -> None:
    python = environment(tmp_path / "own")
    arguments = ("install", "--no-index", "--find-links", str(tmp_path), "rk-none")
    wish = InstallHere(KernelId("k"), spec(str(python), str(tmp_path)), 7, "pip", arguments)
    ended = await HostEnvironments().install(wish)
    assert (ended.request, ended.well) == (7, False)
    assert "rk-none" in ended.said


@pytest.mark.parametrize(
    ("setting", "launchers", "far", "wanted"),
    [
        ("/opt/python", sys.executable, True, "/opt/python"),
        ("/opt/python", sys.executable, False, "/opt/python"),
        ("", sys.executable, True, sys.executable),
        ("", "/no/such/python", True, sys.executable),
        ("", "/no/such/python", False, "/no/such/python"),
    ],
)
def test_the_setting_wins_and_a_path_absent_on_another_machine_means_the_agents_own(
    setting: str, launchers: str, far: bool, wanted: str
) -> None:
    env = {"REPLKERNEL_PYTHON": setting} if setting else {}
    assert at_home(spec(launchers), env, far=far) == msgspec.structs.replace(spec(launchers), python=wanted)
