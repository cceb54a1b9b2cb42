"""What the live service makes of the core: its clock over restarts, its figures, its accounts."""

from __future__ import annotations

import random

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.events import MonthBegan
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import Fence
from replkernel_server.errors import BadRequest
from replkernel_server.scheduling.accounting import csv_lines, kernel_rows, parse_since, user_rows
from replkernel_server.scheduling.clock import CoreClock
from replkernel_server.scheduling.hosting import month_begun
from replkernel_server.scheduling.metrics import Clients, JournalFigures, Metrics, gpus_by_state, ratio

from tests.unit.scheduler.cluster import Cluster, granted


def test_the_clock_goes_on_where_it_stood_and_never_back() -> None:
    told = [1e9]
    clock = CoreClock(0.1 + 0.2, lambda: told[0])
    assert clock.now() >= 0.1 + 0.2
    told[0] += 5.0
    assert clock.now() == pytest.approx(5.3)
    assert clock.left_s(6.3) == pytest.approx(1.0, abs=1e-6)
    assert clock.left_s(1.0) == 0.0
    told[0] = 0.0
    assert clock.now() >= 0.1 + 0.2


NOVEMBER, DECEMBER = 1_796_083_190.0, 1_796_083_800.0
"""Ten seconds before December 2026 begins in UTC, and ten minutes after."""


@pytest.mark.parametrize(
    ("known", "last", "begun"),
    [
        ("2026-11", NOVEMBER, "2026-12"),
        ("2026-11", DECEMBER - 500.0, "2026-12"),  # It was stopped before it had looked at the calendar.
        ("2026-12", DECEMBER - 500.0, ""),
        ("2027-01", NOVEMBER, ""),  # A clock that was wrong: nothing counts twice.
        ("", NOVEMBER, "2026-12"),
        ("", DECEMBER - 500.0, ""),
        ("", 0.0, "2026-12"),
    ],
)
def test_a_month_begins_once_however_often_and_whenever_the_scheduler_is_started(
    known: str, last: float, begun: str
) -> None:
    for is_settled in (False, True):
        assert month_begun(known, last, DECEMBER, is_settled=is_settled) == begun
        assert month_begun("2026-12", last, DECEMBER, is_settled=is_settled) == ""


@pytest.mark.parametrize(("known", "last"), [("2027-02", NOVEMBER), ("2099-01", DECEMBER), ("", 4e9)])
def test_a_month_that_a_wrong_clock_began_is_not_waited_for(known: str, last: float) -> None:
    assert month_begun(known, last, DECEMBER, is_settled=False) == "", "it may be this clock that is wrong"
    assert month_begun(known, last, DECEMBER, is_settled=True) == "2026-12"


def test_which_month_it_is_outlives_a_restart() -> None:
    cluster = Cluster()
    cluster.feed(MonthBegan("2026-12"))
    again = SchedulerCore(random.Random(0), notebook(), CoreSettings(), Fence(0))
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(cluster.core.image()), type=CoreImage))
    assert again.month == "2026-12"


def test_the_subscription_ratio_is_that_of_the_specification() -> None:
    cluster = Cluster()
    assert ratio(cluster.core.view()) == 0.0
    for host in "abc":
        cluster.host(host, 4)
    cluster.kernel("one", gpus=2)
    cluster.kernel("two", gpus=4)
    assert ratio(cluster.core.view()) == pytest.approx(18 / (12 * 3))


def test_every_gpu_is_in_one_state_and_a_renewal_is_no_grant() -> None:
    cluster = Cluster()
    metrics = Metrics(cluster.core.view())
    cluster.host("a", 4, "H100")
    first = granted(cluster.ask("one", gpus=2))
    metrics.observe(cluster.ask("one"), 0.001)
    metrics.observe(cluster.ask("one"), 0.001)
    metrics.observe(cluster.ask("two"), 0.001)
    metrics.observe(cluster.linger(first), 0.001)
    view = cluster.core.view()
    assert gpus_by_state(view) == {("lingering", "H100"): 2, ("active", "H100"): 1, ("idle", "H100"): 1}
    text = metrics.write(view, JournalFigures(5, 12, 9, 1e9, 1), Clients({}, {})).decode()
    families = text_string_to_metric_families(text)
    values = {sample.name: sample.value for family in families for sample in family.samples}
    assert values["replkernel_scheduler_grants_total"] == 2
    assert values["replkernel_scheduler_decision_seconds_count"] == 4
    journal = ("journal_events", "journal_last_event", "snapshot_event", "snapshot_timestamp_seconds")
    assert [values[f"replkernel_scheduler_{name}"] for name in journal] == [5, 12, 9, 1e9]
    assert values["replkernel_scheduler_snapshot_failures"] == 1


def test_sums_say_what_was_saved_and_names_with_commas_stay_whole() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.kernel("k", gpus=1, replicas=1, user='a,"b"')
    lease = granted(cluster.ask("one", kernel="k", user='a,"b"'))
    cluster.release(lease, after_s=3600.0)
    cluster.host("b", 1)
    (row,) = [row for row in kernel_rows(cluster.core.view()) if row.kernel_id == "k"]
    assert row.gpu_hours == pytest.approx(1.0)
    assert (
        row.saved_gpu_hours == pytest.approx(row.reserved_gpu_hours - row.gpu_hours)
        and row.saved_gpu_hours > 0
    )
    assert csv_lines([row]).startswith(b'"a,""b""",k,1,')
    assert sum(user.cells for user in user_rows(cluster.core.view())) == 1


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "1" * 500])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="since="):
        parse_since(text)


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_since("1970-01-02") == parse_since("1970-01-02T01:00:00+01:00") == 86_400.0
    assert parse_since("") == 0.0
