"""The pods of Alibaba's GPU cluster (2023), as published: `name,cpu_milli,memory_mib,num_gpu,gpu_milli,…`.

Law: a pod comes when it was created, and runs from when it was scheduled to when it was deleted. One without
GPUs, or that was never scheduled, has no work for us. `gpu_spec` names the models that it may run on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from replkernel_scheduler.sim.csv_rows import header_of, rows
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.trace_file import TraceFile, number, whole

PODS = frozenset({
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli",
    "creation_time", "deletion_time", "scheduled_time",
})  # fmt: skip
NOTHING = frozenset({"", "nan", "None"})
"""What stands where there is no value."""


def looks_like(header: list[str]) -> bool:
    """Say whether a header is that of the pods."""
    return set(header) >= PODS


def records(file: TraceFile) -> Iterator[Job]:
    """Yield the pods in the order of the file."""
    for row in rows(file, header_of(file)):
        job = file.take(partial(_pod, row))
        if job is not None:
            yield job


def _pod(row: dict[str, str]) -> Job | None:
    gpus = whole(row["num_gpu"], "num_gpu")
    if not gpus or row["scheduled_time"] in NOTHING or row["deletion_time"] in NOTHING:
        return None
    created, scheduled, deleted = (
        number(row[name], name) for name in ("creation_time", "scheduled_time", "deletion_time")
    )
    if deleted <= scheduled:
        return None
    milli = whole(row["gpu_milli"], "gpu_milli")
    spec = row.get("gpu_spec", "")
    return Job(
        row["name"],
        created,
        deleted - scheduled,
        gpus,
        queue=row.get("qos", ""),
        state=row.get("pod_phase", "").lower(),
        milli=milli if gpus == 1 and 0 < milli < 1000 else 0,
        gpu_models=() if spec in NOTHING else tuple(spec.split("|")),
        cpus=number(row["cpu_milli"], "cpu_milli") / 1000,
        host_memory_gb=number(row["memory_mib"], "memory_mib") / 1024,
    )
