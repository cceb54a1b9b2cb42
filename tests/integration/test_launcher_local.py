"""The launcher of this machine: agents under names of their own, started, stopped, given back."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.installed import make
from replkernel_server.launchers.protocol import HostLost, Launcher, LauncherFailed
from replkernel_server.testing import Heard, LauncherContract

from replkernel.agent.io.lookup import find_agent, stop_agent
from replkernel.client.inquiry import agent_names
from tests.support.live import eventually
from tests.support.scheduler_service import Service, refused, serving

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "launchers.md"
LISTED = "class ListLauncher"


class TestLocalLauncher(LauncherContract):
    @pytest.fixture
    async def launcher(self) -> AsyncIterator[Launcher]:
        made = make("local", {"hosts": "2", "most": "3", "gpus": "2"})
        yield made
        await made.close()

    def listens(self, host: str) -> bool:
        return find_agent(host, os.environ) is not None

    async def test_no_more_hosts_come_than_may(self, launcher: Launcher, opened: Heard) -> None:
        with pytest.raises(LauncherFailed, match="most=4"):
            await launcher.ask_hosts(2)
        assert opened.hosts() == {"local-1", "local-2"}

    async def test_a_name_that_was_given_back_is_used_again(self, launcher: Launcher, opened: Heard) -> None:
        await launcher.give_back("local-1")
        assert opened.words[-1] == HostLost("local-1", "it was given back")
        await launcher.ask_hosts(1)
        assert opened.hosts() == {"local-1", "local-2"}


def on_the_page() -> dict[str, Any]:
    """Return what the launcher that the documentation has in full defines."""
    (code,) = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if LISTED in block
    ]
    defined: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), defined)
    return defined


@pytest.mark.slow
class TestTheLauncherOfThePage(LauncherContract):
    @pytest.fixture
    async def launcher(self) -> AsyncIterator[Launcher]:
        options = {"hosts": "page-1,page-2", "reach": "sh -c", "python": sys.executable}
        made: Launcher = on_the_page()["make"](options)
        yield made
        await made.close()

    def listens(self, host: str) -> bool:
        return find_agent(host, os.environ) is not None


async def test_the_launcher_of_the_page_says_what_is_wrong_with_its_options_and_hosts() -> None:
    make_listed = on_the_page()["make"]
    with pytest.raises(ServiceSettingError, match="hosts=a,b"):
        make_listed({})
    with pytest.raises(LauncherFailed, match=r"Host a did not do it: .*no such place"):
        await make_listed({"hosts": "a", "reach": "sh -c 'echo no such place >&2; exit 3'"}).start_agent("a")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"host": "2"}, "no option 'host'"),
        ({"hosts": "-1"}, "hosts=1"),
        ({"hosts": "65"}, "from 0 to 64"),
        ({"hosts": "3", "most": "2"}, "most=3"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: dict[str, str], what: str) -> None:
    with pytest.raises(ServiceSettingError, match=what):
        make("local", options)


@pytest.fixture
def _no_agent_stays() -> Iterator[None]:
    yield
    for name in agent_names(os.environ):
        stop_agent(name, os.environ)


def known(service: Service) -> dict[str, int]:
    return {host["name"]: len(host["gpus"]) for host in service.rest.get("status")[1]["hosts"]}


@pytest.mark.usefixtures("_no_agent_stays")
def test_a_schedulers_hosts_have_agents_and_a_drained_one_is_given_back() -> None:
    options = ["--launcher", "local"]
    for option in ("hosts=2", "most=3", "gpus=2"):
        options += ["--launcher-option", option]
    with serving(*options) as service:
        eventually(lambda: known(service) == {"local-1": 2, "local-2": 2}, "both agents", 60)
        assert service.rest.call("POST", "hosts/local-1/draining")[0] == 200
        eventually(lambda: known(service) == {"local-2": 2}, "the end of the drained host")
        eventually(lambda: find_agent("local-1", os.environ) is None, "the end of its agent")
        assert find_agent("local-2", os.environ) is not None
    said = refused()
    assert "was begun for hosts of 2 GPUs, and now it is without a launcher that has hosts come" in said
    with serving(*options) as service:
        eventually(lambda: known(service) == {"local-1": 2, "local-2": 2}, "both agents again", 60)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--launcher", "raay"), "installed are kubernetes, local, ray"),
        (("--launcher-option", "hosts=2"), "name the launcher"),
        (("--launcher", "local", "--launcher-option", "hosts"), "is not key=value"),
    ],
)
def test_a_launcher_that_cannot_be_is_refused_in_a_sentence(options: tuple[str, ...], what: str) -> None:
    assert what in refused(*options)
