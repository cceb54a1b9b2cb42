"""What was used, and what holding the GPUs for the whole session would have cost on top."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
import pytest
from replkernel_scheduler.events import KernelEnded, KernelReported
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, UserName
from replkernel_server.scheduling.accounting import CellRow, SumRow, csv_lines, kernel_rows, user_rows

from replkernel.cli.accounting import COLUMNS, describe
from tests.unit.scheduler.cluster import Cluster, granted

HOUR_S = 3600.0
K = KernelId("k")


def report(cluster: Cluster, gpus: int = 0, after_s: float = 0.0) -> None:
    """Let a kernel that places itself say that it lives; it asks for `gpus` a cell by default."""
    spec = KernelSpec(K, UserName("u"), gpus, 1)
    cluster.feed(KernelReported(spec, (HostName("a"),)), after_s=after_s)


def cell(cluster: Cluster, name: str, gpus: int, *, rests_s: float, runs_s: float) -> None:
    cluster.now += rests_s
    lease = granted(cluster.ask(name, gpus=gpus, ttl_s=HOUR_S * 9, kernel="k", user="u"))
    cluster.release(lease, after_s=runs_s, busy_s=runs_s / 2)


def about(hours: float) -> Any:
    """Return what equals so many hours, give or take the seconds that events are apart."""
    return pytest.approx(hours, abs=0.01)


def sums(cluster: Cluster) -> SumRow:
    """Return the kernel's sums, which are its user's."""
    (kernel,) = [row for row in kernel_rows(cluster.core.view()) if row.kernel_id == "k"]
    (user,) = [row for row in user_rows(cluster.core.view()) if row.user == "u"]
    assert msgspec.structs.replace(user, kernel_id="k") == kernel
    return kernel


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.host("a", 8)
    return made


def test_a_session_holds_its_gpus_from_its_beginning_though_they_were_asked_for_later(
    cluster: Cluster,
) -> None:
    report(cluster)
    cell(cluster, "one", 1, rests_s=HOUR_S, runs_s=HOUR_S)
    found = sums(cluster)
    assert found.gpu_hours == about(1.0)
    assert found.reserved_gpu_hours == about(2.0), "the GPU is held while nobody has asked for it"
    cell(cluster, "two", 4, rests_s=HOUR_S, runs_s=HOUR_S)
    found = sums(cluster)
    assert found.gpu_hours == about(1.0 + 4.0)
    assert found.reserved_gpu_hours == about(4 * 4.0), "the most that is asked for, all the time"
    assert found.saved_gpu_hours == about(16.0 - 5.0)
    assert (found.cells, found.leased_s, found.busy_s) == (2, 2 * HOUR_S, HOUR_S)


def test_each_session_is_one_of_its_own(cluster: Cluster) -> None:
    report(cluster)
    cell(cluster, "one", 1, rests_s=0.0, runs_s=HOUR_S)
    cluster.feed(KernelEnded(K))
    report(cluster, after_s=10 * HOUR_S)
    cell(cluster, "two", 2, rests_s=0.0, runs_s=HOUR_S)
    assert sums(cluster).reserved_gpu_hours == about(1.0 + 2.0), "nothing is held in between"


def test_gpus_that_a_notebook_asks_for_by_default_are_held_from_the_beginning(cluster: Cluster) -> None:
    report(cluster, gpus=1)
    report(cluster, gpus=2, after_s=HOUR_S)
    cluster.now += HOUR_S
    report(cluster, gpus=1)
    assert sums(cluster).reserved_gpu_hours == about(2 * 2.0)


def test_queued_leased_and_busy_seconds_are_those_of_the_cell(cluster: Cluster) -> None:
    report(cluster)
    first = granted(cluster.ask("first", gpus=8, kernel="other", user="v"))
    cluster.ask("one", gpus=8, kernel="k", user="u")
    cluster.release(first, after_s=5.0)
    (lease,) = cluster.leases()
    cluster.release(lease, after_s=20.0, busy_s=15.0)
    found = sums(cluster)
    assert (found.queued_s, found.leased_s, found.busy_s) == (5.0, 20.0, 15.0)


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", '=HYPERLINK("http://x")']


@pytest.mark.parametrize("name", FORMULAS)
def test_no_name_becomes_a_formula_of_a_spreadsheet(name: str) -> None:
    row = CellRow("2026-01-01", name, name, name, "lease-1", name, 1, 0.0, 0.0, -1.0, 0.0)
    (found,) = csv.reader(io.StringIO(csv_lines([row]).decode(), newline=""))
    for cell in (*found[1:4], found[5]):
        assert cell == f"'{name}"
    assert (found[0], found[4], found[9]) == ("2026-01-01", "lease-1", "-1.0"), "a number is one"


def test_nothing_in_a_name_reaches_the_terminal_but_its_letters() -> None:
    row: dict[str, Any] = dict.fromkeys(COLUMNS["cell"], 1) | {"kernel_id": "k\x1b[2J\nk", "user": "ü"}
    lines = describe(COLUMNS["cell"], [row])
    assert len(lines) == 2 and all(line.isprintable() for line in lines) and "ü" in lines[1]
