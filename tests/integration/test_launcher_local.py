"""The launcher of this machine: agents under names of their own, started, stopped, given back."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.installed import make
from replkernel_server.launchers.protocol import HostLost, Launcher, LauncherFailed

from replkernel.agent.lookup import find_agent
from tests.contracts.launcher import Heard, LauncherContract


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
