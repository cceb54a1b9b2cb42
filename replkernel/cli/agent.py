"""`replkernel agent`: run the host agent in the foreground, list agents, stop one, tell what it measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from replkernel.agent.io.lookup import (
    AgentAddress,
    agent_dir,
    check_host_name,
    find_agent,
    reaches,
    stop_agent,
)
from replkernel.agent.io.start import ENGINE, JOB_ON_CORES, outside_jobs
from replkernel.cli.agent_as import run_agent_as
from replkernel.client.inquiry import agent_names
from replkernel.errors import AgentUnavailable
from replkernel.hosts.places import given_address
from replkernel.launch.module_command import module_command
from replkernel.settings import host_name, read_settings


def run_agent(
    act: str | None,
    name: str | None,
    host: str | None,
    fake_gpus: int | None,
    reach: Mapping[str, str],
    user: str | None = None,
) -> int:
    """Do what `act` says (None: run in the foreground); return the exit code.

    `reach` are settings of how other machines reach it, which the command line gave. `user`: whose it is,
    where root starts that of somebody else.
    """
    os.environ.update(reach)
    chosen = check_host_name(host or name or host_name(os.environ))
    if user is not None:
        if act is not None or fake_gpus is not None:
            raise AgentUnavailable(f"--as {user} only starts an agent: leave out `{act or '--fake-gpus'}`.")
        return run_agent_as(user, chosen, os.environ)
    match act:
        case "list":
            return _list()
        case "stop":
            return _stop(chosen, asked=bool(host or name))
        case "phases":
            return _phases(chosen)
    return _run(chosen, fake_gpus)


def _run(host: str, fake_gpus: int | None) -> int:
    """Become the agent; return only if one is there already."""
    if os.environ.get(JOB_ON_CORES):
        raise AgentUnavailable(
            "A job without GPUs cannot become a host agent, which would have its low priority and its memory "
            "limit: start the agent outside the job."
        )
    address = None if given_address(host, os.environ) else find_agent(host, os.environ)
    if address is not None and not reaches(address):
        where = "on another machine" if address.far else f"process {address.pid}"
        print(
            f"The agent of host {host} runs already ({where}): stop it with `replkernel agent stop {host}` "
            f"{'there' if address.far else 'first'}.",
            file=sys.stderr,
        )
        return 1
    (agent_dir(host, os.environ) / ENGINE).unlink(missing_ok=True)
    reach = read_settings(os.environ).reach()
    others = f", and listens at {reach.bind} for other machines" if reach.spans else ""
    print(f"The agent of host {host} runs until Ctrl-C{others}.", flush=True)
    pretended = [] if fake_gpus is None else ["--fake-gpus", str(fake_gpus)]
    command = module_command("replkernel.agent", "--name", host, *pretended, "--stay")
    os.execve(sys.executable, command, outside_jobs(os.environ))


def _list() -> int:
    names = agent_names(os.environ)
    if not names:
        print("No agent has run here yet: the first kernel starts one.")
    for name in names:
        address = find_agent(name, os.environ)
        print(f"{name}  " + ("not running" if address is None else _place(address)))
    return 0


def _place(address: AgentAddress) -> str:
    """Return where an agent is; the key in the address of one on another machine is shown to nobody."""
    if address.far:
        return f"on another machine, {address.endpoint.rpartition('/')[0]}"
    return f"process {address.pid}, {address.endpoint}"


def _phases(host: str) -> int:
    """Write when kernels of a host computed and when they idled, as a trace."""
    from replkernel.agent.core.phases import swf_lines
    from replkernel.agent.io.measuring import kept_in

    kept = kept_in(agent_dir(host, os.environ))
    lines = list(swf_lines([*kept.over, *(one.record for one in kept.living)]))
    if len(lines) < 2:
        print(
            f"Nothing is recorded of kernels on host {host} yet: its agent writes it down every 5 minutes.",
            file=sys.stderr,
        )
        return 1
    print("\n".join(lines))
    return 0


def _stop(host: str, *, asked: bool) -> int:
    """Stop a host's agent; that one that was `asked` for by name is not there is an error."""
    if stop_agent(host, os.environ):
        print(f"The agent of host {host} and its kernels have ended.")
        return 0
    text = f"No agent of host {host} is running; `replkernel agent list` shows those there are."
    if asked:
        print(text, file=sys.stderr)
        return 1
    print(text)
    return 0
