"""`python -m tests.bench [NAME …]`: run all measurements, or those named."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from tests.bench import (
    cell_cpu,
    commit_latency,
    debugger,
    dill_catalogue,
    drift,
    dying_notebooks,
    far_replicas,
    far_state,
    fork_memory,
    going_back,
    gpu_in_place,
    idle_cpu,
    idle_notebooks,
    interrupts,
    jobs_beside,
    kills,
    lease,
    many_objects,
    memory_pss,
    packing,
    pass_round_trip,
    print_throughput,
    questions,
    raft_commit,
    scheduler_channel,
    scheduler_core,
    scheduler_get,
    scheduler_interactivity,
    scheduler_rest,
    sequences_back,
    simulator,
    simulator_peer,
    simulator_traces,
    state_budget,
    state_cells,
    state_memory,
    state_peers,
    state_restore,
    state_transfer,
    survival_agent,
    survival_executor,
    survival_majority,
    survival_many,
    told_waits,
    training_disk,
)
from tests.bench import start_to_first_reply as start
from tests.bench.report import BUILD, Result, write

MEASUREMENTS: dict[str, Callable[[], Result]] = {
    "pass_round_trip": pass_round_trip.measure,
    "packing": packing.measure,
    "print_throughput": print_throughput.measure,
    "questions": questions.measure,
    "debugger": debugger.measure,
    "start_cold": start.measure_cold,
    "start_warm": start.measure_warm,
    "commit_latency": commit_latency.measure,
    "far_replicas": far_replicas.measure,
    "far_state": far_state.measure,
    "raft_commit": raft_commit.measure,
    "idle_cpu": idle_cpu.measure,
    "idle_notebooks": idle_notebooks.measure,
    "cell_cpu": cell_cpu.measure,
    "cell_cpu_variables": cell_cpu.measure_variables,
    "memory_pss": memory_pss.measure,
    "state_unchanged": state_cells.measure_unchanged,
    "state_small_change": state_cells.measure_small_change,
    "state_new_array": state_cells.measure_new_array,
    "state_text": state_cells.measure_text,
    "state_rebinding": state_memory.measure_rebinding,
    "state_peak": state_memory.measure_peak,
    "state_transfer": state_transfer.measure,
    "state_peers": state_peers.measure,
    "dill_catalogue": dill_catalogue.measure,
    "state_budget": state_budget.measure,
    "state_restore": state_restore.measure,
    "training_disk": training_disk.measure,
    "told_waits": told_waits.measure,
    "undo": going_back.measure_undo,
    "history_kept": going_back.measure_points,
    "history_kept_long": going_back.measure_many_points,
    "sequences_back": sequences_back.measure,
    "sequences_back_all": sequences_back.measure_all,
    "forks": fork_memory.measure,
    "forks_of": fork_memory.measure_others,
    "survival_mid_cell": survival_executor.measure_mid_cell,
    "survival_idle": survival_executor.measure_idle,
    "survival_agent": survival_agent.measure,
    "survival_two_of_three": survival_majority.measure_two,
    "survival_three_of_three": survival_majority.measure_all,
    "survival_many": survival_many.measure,
    "interrupts": interrupts.measure,
    "drift": drift.measure,
    "drift_growing": drift.measure_growing,
    "drift_long": drift.measure_long,
    "many_objects": many_objects.measure,
    "many_objects_long": many_objects.measure_long,
    "large_elements": many_objects.measure_large,
    "large_elements_long": many_objects.measure_large_long,
    "kills": kills.measure,
    "lease": lease.measure,
    "jobs_beside": jobs_beside.measure,
    "dying_notebooks": dying_notebooks.measure,
    "gpu_in_place": gpu_in_place.measure,
    "scheduler_core": scheduler_core.measure,
    "scheduler_full": scheduler_core.measure_full,
    "scheduler_large": scheduler_core.measure_large,
    "scheduler_rest": scheduler_rest.measure,
    "scheduler_get": scheduler_get.measure,
    "scheduler_channel": scheduler_channel.measure,
    "scheduler_interactivity": scheduler_interactivity.measure,
    "simulator": simulator.measure,
    "simulator_peer": simulator_peer.measure,
    "simulator_traces": simulator_traces.measure,
}


LONG = {"drift_long", "history_kept_long", "sequences_back_all", "many_objects_long", "large_elements_long"}
"""Measured only by name: they take many minutes."""


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """Leave at the first SIGTERM in an orderly way: kernels are closed."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> int:
    """Measure and write; return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MEASUREMENTS)}")
    names = parser.parse_args().names or [name for name in MEASUREMENTS if name not in LONG]
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(MEASUREMENTS)}")
    signal.signal(signal.SIGTERM, _leave)
    failed = []
    for name in names:
        try:
            print(write(MEASUREMENTS[name]()), flush=True)
        except Exception:  # The other measurements are worth having; what broke this one is printed.
            traceback.print_exc()
            failed.append(name)
    print(f"Written to {BUILD}." + (f" Failed: {', '.join(failed)}." if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
