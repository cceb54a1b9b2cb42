"""The addresses of the scheduler's REST, each with its handler: the one list that is served and described."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from tornado.routing import URLSpec

from replkernel_server.driver import SchedulerDriver
from replkernel_server.handlers import (
    scheduler_admin,
    scheduler_bookings,
    scheduler_jobs,
    scheduler_moves,
    scheduler_reports,
    scheduling,
)
from replkernel_server.handlers.channel import ChannelHandler
from replkernel_server.handlers.scheduler_base import Operation, SchedulerHandler
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.documents import Why
from replkernel_server.scheduling.identity import Identify
from replkernel_server.scheduling.metrics import Metrics
from replkernel_server.scheduling.openapi import openapi
from replkernel_server.scheduling.past import PastKeeper

ADDRESSES: dict[str, type[SchedulerHandler]] = {
    "/api/v1/status": scheduling.StatusHandler,
    "/api/v1/hosts": scheduling.HostsHandler,
    "/api/v1/hosts/{name}": scheduling.HostHandler,
    "/api/v1/hosts/{name}/draining": scheduler_admin.DrainHandler,
    "/api/v1/leases": scheduling.LeasesHandler,
    "/api/v1/leases/{lease}": scheduling.LeaseHandler,
    "/api/v1/leases/{lease}/renewal": scheduling.RenewalHandler,
    "/api/v1/leases/{lease}/lingering": scheduling.LingeringHandler,
    "/api/v1/requests/{request}": scheduling.RequestHandler,
    "/api/v1/kernels": scheduler_admin.KernelsHandler,
    "/api/v1/kernels/{kernel}": scheduler_admin.KernelHandler,
    "/api/v1/kernels/{kernel}/hosts": scheduler_moves.KernelHostsHandler,
    "/api/v1/kernels/{kernel}/placement": scheduler_moves.PlacementHandler,
    "/api/v1/kernels/{kernel}/migration": scheduler_moves.MigrationHandler,
    "/api/v1/jobs": scheduler_jobs.JobsHandler,
    "/api/v1/jobs/{job}": scheduler_jobs.JobHandler,
    "/api/v1/jobs/{job}/hold": scheduler_jobs.HoldHandler,
    "/api/v1/jobs/{job}/log": scheduler_jobs.LogHandler,
    "/api/v1/bookings": scheduler_bookings.BookingsHandler,
    "/api/v1/bookings/{booking}": scheduler_bookings.BookingHandler,
    "/api/v1/quotas": scheduler_admin.QuotasHandler,
    "/api/v1/quotas/{user}": scheduler_admin.QuotaHandler,
    "/api/v1/accounting": scheduler_reports.AccountingHandler,
    "/api/v1/past": scheduler_reports.PastHandler,
    "/metrics": scheduler_reports.MetricsHandler,
}

CHANNEL = "/api/v1/channel"


def pattern(address: str) -> str:
    """Return the regular expression of an address: a name in braces is one part of it."""
    parts = ["([^/]+)" if part.startswith("{") else part.replace(".", r"\.") for part in address.split("/")]
    return "/".join(parts)


def routes(
    driver: SchedulerDriver,
    identify: Identify,
    metrics: Metrics,
    channel: Channel,
    past: PastKeeper,
    prefix: str = "",
) -> list[URLSpec]:
    """Return the routes of the scheduler's API and of its channel, all of them below `prefix`."""
    wiring = {"driver": driver, "identify": identify, "metrics": metrics, "channel": channel, "past": past}
    before = re.escape(prefix)
    found = [URLSpec(before + pattern(address), handler, wiring) for address, handler in ADDRESSES.items()]
    talk = URLSpec(before + pattern(CHANNEL), ChannelHandler, {"channel": channel, "identify": identify})
    return [*found, talk, URLSpec(before + ".*", NowhereHandler, wiring)]


class NowhereHandler(SchedulerHandler):
    """Every other address: it wants the token too."""

    async def prepare(self) -> None:
        """Refuse whoever does not present a token; then say that nothing is here."""
        await super().prepare()
        if not self._finished:
            self.answer(404, Why("Nothing is at this address; GET /openapi.json lists them all."))


class OpenApiHandler(SchedulerHandler):
    """/openapi.json."""

    operations: ClassVar = {"get": Operation("This document.", {200: dict[str, Any]})}

    async def get(self) -> None:
        """Answer with the description of every address."""
        self.answer(200, openapi(ADDRESSES))


ADDRESSES["/openapi.json"] = OpenApiHandler
