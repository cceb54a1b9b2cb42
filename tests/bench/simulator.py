"""What one event costs in the simulator, with 10,000, 100,000 and 1,000,000 jobs: like log n at most.

Jobs of 1 to 8 GPUs come at random to 64 hosts of 8 GPUs that are 80 % busy on average, and are served first
come, first served. The figure is the time of one event (the core's and the driver's work together), reading
apart; each size runs in a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.simulation import Simulation
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.way import way_named

from tests.bench.report import Result

SIZES = (10_000, 100_000, 1_000_000)
PLAN = Plan(hosts=64, gpus_per_host=8, seed=1)
BUSY = 0.8
WIDTHS = (1, 1, 1, 1, 2, 2, 4, 8)
MEAN_S = 600.0
TIMEOUT_S = 1800.0


def jobs(count: int) -> Iterator[Job]:
    """Yield jobs whose arrivals and run times are exponential."""
    dice = random.Random(7)
    gpus = PLAN.hosts * PLAN.gpus_per_host
    between_s = sum(WIDTHS) / len(WIDTHS) * MEAN_S / (gpus * BUSY)
    at = 0.0
    for number in range(count):
        at += dice.expovariate(1 / between_s)
        yield Job(f"{number}", at, 1.0 + dice.expovariate(1 / MEAN_S), dice.choice(WIDTHS))


def play(count: int) -> dict[str, float]:
    """Play `count` jobs, and return what that took."""
    began = time.perf_counter()
    with Spool(jobs(count)) as spool:
        read = time.perf_counter()
        simulation = Simulation(spool, spool.first, way_named("fcfs-batch"), PLAN)
        gc.freeze()
        processor = time.process_time()
        figures = simulation.run()
        processor = time.process_time() - processor
    return {
        "jobs": count,
        "served": len(figures.waits),
        "events": simulation.events,
        "read_s": read - began,
        "play_cpu_s": processor,
        "us_an_event": processor / simulation.events * 1e6,
        "jobs_a_s": count / processor,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure() -> Result:
    """Play all sizes; the samples are microseconds an event, those of the smallest beside the largest."""
    runs = []
    for count in SIZES:
        command = [sys.executable, "-m", "tests.bench.simulator", f"{count}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        runs.append(json.loads(done.stdout))
        print(
            "{jobs:>9,} jobs, {events:>9,} events: {us_an_event:.1f} us an event, {jobs_a_s:,.0f} jobs/s, "
            "{peak_mb:.0f} MB at most; read in {read_s:.1f} s".format(**runs[-1])
        )
    goal = "an event of a million jobs costs what one of ten thousand does, times log n at most"
    largest, smallest = runs[-1]["us_an_event"], runs[0]["us_an_event"]
    return Result("simulator", "us", [largest], [smallest], goal, {"runs": runs})


if __name__ == "__main__":
    print(json.dumps(play(int(sys.argv[1]))))
