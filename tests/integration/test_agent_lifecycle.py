"""An agent is found or started once, says why it cannot be, and ends when it is told to or not needed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from replkernel.agent.io import lookup
from replkernel.agent.io.lookup import agent_dir, find_agent, find_or_start, stop_agent
from replkernel.agent.io.start import LOCK_HELD
from replkernel.errors import AgentUnavailable
from replkernel.hosts.places import this_machine
from replkernel.jobs.processes import members
from replkernel.protocol.agent_to_router import AgentRefuses, AgentWelcome, ReplicaPrepared, StatusAnswer
from replkernel.protocol.router_to_agent import EndKernel, StatusQuery
from replkernel.protocol.status import read_document
from replkernel.records import KernelId
from tests.support.agent_router import RouterClient, make_spec, run_cell, standin_env
from tests.support.ending import end_process
from tests.support.live import eventually

HOST = "lifecycle"


@pytest.fixture(autouse=True)
def _no_agent_stays():
    yield
    stop_agent(HOST, os.environ)


@pytest.mark.slow
def test_many_starters_at_once_make_one_agent() -> None:
    with ThreadPoolExecutor(6) as starters:
        found = list(starters.map(lambda _: find_or_start(HOST, os.environ), range(6)))
    assert len({address.pid for address in found}) == 1
    assert find_agent(HOST, os.environ) == found[0]


def test_processes_that_start_agents_at_once_make_one() -> None:
    imports = "import os; from replkernel.agent.io.lookup import find_or_start"
    code = f"{imports}; print(find_or_start({HOST!r}, os.environ).pid)"
    starters = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    pids = {starter.communicate(timeout=60)[0].strip() for starter in starters}
    assert len(pids) == 1
    assert pids != {b""}


def test_the_agent_is_nobodys_child() -> None:
    address = find_or_start(HOST, os.environ)
    descendants = {child.pid for child in psutil.Process().children(recursive=True)}
    assert address.pid not in descendants
    assert descendants.isdisjoint(child.pid for child in psutil.Process(address.pid).children(recursive=True))


def test_the_agent_is_in_a_session_of_its_own_and_its_files_are_private() -> None:
    address = find_or_start(HOST, os.environ)
    directory = agent_dir(HOST, os.environ)
    assert os.getsid(address.pid) == address.pid
    assert (directory / "agent.json").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    socket = Path(address.endpoint.removeprefix("ipc://"))
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    command = Path(f"/proc/{address.pid}/cmdline").read_text()
    assert address.token not in command


def test_an_agent_that_a_job_starts_is_no_process_of_the_job_s(tmp_path: Path) -> None:
    given = {"REPLKERNEL_JOB": "j", "REPLKERNEL_JOB_DIR": str(tmp_path), "REPLKERNEL_JOB_GPUS": "1"}
    address = find_or_start(HOST, {**os.environ, **given})
    assert members(tmp_path) == []
    environment = psutil.Process(address.pid).environ()
    assert environment.keys().isdisjoint(given) and environment["PATH"] == os.environ["PATH"]


def test_a_dead_agents_file_is_not_believed() -> None:
    address = find_or_start(HOST, os.environ)
    end_process(address.pid)
    assert find_agent(HOST, os.environ) is None
    again = find_or_start(HOST, os.environ)
    assert again.pid != address.pid


@pytest.mark.slow
def test_a_starter_that_is_killed_leaves_no_trap_for_the_next() -> None:
    imports = "import os; from replkernel.agent.io.lookup import find_or_start"
    starter = subprocess.Popen([sys.executable, "-c", f"{imports}; find_or_start({HOST!r}, os.environ)"])
    lock = agent_dir(HOST, os.environ) / "agent.lock"
    deadline = time.monotonic() + 60
    while not lock.exists() or not lock.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    starter.kill()
    starter.wait()
    address = find_or_start(HOST, os.environ)
    assert address.pid == int(lock.read_text())


def test_an_agent_that_finds_anothers_lock_leaves_the_field_to_it() -> None:
    address = find_or_start(HOST, os.environ)
    second = subprocess.run([sys.executable, "-m", "replkernel.agent", "--name", HOST], capture_output=True)
    assert second.returncode == LOCK_HELD
    assert b"agent.lock" in second.stderr
    assert find_agent(HOST, os.environ) == address


def test_an_agent_whose_imports_take_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "SILENT_S", 0.5)
    tmp_path.joinpath("sitecustomize.py").write_text("import time; time.sleep(1)")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    began = time.monotonic()
    address = find_or_start(HOST, env)
    assert time.monotonic() - began > 1, "its imports took no time"
    assert address == find_agent(HOST, os.environ)


def test_a_stuck_agent_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "SILENT_S", 0.5)
    address = find_or_start(HOST, os.environ)
    os.kill(address.pid, signal.SIGSTOP)
    document = agent_dir(HOST, os.environ) / "agent.json"
    hidden = document.rename(document.with_suffix(".hidden"))
    try:
        with pytest.raises(AgentUnavailable, match=f"kill -9 {address.pid}"):
            find_or_start(HOST, os.environ)
    finally:
        hidden.rename(document)
        os.kill(address.pid, signal.SIGCONT)
    assert find_or_start(HOST, os.environ) == address


def test_a_failed_start_names_the_reason_and_the_log() -> None:
    env = {**os.environ, "REPLKERNEL_AGENT_IDLE_S": "soon"}
    with pytest.raises(AgentUnavailable) as raised:
        find_or_start(HOST, env)
    assert "REPLKERNEL_AGENT_IDLE_S" in str(raised.value)
    assert str(agent_dir(HOST, env) / "agent.log") in str(raised.value)


@pytest.mark.parametrize("address", ["203.0.113.7", "0.0.0.0", "somewhere"])
def test_an_address_that_is_not_of_this_machine_is_refused_in_one_sentence(address: str) -> None:
    with pytest.raises(AgentUnavailable) as raised:
        find_or_start(HOST, os.environ | {"REPLKERNEL_BIND": address})
    said = str(raised.value)
    assert f"REPLKERNEL_BIND={address!r}: " in said
    assert said.count("REPLKERNEL_BIND=") <= 2
    assert "Traceback" not in said


def test_raft_members_listen_at_the_address_of_the_setting(tmp_path: Path) -> None:
    env = standin_env(os.environ, REPLKERNEL_BIND="127.0.0.2")
    with RouterClient(find_or_start(HOST, env), make_spec(env, tmp_path)) as router:
        router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
        told = [message.raft_address for message in router.heard if isinstance(message, ReplicaPrepared)]
        assert [address.rpartition(":")[0] for address in told] == ["127.0.0.2"] * 3


def test_a_host_name_that_is_a_path_is_refused() -> None:
    with pytest.raises(AgentUnavailable, match="REPLKERNEL_HOSTS"):
        find_or_start("../elsewhere", os.environ)


def test_a_socket_directory_that_is_too_long_is_named(tmp_path: Path) -> None:
    env = {**os.environ, "REPLKERNEL_SOCKET_DIR": str(tmp_path / ("x" * 100))}
    with pytest.raises(AgentUnavailable, match="REPLKERNEL_SOCKET_DIR"):
        find_or_start(HOST, env)


def test_a_socket_directory_of_another_data_directorys_agent_is_refused(tmp_path: Path) -> None:
    address = find_or_start(HOST, os.environ)
    with pytest.raises(AgentUnavailable, match=f"an agent of host {HOST} with another data directory"):
        find_or_start(HOST, {**os.environ, "JUPYTER_DATA_DIR": str(tmp_path / "another")})
    with RouterClient(address) as router:
        router.wait(AgentWelcome)


def test_an_agent_without_kernels_and_routers_ends_itself() -> None:
    env = {**os.environ, "REPLKERNEL_AGENT_IDLE_S": "0.5"}
    address = find_or_start(HOST, env)
    end_process(address.pid, 0)
    assert not (agent_dir(HOST, env) / "agent.json").exists()


@pytest.mark.slow
def test_a_connected_router_keeps_the_agent_alive() -> None:
    env = {**os.environ, "REPLKERNEL_AGENT_IDLE_S": "0.5"}
    for _ in range(5):  # One that is held up meanwhile comes to an agent that has ended for lack of routers.
        with RouterClient(find_or_start(HOST, env)) as router:
            with contextlib.suppress(AssertionError):
                router.wait(AgentWelcome, timeout_s=10.0)
            if router.welcome is not None:
                time.sleep(1.0)
                assert router.status().hosts[0].name == HOST
                return
    pytest.fail("no agent lived long enough to welcome a router")


def test_a_wrong_token_is_refused() -> None:
    address = find_or_start(HOST, os.environ)
    with RouterClient(address._replace(token="guessed")) as router:
        assert "token" in router.wait(AgentRefuses).why
        router.send(StatusQuery(1))
        assert "RouterHello" in router.wait(AgentRefuses).why


@pytest.mark.slow
def test_a_router_that_names_no_process_is_refused() -> None:
    with RouterClient(find_or_start(HOST, os.environ), pid=-5) as router:
        assert "process -5" in router.wait(AgentRefuses).why


def test_nonsense_is_refused_and_does_not_hurt() -> None:
    with RouterClient(find_or_start(HOST, os.environ)) as router:
        router.wait(AgentWelcome)
        router.send_bytes(b"\xc1 not a message")
        assert "cannot read" in router.wait(AgentRefuses).why
        router.send(EndKernel(KernelId("somebody-elses"), "mischief"))
        assert "somebody-elses" in router.wait(AgentRefuses).why
        assert router.status().hosts[0].state == "up"


@pytest.mark.slow
def test_a_peer_that_does_not_read_delays_nobody() -> None:
    address = find_or_start(HOST, os.environ)
    with RouterClient(address) as deaf, RouterClient(address) as other:
        for number in range(20_000):
            deaf.send(StatusQuery(number))
        other.send(StatusQuery(1))
        document = other.wait(StatusAnswer, timeout_s=60.0).document
        assert read_document(document).hosts[0].state == "up"


def test_pretended_gpus_are_in_the_status() -> None:
    env = {**os.environ, "REPLKERNEL_FAKE_GPUS": "2"}
    with RouterClient(find_or_start(HOST, env)) as router:
        eventually(lambda: router.status().hosts[0].gpus, "the pretended GPUs", within_s=60.0)
        assert [gpu.fake for gpu in router.status().hosts[0].gpus] == [True, True]


def test_the_agents_file_says_what_lookups_need() -> None:
    address = find_or_start(HOST, os.environ)
    document = json.loads((agent_dir(HOST, os.environ) / "agent.json").read_text())
    assert document == {
        "name": HOST,
        "pid": address.pid,
        "router_endpoint": address.endpoint,
        "token": address.token,
        "version": address.version,
        "machine": this_machine(),
        "far_endpoint": "",
    }
