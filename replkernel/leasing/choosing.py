"""On which hosts a new kernel begins, where REPLKERNEL_HOSTS leaves that to the scheduler.

Law: only hosts whose agents this user finds are taken; whatever cannot be asked or found is told in a
sentence, and the kernel begins on its own machine: a cell without GPUs needs no scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from replkernel.agent.lookup import find_agent
from replkernel.errors import UNREADABLE, SettingError
from replkernel.leasing.asking import Bounds, NoAnswer, ask, explained
from replkernel.leasing.finding import find_scheduler
from replkernel.records import KernelId
from replkernel.settings import host_name

SPARES = 2
"""So many hosts beyond those of the replicas are kept, to take the place of one that is lost."""
BOUNDS = Bounds(silent_s=2.0, within_s=3.0, bytes_max=64 * 1024)
HERE = "REPLKERNEL_HOSTS=auto: all replicas of this kernel are on this machine, for"


class Choice(msgspec.Struct, frozen=True):
    """What the scheduler answers."""

    hosts: tuple[str, ...]


def choose_hosts(kernel_id: KernelId, replicas: int, env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Return hosts for so many replicas with SPARES, and what there is to tell of that (or nothing)."""
    named, why = _asked(kernel_id, env)
    if why:
        return (host_name(env),), f"{HERE} {why}"
    found = [host for host in named if find_agent(host, env) is not None][: replicas + SPARES]
    if not found:
        had = f"has {len(named)} hosts, and none has" if named else "has no hosts with"
        return (host_name(env),), (
            f"{HERE} the scheduler {had} an agent that is found from here: start them as this user, "
            "who shares his home with them, or name hosts with their addresses (REPLKERNEL_HOSTS)."
        )
    if len(found) < replicas:
        hosts = f"{len(found)} host{'' if len(found) == 1 else 's'}"
        return tuple(found), (
            f"REPLKERNEL_HOSTS=auto: the scheduler has {hosts} with agents of yours for {replicas} replicas, "
            "so some share a host, and are lost with it: start agents on more, or set REPLKERNEL_REPLICAS."
        )
    return tuple(found), ""


def _asked(kernel_id: KernelId, env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Return the hosts that the scheduler names, the best first, or why there are none."""
    url, token = find_scheduler(env)
    if not url:
        return (), "no scheduler runs: start `replkernel scheduler --launcher …`, or name hosts."
    try:
        path = f"/api/v1/kernels/{quote(kernel_id, safe='')}/hosts"
        return msgspec.json.decode(ask(url, token, path, BOUNDS), type=Choice).hosts, ""
    except NoAnswer as error:
        return (), f"the scheduler names none. {explained(url, env, error)}"
    except SettingError as error:
        return (), f"the scheduler cannot be asked. {error}"
    except UNREADABLE:
        return (), "the scheduler's answer is not understood; is it of this version?"
