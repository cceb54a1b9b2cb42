"""Another Unix user takes the port of a scheduler that has ended: the token does not go there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from replkernel_server.errors import ServiceSettingError
from replkernel_server.hub_service import serve as serve_hub

from replkernel.agent.io.lookup import agent_dir, find_or_start
from replkernel.leasing.finding import find_scheduler, tell_address, token_for
from tests.support.live import eventually
from tests.support.ports import free_port
from tests.support.scheduler_service import scheduler_files, serving
from tests.support.second_user import ATTACKER, Attack, needs_root

HOST = "h1"
TOKEN = "the-token-of-a-scheduler-that-was-here"
END = b"END"
LISTENED_S = 100.0
PROGRAM = [sys.executable, "-m", "replkernel.cli"]


def listened(port: int, told: int) -> bytes:
    """Take the port, and return all that anybody said there until the end was said."""
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(LISTENED_S)
    os.write(told, b"x")
    heard = b""
    while True:
        line, _ = server.accept()
        with line:
            line.settimeout(LISTENED_S)
            said = line.recv(65536)
        if said == END:
            return heard
        heard += said + b"\n"


class Taker:
    """Another user who listens at a port."""

    def __init__(self, port: int) -> None:
        ready, told = os.pipe()
        self.port = port
        self._attack = Attack(ATTACKER, listened, port, told)
        os.close(told)
        assert os.read(ready, 1) == b"x", self._attack.result()
        os.close(ready)

    def heard(self) -> str:
        """End it; return what it heard."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LISTENED_S) as line:
            line.sendall(END)
        return str(self._attack.result().decode(errors="replace"))


@pytest.fixture
def taker() -> Taker:
    return Taker(free_port())


def agent_log() -> str:
    return (agent_dir(HOST, os.environ) / "agent.log").read_text()


@needs_root
@pytest.mark.timeout(150)
def test_an_agent_that_reconnects_does_not_tell_it() -> None:
    with serving() as service:
        token = (scheduler_files() / "token").read_text()
        agent = find_or_start(HOST, {**os.environ, "REPLKERNEL_FAKE_GPUS": "2"})
        eventually(lambda: HOST in str(service.rest.get("status")[1]), "the agent's host")
        os.kill(agent.pid, signal.SIGSTOP)  # It does not come back before another user is there.
        try:
            service.kill()
            taker = Taker(urlsplit(service.url).port or 0)
        finally:
            os.kill(agent.pid, signal.SIGCONT)
        try:
            eventually(lambda: "Another user of this machine" in agent_log(), "a word of the agent's")
        finally:
            heard = taker.heard()
    assert token not in heard
    assert not heard


@needs_root
def test_no_command_tells_it_where_another_user_listens(taker: Taker) -> None:
    url = f"http://127.0.0.1:{taker.port}"
    tell_address(os.environ, url, TOKEN)
    (scheduler_files() / "token").write_text(TOKEN)
    (scheduler_files() / "token").chmod(0o600)
    try:
        found, token = find_scheduler(os.environ), token_for(url, os.environ)
        status = subprocess.run([*PROGRAM, "status"], capture_output=True, text=True, timeout=60, check=False)
    finally:
        heard = taker.heard()
    assert found == ("", "") and token == ""
    assert "Traceback" not in status.stderr
    assert not heard


@needs_root
def test_an_address_that_is_set_is_the_affair_of_who_set_it(
    taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hub's proxy on loopback is not its users' own."""
    url = f"http://127.0.0.1:{taker.port}"
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", url)
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", TOKEN)
    try:
        assert find_scheduler(os.environ) == (url, TOKEN)
    finally:
        taker.heard()


async def test_a_hub_whose_port_is_taken_is_told_of_its_own_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        env = {
            "JUPYTERHUB_API_TOKEN": TOKEN,
            "JUPYTERHUB_API_URL": "http://127.0.0.1:8081/hub/api",
            "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{other.getsockname()[1]}",
            "JUPYTERHUB_SERVICE_PREFIX": "/services/replkernel/",
        }
        with pytest.raises(ServiceSettingError, match=r"address= of setup_replkernel") as refused:
            await serve_hub(env)
    assert "--port" not in str(refused.value)
