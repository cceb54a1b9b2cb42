"""The scheduler's REST resources: status, hosts, leases, requests.

Law: every handler authenticates in `prepare`; what a request says is parsed into the scheduler's types
or answered with 400 and one sentence; each effect has one HTTP status.
"""

from __future__ import annotations

import hmac
import time
from typing import TypeVar

import msgspec
from replkernel_scheduler.effects import (
    Effect,
    HostRefused,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    LeaseUnknown,
)
from replkernel_scheduler.events import (
    HostDown,
    HostUp,
    LeaseAsked,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
)
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    Lease,
    LeaseId,
    LeaseRequest,
    RequestId,
)
from tornado import web
from tornado.routing import URLSpec

from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import BadRequest

ID_CHARS_MAX = 200
Body = TypeVar("Body")


class HostBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /api/v1/hosts: a host offers its GPUs."""

    name: str
    gpus: list[str]


class LeaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /api/v1/leases: a kernel asks for GPUs; `hosts` are those that may serve it (none: any)."""

    request: str
    kernel_id: str
    gpus: int
    ttl_s: float
    hosts: list[str] = []


class FenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /api/v1/leases/…/renewal: the holder proves itself by its fence."""

    fence: int


class SchedulerHandler(web.RequestHandler):
    """The base: authentication, parsing, answers in JSON."""

    def initialize(self, driver: SchedulerDriver, token: str) -> None:
        """Take what every handler needs."""
        self.driver = driver
        self._token = token

    def prepare(self) -> None:
        """Refuse whoever does not present the token."""
        given = self.request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"token {self._token}".encode()):
            self.answer(
                401, {"why": "Send the header 'Authorization: token …' with the scheduler's token file."}
            )

    def body(self, shape: type[Body]) -> Body:
        """Parse the request's body, or raise BadRequest with what is wrong with it."""
        try:
            return msgspec.json.decode(self.request.body, type=shape)
        except msgspec.MsgspecError as error:
            raise BadRequest(f"The request's body does not fit: {error}.") from error

    def answer(self, status: int, document: object) -> None:
        """Finish with `document` as JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(document))

    def answer_effects(self, effects: list[Effect], subject: str) -> None:
        """Answer with the effect that concerns `subject` (a host, request or lease)."""
        for effect in reversed(effects):
            outcome = _outcome(effect, subject)
            if outcome is not None:
                self.answer(*outcome)
                return
        self.answer(200, {})

    def write_error(self, status_code: int, **kwargs: object) -> None:
        """Answer errors as JSON too, without a traceback."""
        error = kwargs.get("exc_info")
        cause = error[1] if isinstance(error, tuple) else None
        if isinstance(cause, BadRequest):
            self.answer(cause.status, {"why": str(cause)})
        else:
            self.answer(status_code, {"why": self._reason})


def _outcome(effect: Effect, subject: str) -> tuple[int, dict[str, object]] | None:
    """Return HTTP status and document of `effect` if it is about `subject`."""
    match effect:
        case LeaseGranted(lease) if subject in (lease.request, lease.lease):
            return 201, {"lease": lease_document(lease)}
        case LeaseQueued(request, position, estimate_s) if subject == request:
            return 202, {"position": position, "estimate_s": estimate_s}
        case LeaseRefused(request, why) if subject == request:
            return 409, {"why": why}
        case LeaseEnded(lease, why) if subject == lease.lease:
            return 200, {"ended": why}
        case LeaseUnknown(lease_id, why) if subject == lease_id:
            return 410, {"why": why}
        case HostRefused(host, why) if subject == host:
            return 409, {"why": why}
    return None


def lease_document(lease: Lease) -> dict[str, object]:
    """Write a lease with the seconds that are left instead of a time on our clock."""
    return {
        "lease": lease.lease,
        "request": lease.request,
        "kernel_id": lease.kernel_id,
        "host": lease.host,
        "gpus": list(lease.gpus),
        "fence": lease.fence,
        "ttl_s": lease.ttl_s,
        "left_s": max(0.0, lease.expires_at - time.monotonic()),
    }


def check_id(text: str, what: str) -> str:
    """Return `text` if it can be an id, or raise BadRequest."""
    if not 0 < len(text) <= ID_CHARS_MAX:
        raise BadRequest(f"The {what} must have 1 to {ID_CHARS_MAX} characters.")
    return text


class StatusHandler(SchedulerHandler):
    """GET /api/v1/status: hosts with their GPUs, leases in force, requests that wait."""

    def get(self) -> None:
        """Answer with everything that the scheduler knows."""
        view = self.driver.core.view()
        holder = {gpu: entry.lease.lease for entry in view.leases for gpu in entry.lease.gpus}
        hosts = [
            {
                "name": host.name,
                "state": host.state,
                "gpus": [{"uuid": gpu.uuid, "lease": holder.get(gpu.uuid)} for gpu in host.gpus],
            }
            for host in view.hosts
        ]
        wishes = [entry.request for entry in view.waiting]
        queue = [{"request": w.request, "kernel_id": w.kernel_id, "gpus": w.gpus} for w in wishes]
        leases = [lease_document(entry.lease) for entry in view.leases]
        self.answer(200, {"hosts": hosts, "leases": leases, "queue": queue})


class HostsHandler(SchedulerHandler):
    """POST /api/v1/hosts."""

    def post(self) -> None:
        """Register a host, or replace what it offers."""
        body = self.body(HostBody)
        name = HostName(check_id(body.name, "host's name"))
        gpus = tuple(Gpu(GpuUuid(check_id(gpu, "GPU's UUID"))) for gpu in body.gpus)
        self.answer_effects(self.driver.apply(HostUp(name, gpus)), name)


class HostHandler(SchedulerHandler):
    """DELETE /api/v1/hosts/NAME."""

    def delete(self, name: str) -> None:
        """Take a host down: its leases end."""
        self.driver.apply(HostDown(HostName(name)))
        self.answer(200, {})


class LeasesHandler(SchedulerHandler):
    """POST /api/v1/leases."""

    def post(self) -> None:
        """Ask for a lease. Asking again with the same request id tells how it stands."""
        body = self.body(LeaseBody)
        wish = LeaseRequest(
            request=RequestId(check_id(body.request, "request id")),
            kernel_id=KernelId(check_id(body.kernel_id, "kernel id")),
            gpus=body.gpus,
            ttl_s=body.ttl_s,
            hosts=tuple(HostName(check_id(host, "host's name")) for host in body.hosts),
        )
        self.answer_effects(self.driver.apply(LeaseAsked(wish)), wish.request)


class LeaseHandler(SchedulerHandler):
    """DELETE /api/v1/leases/ID?fence=N."""

    def delete(self, lease: str) -> None:
        """Give a lease back."""
        fence = self.get_query_argument("fence", "")
        if not fence.isdecimal():
            raise BadRequest("Say which lease you hold: add its fence to the address, as ?fence=N.")
        self.answer_effects(self.driver.apply(LeaseReleased(LeaseId(lease), Fence(int(fence)))), lease)


class RenewalHandler(SchedulerHandler):
    """POST /api/v1/leases/ID/renewal."""

    def post(self, lease: str) -> None:
        """Let a lease begin anew from now."""
        fence = Fence(self.body(FenceBody).fence)
        self.answer_effects(self.driver.apply(LeaseRenewed(LeaseId(lease), fence)), lease)


class RequestHandler(SchedulerHandler):
    """DELETE /api/v1/requests/ID."""

    def delete(self, request: str) -> None:
        """Withdraw a request that waits."""
        self.driver.apply(LeaseWithdrawn(RequestId(request)))
        self.answer(200, {})


def routes(driver: SchedulerDriver, token: str) -> list[URLSpec]:
    """Return the routes of the scheduler's API."""
    wiring = {"driver": driver, "token": token}
    return [
        URLSpec(r"/api/v1/status", StatusHandler, wiring),
        URLSpec(r"/api/v1/hosts", HostsHandler, wiring),
        URLSpec(r"/api/v1/hosts/([^/]+)", HostHandler, wiring),
        URLSpec(r"/api/v1/leases", LeasesHandler, wiring),
        URLSpec(r"/api/v1/leases/([^/]+)", LeaseHandler, wiring),
        URLSpec(r"/api/v1/leases/([^/]+)/renewal", RenewalHandler, wiring),
        URLSpec(r"/api/v1/requests/([^/]+)", RequestHandler, wiring),
    ]
