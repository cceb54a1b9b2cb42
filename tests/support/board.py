"""The Grafana board that we publish, and figures of a scheduler in which all of its panels show something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from replkernel_scheduler.events import LeaseReleased, PricesSet, QuotaSet
from replkernel_scheduler.types import Prices, UserName, UserQuota
from replkernel_server.scheduling.metrics import Clients, JournalFigures, Metrics

from replkernel.leasing.wire import GpuUse
from tests.unit.scheduler.cluster import Cluster, granted

FILE = Path(__file__).parents[2] / "docs/deployments/monitoring/grafana.json"


class Query(NamedTuple):
    """One line of a panel."""

    panel: str
    expression: str
    legend: str


def board() -> dict[str, Any]:
    """Return the board."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def queries() -> list[Query]:
    """Return every line of every panel."""
    return [
        Query(panel["title"], target["expr"], target["legendFormat"])
        for panel in board()["panels"]
        for target in panel["targets"]
    ]


def figures(decisions: int = 0) -> bytes:
    """Return what a scheduler tells Prometheus that has seen leases, refusals, prices and budgets.

    It has decided so many times more that nothing follows.
    """
    cluster = Cluster()
    metrics = Metrics(cluster.core.view())
    cluster.feed(PricesSet(Prices((("", 1.0),), host_hour=10.0, currency="USD")))
    cluster.host("a", 4, "H100", 80.0)
    cluster.kernel("k")
    cluster.feed(QuotaSet(UserName("ada"), UserQuota(group_budgets=(("class", 1000.0),))))
    first = cluster.ask("one", user="ada", ttl_s=7200.0)
    metrics.observe(first, 0.001)
    lease = granted(first)
    metrics.observe(cluster.feed(LeaseReleased(lease.lease, lease.fence), after_s=3600.0), 0.001)
    metrics.observe(cluster.ask("two", 4), 0.001)
    metrics.observe(cluster.ask("three", 99), 0.001)
    cluster.ask("waits", 4)
    for _ in range(decisions):
        metrics.observe([], 0.002)
    use = {"a": {"GPU-a-0": GpuUse("GPU-a-0", 0.5, 3.0, (), read=True)}}
    clients = Clients({"agent": 1, "router": 2}, use)
    return metrics.write(cluster.core.view(), JournalFigures(5, 12, 9, 1e9, 1), clients)
