"""What a load test has shown, as figures: percentiles of what users felt, sums of what it took. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from replkernel_server.loadtest.processes import Look, Machine, Processes, Used
from replkernel_server.loadtest.samples import CellSample, StartSample

BUSY_IS_FULL = 0.9
FREE_IS_LITTLE_MIB = 1024.0


class Spread(msgspec.Struct, frozen=True):
    """Percentiles of `count` samples."""

    count: int
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    most: float
    mean: float


class MachineFigures(msgspec.Struct, frozen=True):
    """The machine of the test: how busy its cores were (shares), and the memory that was left."""

    cores: int
    busy_mean: float
    busy_p95: float
    used: float
    """How many cores the test's own processes used: kernels, agents, server, and this program."""
    seconds_full: int
    """So many seconds had more than nine tenths of all cores busy."""
    free_first_mib: float
    free_least_mib: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything; times in seconds, memory in MiB, CPU in shares of one core."""

    sessions: int
    sessions_at_once: int
    replicas: float | None
    kernel: str
    played_s: float
    speed: float
    ended: str
    cells: int
    cells_planned: int
    troubles: dict[str, int]
    safety: dict[str, int]
    starts: Spread | None
    starts_failed: dict[str, int]
    interactivity_delay: Spread | None
    task_completion: Spread | None
    overhead: Spread | None
    """TCT less the time that the code itself takes."""
    late: Spread | None
    """How much later than planned cells were submitted: the cell before, or a start, was not over."""
    durability_lag: Spread | None
    commit_latency: Spread | None
    lease_wait: Spread | None
    leases_granted: int
    leases_at_once: int
    leases_waiting_at_once: int
    kernel_cpu: Spread | None
    kernel_pss_mib: Spread | None
    kernel_rss_mib: Spread | None
    shared: dict[str, Used]
    pss_total_mib: float | None
    pss_least_mib: float | None
    """A kernel's, in the mean of the look with the least, of those that had all kernels."""
    machine: MachineFigures
    limit: str
    notes: list[str]


def spread(samples: Sequence[float]) -> Spread | None:
    """Return the percentiles; None without samples."""
    if not samples:
        return None
    cuts = statistics.quantiles(samples, n=100, method="inclusive") if len(samples) > 1 else [samples[0]] * 99
    p50, p75, p90, p95, p99 = (cuts[percent - 1] for percent in (50, 75, 90, 95, 99))
    return Spread(len(samples), p50, p75, p90, p95, p99, max(samples), statistics.fmean(samples))


def troubles(cells: Sequence[CellSample]) -> dict[str, int]:
    """Count what went wrong, by name."""
    return dict(Counter(cell.trouble for cell in cells if cell.trouble))


def times(cells: Sequence[CellSample]) -> dict[str, Spread | None]:
    """Return the spreads of what cells' users felt; failed cells have none."""
    well = [cell for cell in cells if not cell.trouble]
    taken = [
        (cell, cell.replied_s - cell.submitted_s)
        for cell in well
        if cell.replied_s is not None
    ]  # fmt: skip
    return {
        "interactivity_delay": spread(
            [cell.began_s - cell.submitted_s for cell in well if cell.began_s is not None]
        ),
        "task_completion": spread([took for _, took in taken]),
        "overhead": spread([took - cell.runs_s for cell, took in taken]),
        "late": spread([max(0.0, cell.submitted_s - cell.due_s) for cell in cells]),
        "durability_lag": spread([lag for cell in well if (lag := cell.durability_lag_s) is not None]),
        "commit_latency": spread([took for cell in well if (took := cell.commit_s) is not None]),
        "lease_wait": spread([wait for cell in cells if (wait := cell.lease_wait_s) is not None]),
    }


def starts(samples: Sequence[StartSample]) -> tuple[Spread | None, dict[str, int]]:
    """Return how long kernels took to start, and why some did not."""
    failed = Counter(sample.trouble for sample in samples if sample.trouble)
    return spread([sample.took_s for sample in samples if not sample.trouble]), dict(failed)


def _pss_mib(look: Look) -> float:
    return sum(used.pss_mib for used in look.kernels.values())


def memory(seen: Processes) -> dict[str, object]:
    """Return what kernels used: memory at the look with the most, CPU over all looks."""
    if not seen.looks:
        return {
            "kernel_cpu": None, "kernel_pss_mib": None, "kernel_rss_mib": None, "shared": {},
            "pss_total_mib": None, "pss_least_mib": None, "replicas": None,
        }  # fmt: skip
    most = max(seen.looks, key=_pss_mib)
    whole = max(len(look.kernels) for look in seen.looks)
    used = list(most.kernels.values())
    total = sum(one.pss_mib for one in [*used, *most.shared.values()])
    return {
        "kernel_cpu": spread(list(seen.cpu_shares().values())),
        "kernel_pss_mib": spread([one.pss_mib for one in used]),
        "kernel_rss_mib": spread([one.rss_mib for one in used]),
        "shared": most.shared,
        "pss_total_mib": total,
        "pss_least_mib": min(_pss_mib(look) for look in seen.looks if len(look.kernels) == whole) / whole,
        "replicas": max(look.replicas / len(look.kernels) for look in seen.looks),
    }


def machine(seen: Machine, cores: int, used: float) -> MachineFigures:
    """Return the machine's figures."""
    busy = spread(seen.busy)
    return MachineFigures(
        cores=cores,
        busy_mean=busy.mean if busy else 0.0,
        busy_p95=busy.p95 if busy else 0.0,
        used=used,
        seconds_full=sum(share >= BUSY_IS_FULL for share in seen.busy),
        free_first_mib=seen.free_first_mib,
        free_least_mib=seen.free_least_mib,
    )


def limit(of: MachineFigures, seconds: int) -> str:
    """Say what was used up on the machine of the test, if anything was."""
    full = of.seconds_full / max(1, seconds)
    reasons = []
    if of.busy_mean >= BUSY_IS_FULL or full >= 0.5:
        reasons.append(
            f"CPU: {of.cores} cores were {of.busy_mean:.0%} busy in the mean, "
            f"{of.used / of.cores:.0%} with this"
        )
    if of.free_least_mib < FREE_IS_LITTLE_MIB:
        reasons.append(f"memory: only {of.free_least_mib:,.0f} MiB were left")
    if reasons:
        return "; ".join(reasons)
    return (
        f"none was reached here: {of.cores} cores were {of.busy_mean:.0%} busy in the mean "
        f"({of.used / of.cores:.0%} with this), "
        f"{of.free_least_mib / 1024:,.1f} GiB of memory were left"
    )
