"""How leases stand, as the scheduler's REST status tells: asked for, and joined with what the agents tell.

Law: asking is bounded and goes to nobody but the scheduler, not by a proxy and not where a redirect leads;
the token is in no text. The joining is pure.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import msgspec

from replkernel.leasing.finding import find_scheduler
from replkernel.status import (
    GpuStatus,
    HostStatus,
    LeaseStatus,
    SchedulerStatus,
    StatusDocument,
    WaitingStatus,
)

ANSWER_S_MAX = 3.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
GB = 1e9


class ToldGpu(msgspec.Struct, frozen=True):
    """A GPU as the scheduler knows it; a lease that is somebody else's has no name here."""

    uuid: str
    lease: str | None = None
    model: str = ""
    memory_gb: float = 0.0
    state: str = ""
    utilisation: float | None = None
    memory_used_gb: float | None = None


class ToldHost(msgspec.Struct, frozen=True):
    """A host as the scheduler knows it."""

    name: str
    state: str = "up"
    gpus: tuple[ToldGpu, ...] = ()


class Standing(msgspec.Struct, frozen=True):
    """The scheduler's status; fields that it tells besides are skipped."""

    hosts: tuple[ToldHost, ...] = ()
    leases: tuple[LeaseStatus, ...] = ()
    queue: tuple[WaitingStatus, ...] = ()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: the token would go along."""

    def redirect_request(self, *args: Any) -> None:
        """Refuse."""


def fetch(env: Mapping[str, str], path: str) -> bytes:
    """Return what the scheduler answers at `path`; raises whatever can be wrong with it."""
    url, token = find_scheduler(env)
    if not url:
        raise ValueError("there is none")
    request = urllib.request.Request(  # noqa: S310 - the opener below knows http and https alone
        f"{url}{path}", headers={"Authorization": f"token {token}"}
    )
    if request.type not in ("http", "https"):
        raise ValueError("it is no http address")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    with opener.open(request, timeout=ANSWER_S_MAX) as answer:
        return bytes(answer.read(ANSWER_BYTES_MAX))


def ask_scheduler(env: Mapping[str, str]) -> tuple[SchedulerStatus | None, Standing]:
    """Return which scheduler there is, or what is wrong with it, and what it tells; None: there is none."""
    url, _ = find_scheduler(env)
    if not url:
        return None, Standing()
    try:
        return SchedulerStatus(url), msgspec.json.decode(fetch(env, "/api/v1/status"), type=Standing)
    except urllib.error.HTTPError as error:
        error.close()
        refused = error.code in (401, 403)
        why = "it refuses our token" if refused else f"it answers {error.code}"
    except msgspec.MsgspecError:
        why = "its answer is not understood; is it of this version?"
    except Exception as error:  # whatever a server that is no scheduler makes of HTTP
        reason = getattr(error, "reason", error)
        why = f"it does not answer ({getattr(reason, 'strerror', None) or reason})"
    return SchedulerStatus(url, why), Standing()


def join(document: StatusDocument, scheduler: SchedulerStatus | None, told: Standing) -> StatusDocument:
    """Return the agents' document with what the scheduler tells: leases, who waits, other hosts."""
    known = {host.name: host for host in told.hosts}
    here = [_with_leases(host, known.pop(host.name, None)) for host in document.hosts]
    there = [
        HostStatus(host.name, host.state, tuple(_gpu(gpu) for gpu in host.gpus)) for host in known.values()
    ]
    return msgspec.structs.replace(
        document,
        hosts=tuple(sorted([*here, *there], key=lambda host: host.name)),
        leases=told.leases,
        waiting=told.queue,
        scheduler=scheduler,
    )


def _with_leases(host: HostStatus, told: ToldHost | None) -> HostStatus:
    """Return an agent's host with the states of its GPUs; the agent knows best what they do."""
    by_uuid = {gpu.uuid: gpu for gpu in told.gpus} if told is not None else {}
    gpus = [
        msgspec.structs.replace(gpu, state=found.state, lease=found.lease or "")
        if (found := by_uuid.get(gpu.uuid)) is not None
        else gpu
        for gpu in host.gpus
    ]
    return msgspec.structs.replace(host, gpus=tuple(gpus))


def _gpu(told: ToldGpu) -> GpuStatus:
    return GpuStatus(
        told.uuid,
        told.model,
        round(told.memory_gb * GB),
        utilisation=told.utilisation,
        memory_used_bytes=None if told.memory_used_gb is None else round(told.memory_used_gb * GB),
        state=told.state,
        lease=told.lease or "",
    )
