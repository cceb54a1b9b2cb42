"""The accounts as rows of a table: one a lease from the journal, else one a kernel, user or job.

Law: it reads only. Times are UTC, durations seconds, sums GPU-hours; `saved` is what holding the GPUs all
along would have cost on top.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType
from replkernel_scheduler.harvest.desk import Desk
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.types import CellUsage, Usage, UserName
from replkernel_scheduler.view import ClusterView

from replkernel_server.errors import BadRequest
from replkernel_server.scheduling.journal_tables import UsageEntry

HOUR_S = 3600.0
SINCE_CHARS_MAX = 40
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula; names are what users say they are."""


class CellRow(msgspec.Struct, frozen=True):
    """What one lease of one cell cost; `ended` is when its use was over."""

    ended: str
    user: str
    kernel_id: str
    request: str
    lease: str
    host: str
    gpus: int | float
    queued_s: float
    leased_s: float
    busy_s: float
    gpu_hours: float
    cost: float | None = None
    """What the user was charged, where there are prices."""


class SumRow(msgspec.Struct, frozen=True):
    """What a kernel or a user has cost since the journal began."""

    user: str
    kernel_id: str
    cells: int
    queued_s: float
    leased_s: float
    busy_s: float
    gpu_hours: float
    reserved_gpu_hours: float
    saved_gpu_hours: float
    cost: float | None = None
    """What a kernel's cells cost, or all that a user was charged, standbys too; where there are prices."""
    job_gpu_hours: float = 0.0
    """What a user's jobs had of GPUs that nobody needed; it is in no other column."""


class JobRow(msgspec.Struct, frozen=True):
    """What a job had of GPUs, or of cores alone; of those that are over the last ones are there."""

    user: str
    job: str
    state: str
    host: str
    starts: int
    gpu_hours: float
    cpu_hours: float = 0.0


class ClusterRow(msgspec.Struct, frozen=True):
    """What the hosts have cost since there are prices, what users were charged, and the margin of that."""

    currency: str
    cost: float
    charged: float
    margin: float | None


def cell_row(entry: UsageEntry, usage: CellUsage) -> CellRow:
    """Return the row of one lease."""
    return CellRow(
        datetime.fromtimestamp(entry.wall, UTC).isoformat(timespec="milliseconds"),
        usage.user,
        usage.kernel_id,
        usage.request,
        usage.lease,
        usage.host,
        usage.gpus,
        round(usage.queued_s, 6),
        round(usage.leased_s, 6),
        round(usage.busy_s, 6),
        round(usage.leased_s * usage.gpus / HOUR_S, 9),
        _money(usage.cost),
    )


def kernel_rows(view: ClusterView) -> Iterator[SumRow]:
    """Yield one row a kernel, live or not."""
    for kernel in view.usage:
        yield _sum_row(kernel.user, kernel.kernel_id, kernel.usage, kernel.usage.cost)


def job_rows(desk: Desk, now: float) -> Iterator[JobRow]:
    """Yield one row a job, the oldest first of those that are over, then the others."""
    for past in desk.past:
        hours, host = round(past.gpu_s / HOUR_S, 9), past.ran_on or ""
        cpu_hours = round(past.core_s / HOUR_S, 9)
        yield JobRow(past.spec.owner, past.spec.job, past.why, host, past.attempt, hours, cpu_hours)
    for job in desk.jobs.by_name.values():
        hours, host = round(_gpu_s(job, now) / HOUR_S, 9), job.ran_on or ""
        cpu_hours = round(job.core_s_at(now) / HOUR_S, 9)
        yield JobRow(job.spec.owner, job.spec.job, job.state, host, job.attempt, hours, cpu_hours)


def _gpu_s(job: JobRecord, now: float) -> float:
    return job.gpu_s + job.held() * (now - job.counted_at)


def gpu_s_of_jobs(desk: Desk, now: float) -> dict[UserName, float]:
    """Return the GPU-seconds that the jobs of each user have had."""
    found = dict(desk.past.gpu_s)
    for job in desk.jobs.by_name.values():
        owner = job.spec.owner
        found[owner] = found.get(owner, 0.0) + _gpu_s(job, now)
    return found


def user_rows(view: ClusterView, of_jobs: Mapping[UserName, float] | None = None) -> Iterator[SumRow]:
    """Yield one row a user; `of_jobs` are GPU-seconds of jobs."""
    by_jobs = of_jobs or {}
    for user in view.users:
        job_gpu_s = by_jobs.get(UserName(user.user), 0.0)
        if not user.user and not user.usage.cells and not job_gpu_s:
            continue  # whose requests nobody could serve
        yield _sum_row(user.user, "", user.usage, user.spent, job_gpu_s)


def cluster_rows(view: ClusterView) -> Iterator[ClusterRow]:
    """Yield one row, if there are prices."""
    money = view.money
    if money is not UNSET:
        margin = None if money.margin is None else round(money.margin, 6)
        yield ClusterRow(money.prices.currency, round(money.cost, 6), round(money.charged, 6), margin)


def _sum_row(
    user: str, kernel_id: str, usage: Usage, cost: float | UnsetType, job_gpu_s: float = 0.0
) -> SumRow:
    return SumRow(
        user,
        kernel_id,
        usage.cells,
        round(usage.queued_s, 6),
        round(usage.leased_s, 6),
        round(usage.busy_s, 6),
        round(usage.gpu_s / HOUR_S, 9),
        round(usage.reserved_gpu_s / HOUR_S, 9),
        round(usage.saved_gpu_s / HOUR_S, 9),
        _money(cost),
        round(job_gpu_s / HOUR_S, 9),
    )


def _money(cost: float | UnsetType) -> float | None:
    return None if cost is UNSET else round(cost, 6)


def csv_head(shape: type[msgspec.Struct]) -> bytes:
    """Return the first line of a table of `shape`."""
    return _csv([shape.__struct_fields__])


def csv_lines(rows: Iterable[msgspec.Struct]) -> bytes:
    """Return rows as lines of CSV (RFC 4180); a name that a spreadsheet would calculate begins with '."""
    return _csv([_plain(value) for value in msgspec.structs.astuple(row)] for row in rows)


def _plain(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def parse_since(text: str) -> float:
    """Return the Unix time of a date or time in ISO 8601 (UTC without a zone); no text is the beginning."""
    if not text:
        return 0.0
    try:
        moment = datetime.fromisoformat(text if len(text) <= SINCE_CHARS_MAX else "")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise BadRequest(
            "Write since= as a date or a time, as in since=2026-01-31 or since=2026-01-31T12:00:00Z."
        ) from error
