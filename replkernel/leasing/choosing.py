"""On which hosts a new kernel begins, where REPLKERNEL_HOSTS leaves that to the scheduler.

It places the kernel by its request, and is asked again while hosts are on their way to it. Law: only hosts
whose agents this user finds are taken; whatever cannot be asked, found or had is told in a sentence, and the
kernel begins on the next best hosts, or on its own machine: a cell without GPUs needs no scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from replkernel.agent.io.lookup import find_agent
from replkernel.errors import UNREADABLE, SettingError
from replkernel.leasing.asking import Bounds, NoAnswer, ask, explained
from replkernel.leasing.finding import find_scheduler
from replkernel.leasing.request import GpuRequest, in_words
from replkernel.records import KernelId
from replkernel.settings import host_name

SPARES = 2
"""So many hosts beyond those of the replicas are kept, to take the place of one that is lost."""
BOUNDS = Bounds(silent_s=10.0, within_s=15.0, bytes_max=64 * 1024)
"""A kernel lives on the hosts that are named now, so a scheduler that is busy is waited for."""
AGAIN_S = 0.5
"""So often the scheduler is asked again while hosts are on their way."""
WITHOUT_MAX = 64
AUTO = "REPLKERNEL_HOSTS=auto:"
HERE = f"{AUTO} all replicas of this kernel are on this machine, for"
_NO_ROOM = "no host has room for it below the subscription limit, and none is on its way"


class Choice(msgspec.Struct, frozen=True):
    """The hosts that the scheduler names."""

    hosts: tuple[str, ...]


class Stands(msgspec.Struct, frozen=True):
    """How the kernel's placement stands: on `hosts`, or `coming` hosts on their way to it."""

    hosts: tuple[str, ...] = ()
    missing: int = 0
    coming: int = 0


def choose_hosts(
    kernel_id: KernelId,
    replicas: int,
    env: Mapping[str, str],
    wanted: GpuRequest | None = None,
    wait_s: float = 0.0,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[tuple[str, ...], str]:
    """Return hosts for so many replicas with SPARES, and what there is to tell of that (or nothing).

    The kernel is placed for what is `wanted`, and waits for hosts on their way for `wait_s`, which it `say`s.
    """
    wanted = wanted or GpuRequest(0)
    try:
        scheduler = _Scheduler(kernel_id, env)
        named = scheduler.hosts()
        found = [host for host in named if find_agent(host, env) is not None]
        without = [host for host in named if host not in found]
        if not found and named:
            return (host_name(env),), _nobody(len(named))
        placed, why = scheduler.place(wanted, replicas, without, wait_s, say)
    except _Unasked as error:
        return (host_name(env),), f"{HERE} {error}"
    took = [host for host in placed if host in found or find_agent(host, env) is not None]
    others = [host for host in found if host not in took]
    if took and len(took) == min(replicas, len(placed)):
        return _taken(took, others, replicas)
    if not found:
        return (host_name(env),), f"{HERE} {why}." if why else _nobody(len(placed))
    hosts = tuple(found[: replicas + SPARES])
    lost = [host for host in placed if host not in took]
    why = why or f"the scheduler places it on {', '.join(lost)} too, where no agent of yours is found"
    on = ", ".join(hosts[:replicas])
    return (
        hosts,
        f"{AUTO} this kernel, which asks for {in_words(wanted)}, begins on {on} all the same: {why}.",
    )


def _taken(took: list[str], others: list[str], replicas: int) -> tuple[tuple[str, ...], str]:
    if len(took) >= replicas:
        return (*took, *others[:SPARES]), ""
    hosts = f"{len(took)} host{'' if len(took) == 1 else 's'}"
    return tuple(took), (
        f"{AUTO} the scheduler has {hosts} with room and agents of yours for {replicas} replicas, "
        "so some share a host, and are lost with it: start agents on more, or set REPLKERNEL_REPLICAS."
    )


def _nobody(named: int) -> str:
    had = f"has {named} hosts, and none has" if named else "has no hosts with"
    return (
        f"{HERE} the scheduler {had} an agent that is found from here: start them as this user, "
        "who shares his home with them, or name hosts with their addresses (REPLKERNEL_HOSTS)."
    )


class _Unasked(Exception):
    """The scheduler cannot be asked; the text says why, as the end of a sentence."""


class _Scheduler:
    """The scheduler, asked about one kernel."""

    def __init__(self, kernel_id: KernelId, env: Mapping[str, str]) -> None:
        self._url, self._token = find_scheduler(env)
        if not self._url:
            raise _Unasked("no scheduler runs: start `replkernel scheduler --launcher …`, or name hosts.")
        self._env, self._path = env, f"/api/v1/kernels/{quote(kernel_id, safe='')}"

    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that are up, the best first; raises _Unasked."""
        try:
            return msgspec.json.decode(self._ask("hosts"), type=Choice).hosts
        except NoAnswer as error:
            raise _Unasked(f"the scheduler names none. {explained(self._url, self._env, error)}") from error
        except SettingError as error:
            raise _Unasked(f"the scheduler cannot be asked. {error}") from error
        except UNREADABLE as error:
            raise _Unasked("the scheduler's answer is not understood; is it of this version?") from error

    def place(
        self,
        wanted: GpuRequest,
        replicas: int,
        without: list[str],
        wait_s: float,
        say: Callable[[str], object],
    ) -> tuple[tuple[str, ...], str]:
        """Have the kernel placed; return its hosts, or none and why, as a clause."""
        body = {
            "gpus": wanted.gpus,
            "replicas": replicas,
            "gpu_model": wanted.model,
            "vram_gb": wanted.vram_gb,
            "cpu": wanted.cpu,
            "memory_gb": wanted.memory_gib,
            "without": without[:WITHOUT_MAX],
        }
        until, said = time.monotonic() + wait_s, False
        try:
            stands = self._stands("POST", msgspec.json.encode(body))
            while not stands.hosts and stands.coming:
                if time.monotonic() >= until:
                    late = f"{stands.coming} on their way have not come within {wait_s:g} s"
                    return (), f"{late} (REPLKERNEL_PLACE_WAIT_S)"
                if not said:
                    say(f"{AUTO} this kernel waits for {stands.coming} hosts that are on their way to it.")
                said = True
                time.sleep(AGAIN_S)
                stands = self._stands("GET")
        except NoAnswer as error:
            return (), (error.said or f"the scheduler does not place it, for {error.why}").rstrip(".")
        except UNREADABLE:
            return (), "the scheduler's answer is not understood, so it may be of another version"
        return stands.hosts, "" if stands.hosts else _NO_ROOM

    def _stands(self, method: str, body: bytes | None = None) -> Stands:
        return msgspec.json.decode(self._ask("placement", method, body), type=Stands)

    def _ask(self, what: str, method: str = "GET", body: bytes | None = None) -> bytes:
        return ask(self._url, self._token, f"{self._path}/{what}", BOUNDS, method, body)
