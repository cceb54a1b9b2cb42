"""Hosts on other machines: which settings name them, what is started where, and what lets us in there."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import find_agent, find_or_start, stop_agent
from replkernel.agent.io.start import ENGINE, JOB_ON_CORES, SETTLED, begin_early, lives_elsewhere
from replkernel.errors import AgentUnavailable, SettingError
from replkernel.hosts.far_sockets import far_endpoint, is_far, new_keys
from replkernel.hosts.hosts_secret import agent_keys, agent_token, read_secret
from replkernel.hosts.places import given_address, named_hosts, this_machine
from replkernel.hosts.reach import Reach
from replkernel.leasing import starting
from replkernel.leasing.starting import SchedulerNotStarted
from replkernel.settings import read_settings

SECRET = b"0123456789abcdef0123456789abcdef"
STORE = {"REPLKERNEL_STORE": "s3://bucket/prefix"}


def told(directory: Path, host: str, **fields: object) -> dict[str, str]:
    """Write an agent's file; return the environment in which it is found."""
    place = directory / "replkernel" / "agents" / host
    place.mkdir(parents=True)
    document = {
        "name": host,
        "pid": os.getpid(),
        "router_endpoint": f"ipc://{directory}/nobody.sock",
        "token": "t",
        "version": "1",
        "machine": "another",
        "far_endpoint": far_endpoint("10.0.0.5", 7700, new_keys().public),
    }
    (place / "agent.json").write_text(json.dumps(document | fields))
    return {"JUPYTER_DATA_DIR": str(directory)}


def test_hosts_may_be_named_with_addresses() -> None:
    env = STORE | {"REPLKERNEL_HOSTS": "gpu1=10.0.0.5:7700, gpu2 ,gpu3=[fd00::3]:7700"}
    assert named_hosts(env) == read_settings(env).hosts == ("gpu1", "gpu2", "gpu3")
    assert [given_address(host, env) for host in named_hosts(env)] == ["10.0.0.5:7700", "", "[fd00::3]:7700"]


@pytest.mark.parametrize(
    "entry", ["gpu1=", "gpu1=10.0.0.5", "gpu1=10.0.0.5:x", "=10.0.0.5:1", "gpu1=h:70000"]
)
def test_an_address_that_is_none_is_refused_by_name(entry: str) -> None:
    with pytest.raises(SettingError, match=r"REPLKERNEL_HOSTS=.*ADDRESS:PORT"):
        read_settings(STORE | {"REPLKERNEL_HOSTS": entry})


def test_hosts_that_share_no_directory_need_a_store_that_all_reach() -> None:
    with pytest.raises(SettingError, match=r"REPLKERNEL_STORE.*gpu1 is named with its address.*s3://"):
        read_settings({"REPLKERNEL_HOSTS": "gpu1=10.0.0.5:7700"})


def test_a_machine_listens_for_itself_unless_told_otherwise() -> None:
    assert not read_settings({}).reach().spans
    assert not read_settings({"REPLKERNEL_BIND": "127.0.0.9"}).reach().spans
    assert read_settings({"REPLKERNEL_BIND": "10.0.0.5"}).reach() == Reach("10.0.0.5", "10.0.0.5")


def test_a_machine_of_several_networks_says_which_address_others_use() -> None:
    env = {"REPLKERNEL_BIND": "0.0.0.0", "REPLKERNEL_ADVERTISE": "10.0.0.5", "REPLKERNEL_PORTS": "7700-7799"}
    reach = read_settings(env).reach()
    assert reach == Reach("0.0.0.0", "10.0.0.5", 7700, 7799)
    assert sorted(reach.ports()) == list(range(7700, 7800))
    with pytest.raises(SettingError, match="REPLKERNEL_ADVERTISE"):
        read_settings({"REPLKERNEL_BIND": "0.0.0.0"})


@pytest.mark.parametrize("ports", ["7700", "7799-7700", "80-90", "1024-70000", "a-b"])
def test_a_range_of_ports_that_is_none_is_refused(ports: str) -> None:
    with pytest.raises(SettingError, match="REPLKERNEL_PORTS"):
        read_settings({"REPLKERNEL_PORTS": ports})


def test_an_agent_of_another_machine_is_found_there_and_its_process_number_is_not_looked_at(
    tmp_path: Path,
) -> None:
    env = told(tmp_path, "gpu1", pid=2**22)
    address = find_agent("gpu1", env)
    assert address is not None
    assert address.far
    assert is_far(address.endpoint)
    with pytest.raises(AgentUnavailable, match="another machine: run `replkernel agent stop gpu1` there"):
        stop_agent("gpu1", env)


def test_an_agent_of_this_machine_is_asked_here(tmp_path: Path) -> None:
    assert find_agent("gpu1", told(tmp_path, "gpu1", machine=this_machine())) is None, "nobody listens"


def test_a_host_that_has_settled_on_another_machine_is_not_started_here(tmp_path: Path) -> None:
    env = {"JUPYTER_DATA_DIR": str(tmp_path)}
    place = tmp_path / "replkernel" / "agents" / "gpu1"
    place.mkdir(parents=True)
    assert lives_elsewhere("gpu1", env) == ""
    (place / SETTLED).write_text("the-machine-gpu1\n")
    assert "machine the-machine-gpu1" in lives_elsewhere("gpu1", env)
    assert begin_early("gpu1", env) is None
    assert lives_elsewhere("gpu1", env | {"REPLKERNEL_HOST_NAME": "gpu1"}) == "", "it is this machine's own"
    (place / SETTLED).write_text(f"{os.uname().nodename}\n")
    assert lives_elsewhere("gpu1", env) == ""


def test_a_host_that_an_engine_starts_is_started_by_nobody_else(tmp_path: Path) -> None:
    env = {"JUPYTER_DATA_DIR": str(tmp_path), "REPLKERNEL_HOST_NAME": "n1"}
    place = tmp_path / "replkernel" / "agents" / "n1"
    place.mkdir(parents=True)
    assert lives_elsewhere("n1", env) == ""
    (place / ENGINE).write_text("Slurm (job 17)\n")
    assert lives_elsewhere("n1", env) == "it is started by Slurm (job 17)", "on its own machine too"
    assert begin_early("n1", env) is None
    with pytest.raises(AgentUnavailable, match=r"n1 does not answer. Slurm \(job 17\) starts it, and nobody"):
        find_or_start("n1", env, timeout_s=5)


def test_from_within_a_job_on_cores_no_agent_and_no_scheduler_is_started(tmp_path: Path) -> None:
    env = {"JUPYTER_DATA_DIR": str(tmp_path), "REPLKERNEL_HOST_NAME": "n1", JOB_ON_CORES: "2"}
    assert begin_early("n1", env) is None
    with pytest.raises(AgentUnavailable, match="n1 does not run, and a job without GPUs starts none"):
        find_or_start("n1", env, timeout_s=5)
    with pytest.raises(SchedulerNotStarted, match="a job without GPUs starts none"):
        asyncio.run(starting.find_or_start(env))
    assert find_agent("n1", env) is None and not (tmp_path / "replkernel" / "scheduler").exists()


def test_of_named_hosts_a_machine_among_others_starts_its_own_alone(tmp_path: Path) -> None:
    env = {"JUPYTER_DATA_DIR": str(tmp_path), "REPLKERNEL_HOSTS": "a,b", "REPLKERNEL_HOST_NAME": "a"}
    assert lives_elsewhere("b", env) == "", "on one machine, all may be its own"
    env["REPLKERNEL_BIND"] = "10.0.0.1"
    assert lives_elsewhere("a", env) == ""
    assert "REPLKERNEL_BIND" in lives_elsewhere("b", env)
    assert lives_elsewhere("c", env | {"REPLKERNEL_HOSTS": "a,b,c=10.0.0.3:7700"}) != ""


def test_a_hosts_keys_and_token_follow_from_the_secret_and_the_name_alone() -> None:
    assert agent_keys(SECRET, "gpu1") == agent_keys(SECRET, "gpu1")
    assert agent_token(SECRET, "gpu1") == agent_token(SECRET, "gpu1")
    others = [agent_token(SECRET, "gpu2"), agent_token(SECRET + b"x", "gpu1")]
    assert len({agent_token(SECRET, "gpu1"), *others, agent_keys(SECRET, "gpu1").secret.decode()}) == 4
    assert "b'" not in repr(agent_keys(SECRET, "gpu1")), "keys are shown to nobody"


def test_a_secret_that_others_can_read_or_guess_is_refused(tmp_path: Path) -> None:
    env = {"JUPYTER_DATA_DIR": str(tmp_path)}
    path = tmp_path / "replkernel" / "hosts.secret"
    assert read_secret(env) is None
    path.parent.mkdir()
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o644)
    with pytest.raises(SettingError, match=r"chmod 600"):
        read_secret(env)
    path.chmod(0o600)
    assert read_secret(env) == SECRET
    path.write_bytes(b"short\n")
    with pytest.raises(SettingError, match=r"shorter than 32.*openssl rand"):
        read_secret(env)
    with pytest.raises(SettingError, match="no such file"):
        read_secret({"REPLKERNEL_HOSTS_SECRET_FILE": str(tmp_path / "none")})


def test_a_host_with_an_address_and_without_a_secret_says_what_is_missing(tmp_path: Path) -> None:
    env = {"JUPYTER_DATA_DIR": str(tmp_path), "REPLKERNEL_HOSTS": "gpu1=10.0.0.5:7700"}
    with pytest.raises(AgentUnavailable, match=r"hosts\.secret"):
        find_agent("gpu1", env)
