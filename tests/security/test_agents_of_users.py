"""Agents that root starts for other users: they are those users for good, and know nothing of root's."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from replkernel_server.hub import HubConfigError, setup_replkernel
from replkernel_server.hub_agents import AgentsConfigError, UserAgents
from traitlets.config import Config

from tests.support.two_users import ALICE, BOB, HOMES, apart, as_login, needs_users

SECRET = "a-token-of-the-administrator"
AGENT = [sys.executable, "-m", "replkernel.cli", "agent"]
CELL = """
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="replkernel", startup_timeout=80)
said = []
client.execute_interactive(
    "import os; print(os.getuid(), os.getgid(), os.environ.get('REPLKERNEL_SCHEDULER_TOKEN'))",
    timeout=80,
    output_hook=lambda message: said.append(message["content"].get("text", "")),
)
print("".join(said).strip())
manager.shutdown_kernel(now=False)
"""


def start(user: str, host: str = "one", **env: str) -> tuple[int, str]:
    """Start a user's agent as an administrator does; return the exit code and what was said."""
    command = [*AGENT, "--as", user, "--name", host]
    done = subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, timeout=100, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, (done.stdout + done.stderr).strip()


def process(said: str) -> dict[str, Any]:
    """Return what the kernel says of the agent's process that was named."""
    pid = int(said.rpartition("process ")[2].rstrip("."))
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    limits = Path(f"/proc/{pid}/limits").read_text()
    return {
        "pid": pid,
        "uids": [int(word) for word in status["Uid"].split()],
        "gids": [int(word) for word in status["Gid"].split()],
        "groups": [int(word) for word in status["Groups"].split()],
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
        "environment": Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0"),
        "core": next(line.split()[4] for line in limits.splitlines() if line.startswith("Max core")),
        "directories": sorted(owners(HOMES / "alice")),
    }


def owners(directory: Path) -> set[int]:
    """Return whose the files below a directory are; whoever works there makes and removes some meanwhile."""
    found = set()
    for place, directories, files in os.walk(directory):
        for name in (*directories, *files):
            with contextlib.suppress(FileNotFoundError):
                found.add(os.lstat(Path(place, name)).st_uid)
    return found


def two_agents_on_one_host() -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    env = {"REPLKERNEL_SCHEDULER_TOKEN": SECRET, "REPLKERNEL_DEVICE_HOOK": "/hook", "PYTHONPATH_OF_ROOT": "1"}
    first = start("alice", **env)
    again, other = start("alice"), start("bob")
    cell = as_login("alice", sys.executable, "-c", CELL, REPLKERNEL_HOSTS="one", REPLKERNEL_REPLICAS="1")
    return {
        "said": [first, again, other],
        "alice": process(first[1]),
        "bob": process(other[1]),
        "cell": cell.stdout.strip().splitlines()[-1:] or [cell.stderr[-3000:]],
        "bob sees": as_login("bob", "ls", str(HOMES / "alice")).returncode,
    }


@pytest.mark.timeout(180)
@needs_users[0]
@needs_users[1]
def test_each_users_agent_runs_as_that_user_and_runs_his_cells() -> None:
    seen = apart(two_agents_on_one_host)
    (code, first), (_, again), (_, other) = seen["said"]
    assert code == 0 and first.startswith("The agent of host one runs as alice"), seen["said"]
    assert again == first, "a second one was started"
    assert other.startswith("The agent of host one runs as bob")
    for name, uid, groups in (("alice", ALICE, {ALICE, 12399}), ("bob", BOB, {BOB})):
        agent = seen[name]
        assert agent["uids"] == [uid] * 4 and agent["gids"] == [uid] * 4 and set(agent["groups"]) == groups
        assert agent["capabilities"] == 0 and agent["core"] == "0", "the limits of root's are not kept"
        told = "\n".join(agent["environment"])
        assert SECRET not in told and "DEVICE_HOOK" not in told and "OF_ROOT" not in told
        assert f"HOME=/tmp/homes/{name}" in told
    assert seen["alice"]["directories"] == [ALICE], "root has made something in a user's home"
    assert seen["cell"][0].split()[:2] == [str(ALICE)] * 2 and seen["cell"][0].endswith("None"), seen["cell"]
    assert seen["bob sees"] != 0


def links_in_the_way() -> dict[str, Any]:
    victim = Path("/tmp/victim")
    victim.write_text("root's\n")
    victim.chmod(0o600)
    agents = HOMES / "bob/.local/share/jupyter/replkernel/agents/one"
    as_login("bob", "mkdir", "-p", str(agents))
    for file in ("agent.log", "zygote-0.log", "agent.lock", "agent.json"):
        as_login("bob", "ln", "-s", str(victim), str(agents / file))
    program = HOMES / "bob/replkernel"
    as_login("bob", "sh", "-c", f'mkdir {program}; echo \'open("/tmp/ran","w")\' > {program}/__init__.py')
    said = start("bob")
    return {
        "said": said,
        "victim": victim.read_text(),
        "mode": victim.stat().st_mode & 0o777,
        "ran": Path("/tmp/ran").exists(),
    }


@pytest.mark.timeout(180)
@needs_users[0]
@needs_users[1]
def test_links_that_a_user_puts_in_the_way_lead_root_nowhere() -> None:
    seen = apart(links_in_the_way)
    assert seen["said"][0] == 1 and "was not started for bob" in seen["said"][1], seen
    assert seen["victim"] == "root's\n" and seen["mode"] == 0o600 and not seen["ran"]


def what_is_refused() -> dict[str, Any]:
    (HOMES / "alice").rmdir()
    as_bob = as_login("bob", *AGENT, "--as", "alice")
    return {
        "nobody": start("nobody-of-this-name"),
        "root": start("root"),
        "homeless": start("alice"),
        "bob": (as_bob.returncode, as_bob.stdout + as_bob.stderr),
    }


@pytest.mark.timeout(180)
@needs_users[0]
@needs_users[1]
def test_an_impossible_user_is_refused_by_name() -> None:
    seen = apart(what_is_refused)
    assert all(code == 1 for code, _ in seen.values()), seen
    assert "no Unix user 'nobody-of-this-name'" in seen["nobody"][1]
    assert "root is root" in seen["root"][1]
    assert "home directory /tmp/homes/alice cannot be entered" in seen["homeless"][1]
    assert "Only root starts the agent of another user" in seen["bob"][1]


# -- the Hub, before a user's server begins -----------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a;reboot", "$(reboot)", "-oProxyCommand=x", "a b", "a\nb", "../x", "", "ä"]
)
async def test_a_name_that_means_something_to_a_shell_reaches_no_command(name: str, tmp_path: Path) -> None:
    agents = UserAgents(["gpu1"], ["touch", f"{tmp_path}/ran", "{user}", "{host}"])
    (why,) = await agents.start(name)
    assert "is not the name of a Unix user" in why and not list(tmp_path.iterdir())


async def test_an_agent_that_cannot_be_started_is_reported_and_the_others_are(tmp_path: Path) -> None:
    script = tmp_path / "start"
    script.write_text(
        f"#!/bin/sh\nif test $2 = gpu2; then echo 'no route to gpu2'; exit 255; fi\ntouch {tmp_path}/$1-$2\n"
    )
    script.chmod(0o755)
    agents = UserAgents(["gpu1", "gpu2", "gpu3"], [str(script), "{user}", "{host}"], "jupyter-{username}")
    (why,) = await agents.start("alice")
    assert "jupyter-alice on host gpu2" in why and "no route to gpu2" in why
    assert {path.name for path in tmp_path.iterdir()} == {"start", "jupyter-alice-gpu1", "jupyter-alice-gpu3"}


async def test_a_command_that_hangs_does_not_keep_a_user_from_his_server() -> None:
    agents = UserAgents(["gpu1"], ["sh", "-c", "sleep 600 & wait # {user} {host}"], start_s=0.2)
    (why,) = await agents.start("alice")
    assert "did not end within 0.2 s" in why


def test_the_hubs_configuration_gets_the_hook_and_keeps_its_own() -> None:
    c, own = Config(), lambda spawner: None
    c.Spawner.pre_spawn_hook = own
    setup_replkernel(c, agents_on=["gpu1"])
    hook = c.Spawner.pre_spawn_hook
    assert isinstance(hook, UserAgents) and hook.before is own
    setup_replkernel(c, agents_on=["gpu1"])
    assert c.Spawner.pre_spawn_hook is hook and hook.before is own
    with pytest.raises(HubConfigError, match="contradict"):
        setup_replkernel(c, agents_on=["gpu2"])
    c = Config()
    setup_replkernel(c)
    assert "pre_spawn_hook" not in c.Spawner
    c.KubeSpawner.pre_spawn_hook = own
    setup_replkernel(c)
    assert c.KubeSpawner.pre_spawn_hook is own
    setup_replkernel(c, agents_on=["gpu1"])
    for kind in (c.Spawner, c.KubeSpawner):
        assert isinstance(kind.pre_spawn_hook, UserAgents)
    assert c.KubeSpawner.pre_spawn_hook.before is own


@pytest.mark.parametrize(
    ("command", "user", "host"),
    [
        (["start"], "{username}", "a"),
        (["start", "{user}", "{home}"], "{username}", "a"),
        (["x", "{user}", "{host}"], "me", "a"),
        (["x", "{user}", "{host}"], "{username}", "-a"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(command: list[str], user: str, host: str) -> None:
    with pytest.raises(AgentsConfigError):
        UserAgents([host], command, user)
