"""`python -m replkernel_server.launchers.slurm_agent FILE`: what a Slurm job runs on its node: a host agent.

It is named for its node, offers exactly the GPUs of its job, and takes its settings and secrets from FILE,
which only its user can read. Law: it replaces itself by the agent, so that Slurm's signals reach that one.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from replkernel.agent.io.start import ENGINE, is_host_name
from replkernel.errors import UNREADABLE
from replkernel.hosts.own_file import read_own
from replkernel.hosts.places import agent_place
from replkernel.launch.module_command import module_command

FILE_BYTES_MAX = 256 * 1024
GPUS_MAX = 1024
VISIBLE = "CUDA_VISIBLE_DEVICES"


class AgentSettings(msgspec.Struct, frozen=True):
    """What FILE says: the agent's environment, and how it is named and reached."""

    env: dict[str, str] = {}
    host_prefix: str = ""
    bind: str = "auto"
    pretend: bool = False


class JobError(Exception):
    """This is no job, or none in which an agent can run; the message says what to change."""


def agent_name(job: Mapping[str, str], prefix: str) -> str:
    """Return the host's name: the node's."""
    name = prefix + job.get("SLURMD_NODENAME", "")
    if not job.get("SLURM_JOB_ID") or not is_host_name(name):
        raise JobError(
            f"This is not a Slurm job, or its node's name cannot name a host ({name!r}): run it by sbatch."
        )
    return name


def gpus_of(job: Mapping[str, str]) -> int:
    """Return how many GPUs Slurm has given to the job on this node."""
    said = job.get("SLURM_GPUS_ON_NODE", "")
    if said.isascii() and said.isdecimal() and len(said) < 6:
        return min(int(said), GPUS_MAX)
    listed = job.get("SLURM_JOB_GPUS", "") or job.get("SLURM_STEP_GPUS", "")
    return min(len([word for word in listed.split(",") if word.strip()]), GPUS_MAX)


def agent_environment(job: Mapping[str, str], settings: AgentSettings, address: str) -> dict[str, str]:
    """Return the agent's environment; a job without GPUs is to see none, whatever the node has."""
    env = {**job, **settings.env}
    if address:
        env["REPLKERNEL_BIND"] = address
    if gpus_of(job):
        env[VISIBLE] = job.get(VISIBLE, "") or job.get("SLURM_JOB_GPUS", "")
    else:
        env[VISIBLE] = ""
    return env


def agent_command(python: str, name: str, job: Mapping[str, str], *, pretended: bool) -> list[str]:
    """Return the agent's command line."""
    fake = ["--fake-gpus", str(gpus_of(job) if pretended else 0)]
    return module_command("replkernel.agent", "--name", name, *fake, "--stay", python=python)


def own_address(bind: str, job: Mapping[str, str]) -> str:
    """Return the address to listen at: as said, or the one from which the submitting host is reached."""
    if bind != "auto":
        return bind
    towards = job.get("SLURM_SUBMIT_HOST", "")
    try:
        found = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)
        family, kind, _, _, place = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # Nothing is sent: the system only says which way it would go.
            return str(probe.getsockname()[0])
    except OSError as error:
        raise JobError(
            f"This node does not know how the submitting host {towards!r} is reached ({error}): name the "
            "address to listen at by the launcher's `bind`, or empty for none."
        ) from error


def _write_to(file: Path) -> None:
    """Let the agent write where agents do, which is bounded; the job's own output is not."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def main(arguments: list[str]) -> None:
    """Become the agent of this node."""
    if len(arguments) != 1:
        sys.exit("usage: python -m replkernel_server.launchers.slurm_agent FILE")
    job = dict(os.environ)
    try:
        settings = msgspec.json.decode(read_own(Path(arguments[0]), FILE_BYTES_MAX), type=AgentSettings)
        name = agent_name(job, settings.host_prefix)
        env = agent_environment(job, settings, own_address(settings.bind, job))
        place = Path(agent_place(name, env))
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / ENGINE).write_text(f"Slurm (job {job['SLURM_JOB_ID']})\n", encoding="utf-8")
        _write_to(place / "agent.log")
    except (OSError, *UNREADABLE, JobError) as error:
        sys.exit(f"The agent of this job cannot start: {error}")
    command = agent_command(sys.executable, name, job, pretended=settings.pretend)
    os.execve(command[0], command, env)


if __name__ == "__main__":
    main(sys.argv[1:])
