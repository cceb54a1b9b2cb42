"""The addresses of the scheduler's REST, each with its handler: the one list that is served and described."""

from __future__ import annotations

from tornado.routing import URLSpec

from replkernel_server.driver import SchedulerDriver
from replkernel_server.handlers import scheduling
from replkernel_server.handlers.scheduler_base import SchedulerHandler
from replkernel_server.scheduling.metrics import Metrics

ADDRESSES: dict[str, type[SchedulerHandler]] = {
    "/api/v1/status": scheduling.StatusHandler,
    "/api/v1/hosts": scheduling.HostsHandler,
    "/api/v1/hosts/{name}": scheduling.HostHandler,
    "/api/v1/leases": scheduling.LeasesHandler,
    "/api/v1/leases/{lease}": scheduling.LeaseHandler,
    "/api/v1/leases/{lease}/renewal": scheduling.RenewalHandler,
    "/api/v1/leases/{lease}/lingering": scheduling.LingeringHandler,
    "/api/v1/requests/{request}": scheduling.RequestHandler,
}


def pattern(address: str) -> str:
    """Return the regular expression of an address: a name in braces is one part of it."""
    parts = ["([^/]+)" if part.startswith("{") else part.replace(".", r"\.") for part in address.split("/")]
    return "/".join(parts)


def routes(driver: SchedulerDriver, token: str, metrics: Metrics) -> list[URLSpec]:
    """Return the routes of the scheduler's API."""
    wiring = {"driver": driver, "token": token, "metrics": metrics}
    return [URLSpec(pattern(address), handler, wiring) for address, handler in ADDRESSES.items()]
