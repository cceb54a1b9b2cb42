"""The figures of a load test as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from replkernel_server.loadtest.figures import Figures, Spread

COLUMNS = ("p50", "p75", "p90", "p95", "p99", "most", "mean")
MS = 1000.0


def table(figures: Figures) -> str:
    """Return the whole report."""
    rows: list[tuple[str, Spread | None, float, str]] = [
        ("interactivity delay (ms)", figures.interactivity_delay, MS, ",.0f"),
        ("task completion, TCT (ms)", figures.task_completion, MS, ",.0f"),
        ("  beyond its code (ms)", figures.overhead, MS, ",.0f"),
        ("commit latency (ms)", figures.commit_latency, MS, ",.0f"),
        ("durability lag (ms)", figures.durability_lag, MS, ",.0f"),
        ("wait for a lease (ms)", figures.lease_wait, MS, ",.0f"),
        ("submitted late (ms)", figures.late, MS, ",.0f"),
        ("kernel start (s)", figures.starts, 1.0, ",.2f"),
        ("CPU a kernel (% of a core)", figures.kernel_cpu, 100.0, ",.1f"),
        ("PSS a kernel (MiB)", figures.kernel_pss_mib, 1.0, ",.0f"),
        ("RSS a kernel (MiB)", figures.kernel_rss_mib, 1.0, ",.0f"),
    ]
    width = max(len(name) for name, *_ in rows)
    lines = [_head(figures), "", " " * width + "".join(f"{name:>10}" for name in (*COLUMNS, "samples"))]
    for name, of, factor, form in rows:
        if of is not None:
            values = "".join(f"{format(getattr(of, column) * factor, form):>10}" for column in COLUMNS)
            lines.append(f"{name:<{width}}{values}{of.count:>10,}")
    return "\n".join([*lines, "", *_remarks(figures)])


def _head(figures: Figures) -> str:
    replicas = "" if figures.replicas is None else f" x {figures.replicas:.3g} replicas"
    return (
        f"{figures.sessions_at_once} sessions{replicas} ({figures.kernel}), {figures.cells:,} of "
        f"{figures.cells_planned:,} cells in {figures.played_s:.0f} s at {figures.speed:g} times the "
        f"pattern's speed{figures.ended}."
    )


def _remarks(figures: Figures) -> list[str]:
    lines = [f"cells: {_counts(figures.troubles) or 'all well'}"]
    if figures.safety:
        lines.append(f"their state: {_counts(figures.safety)}")
    if figures.starts_failed:
        lines.append(f"kernels that did not start: {_counts(figures.starts_failed)}")
    if figures.leases_granted:
        lines.append(
            f"leases: {figures.leases_granted:,} cells got theirs, at most {figures.leases_at_once} leases "
            f"and {figures.leases_waiting_at_once} cells that wait at a time"
        )
    for name, used in figures.shared.items():
        lines.append(
            f"{name}: {used.pss_mib:,.0f} MiB PSS, {used.cpu_s:,.1f} s of CPU so far"
            + (f", {used.processes} processes" if used.processes > 1 else "")
        )
    if figures.pss_total_mib is not None:
        lines.append(f"all of it together: {figures.pss_total_mib:,.0f} MiB PSS")
    if figures.pss_least_mib is not None:
        lines.append(
            f"at the quietest moment with all kernels: {figures.pss_least_mib:,.0f} MiB PSS a kernel"
        )
    return [*lines, f"limit: {figures.limit}", *figures.notes]


def _counts(of: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(of.items()))
