"""Hosts as a list in a file says: their GPUs and models, processors and memory, several sizes side by side.

Our own form is a CSV file with a header: `gpus`, and `count`, `gpu_model`, `gpu_memory_gb`, `cpus`,
`memory_gb`, `gpu_busy_w`, `gpu_idle_w` if known. Alibaba's of 2023 (`sn,cpu_milli,memory_mib,gpu,model`) is
read as it is. Law: hosts keep the file's order, and those without GPUs are left out, for nothing here would
run on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import msgspec

from replkernel_scheduler.sim.csv_rows import header_of, rows
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.power import WATTS
from replkernel_scheduler.sim.trace_file import TraceFile, number, whole

ALIBABA = frozenset({"sn", "cpu_milli", "memory_mib", "gpu", "model"})
HOSTS_MAX, GPUS_MAX = 16_384, 4096
GPU_MODEL = "A100"
"""What GPUs are called where nobody says."""
MILLI, MIB_PER_GIB = 1000, 1024


class Hosts(msgspec.Struct, frozen=True):
    """`count` equal hosts; 0 processors or memory: nobody says, and nothing is counted of them."""

    count: int
    gpus: int
    gpu_model: str = GPU_MODEL
    gpu_memory_gb: float = 0.0
    cpus: float = 0.0
    memory_gb: float = 0.0
    gpu_busy_w: float = 0.0
    """What a GPU draws; 0: nobody says, and its model is not in our table either."""
    gpu_idle_w: float = 0.0


def read_hosts(path: Path) -> tuple[Hosts, ...]:
    """Return the hosts of a file, equal ones that follow each other together; raise SimulationError."""
    file = TraceFile(path)
    header = header_of(file)
    if set(header) >= ALIBABA:
        parse = _alibaba
    elif "gpus" in header:
        parse = _own
    else:
        raise SimulationError(
            f"{path} is no list of hosts: it has a header with gpus (and count, gpu_model, gpu_memory_gb, "
            "cpus, memory_gb, gpu_busy_w, gpu_idle_w), or Alibaba's columns "
            "sn,cpu_milli,memory_mib,gpu,model."
        )
    found = [hosts for row in rows(file, header) if (hosts := file.take(partial(parse, row))) is not None]
    made = tuple(_together(found))
    count = sum(hosts.count for hosts in made)
    if not 1 <= count <= HOSTS_MAX:
        raise SimulationError(f"{path} has {count:,} hosts with GPUs: 1 to {HOSTS_MAX:,} can be played.")
    return made


def each(hosts: tuple[Hosts, ...]) -> Iterator[Hosts]:
    """Yield every host in order."""
    for alike in hosts:
        for _ in range(alike.count):
            yield alike


def _together(found: list[Hosts]) -> Iterator[Hosts]:
    for alike, same in groupby(found, key=lambda hosts: msgspec.structs.replace(hosts, count=1)):
        yield msgspec.structs.replace(alike, count=sum(hosts.count for hosts in same))


def _own(row: dict[str, str]) -> Hosts | None:
    count, gpus = whole(row.get("count") or "1", "count"), _gpus(row["gpus"])
    if not count or not gpus:
        return None
    gpu_memory_gb, cpus, memory_gb = (
        number(row.get(name) or "0", name) for name in ("gpu_memory_gb", "cpus", "memory_gb")
    )
    model = row.get("gpu_model") or GPU_MODEL
    return Hosts(count, gpus, model, gpu_memory_gb, cpus, memory_gb, *_watts(row))


def _watts(row: dict[str, str]) -> tuple[float, float]:
    """Return what a GPU draws busy and idle: as the row says, else as our table has it for a named model."""
    busy, idle = row.get("gpu_busy_w", ""), row.get("gpu_idle_w", "")
    if not busy and not idle:
        return WATTS.get(row.get("gpu_model", ""), (0.0, 0.0))
    if not busy or not idle:
        raise ValueError("gpu_busy_w and gpu_idle_w are given together")
    busy_w, idle_w = number(busy, "gpu_busy_w"), number(idle, "gpu_idle_w")
    if not 0 <= idle_w <= busy_w or not busy_w:
        raise ValueError(f"a GPU draws {busy_w:g} W busy and {idle_w:g} W idle: busy is more, and above 0")
    return busy_w, idle_w


def _alibaba(row: dict[str, str]) -> Hosts | None:
    gpus = _gpus(row["gpu"])
    if not gpus:
        return None
    cpus = number(row["cpu_milli"], "cpu_milli") / MILLI
    memory_gb = number(row["memory_mib"], "memory_mib") / MIB_PER_GIB
    busy_w, idle_w = WATTS.get(row["model"], (0.0, 0.0))
    return Hosts(1, gpus, row["model"], cpus=cpus, memory_gb=memory_gb, gpu_busy_w=busy_w, gpu_idle_w=idle_w)


def _gpus(text: str) -> int:
    gpus = whole(text, "gpus")
    if gpus > GPUS_MAX:
        raise ValueError(f"a host has {gpus:,} GPUs, more than {GPUS_MAX:,}")
    return gpus
