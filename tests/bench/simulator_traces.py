"""How long whole traces take on one core: Venus and Philly under SRTF, made 92 days of NotebookOS, and
where more comes than can be served: all of RICC under EASY, 100,000 jobs of Philly under SideCar, Venus under
Lazer. RICC's log is wanted as `pwa/RICC-2010-2.swf.gz` among the traces; it is left out without.

Each is played in a process of its own; the figure is processor time, reading apart.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from msgspec.structs import replace
from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.workload import LONG
from replkernel_scheduler.sim.workload_file import made

from tests.bench.report import Result
from tests.bench.simulator_peer import RICC
from tests.paper.traces import NoTrace, trace

GOAL_S = {"venus": 30.0, "philly": 30.0, "quarter": 60.0, "ricc": 60.0, "sidecar": 60.0, "lazer": 60.0}
WAYS = {
    "quarter": ("notebook,scaling=buffered", Plan(hosts=30, gpus_per_host=8, hosts_max=200)),
    "ricc": ("easy-batch", Plan(hosts=2, gpus_per_host=4096)),
    "sidecar": ("sidecar", Plan(hosts=64, gpus_per_host=8)),
    "lazer": ("lazer", Plan(hosts=64, gpus_per_host=8)),
}
SRTF = ("srtf", Plan(hosts=64, gpus_per_host=8))
PHILLY, VENUS = "philly/philly_rfold_111k.csv", "helios/helios_venus_gpu_jobs_125k.csv"
PHILLY_JOBS, PHILLY_FASTER = 100_000, 1.3
"""So much faster it comes that 90 % of 512 GPUs would be in use."""
TIMEOUT_S = 1800.0
ACTIVE_MEAN = 67.63


def spool_of(name: str) -> Spool:
    """Return the records of a trace; the quarter is made, as `replkernel workload --like 92d` makes it."""
    match name:
        case "venus" | "lazer":
            return Spool(forms.read(TraceFile(trace(VENUS))))
        case "ricc":
            return Spool(forms.read(TraceFile(trace(RICC))))
        case "philly":
            return Spool(forms.read(TraceFile(trace(PHILLY))))
        case "sidecar":
            jobs = sorted(forms.read(TraceFile(trace(PHILLY))), key=lambda job: job.at)[:PHILLY_JOBS]
            return Spool(replace(job, at=job.at / PHILLY_FASTER) for job in jobs)
    return Spool(made(LONG, 0, ACTIVE_MEAN)[0])


def run(name: str) -> dict[str, float]:
    """Play a trace, and return what that took."""
    way, plan = WAYS.get(name, SRTF)
    with spool_of(name) as spool:
        began, wall = time.process_time(), time.perf_counter()
        shown = play(spool, any_way_named(way), plan)
        took, waited = time.process_time() - began, time.perf_counter() - wall
        return {
            "records": len(spool),
            "served": shown.cells.served + shown.jobs.served,
            "events": shown.events,
            "cpu_s": took,
            "wall_s": waited,
            "us_an_event": took / shown.events * 1e6,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "goal_s": GOAL_S[name],
        }


def measure() -> Result:
    """Play all; the samples are shares of the time that each may take."""
    found = {}
    for name in GOAL_S:
        try:
            trace(RICC if name == "ricc" else PHILLY)
        except NoTrace as error:
            print(f"{name}: left out, {error}")
            continue
        command = [sys.executable, "-m", "tests.bench.simulator_traces", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        found[name] = json.loads(done.stdout)
        print(
            "{0}: {cpu_s:.1f} s of {goal_s:.0f}, {events:,} events, {peak_mb:.0f} MB".format(
                name, **found[name]
            )
        )
    shares = [each["cpu_s"] / each["goal_s"] for each in found.values()]
    goal = "30 s for Venus and for Philly under SRTF, 60 s for each other one: all below 1"
    return Result("simulator_traces", "of goal", shares, [1.0], goal, {"runs": found})


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
