"""A lease for the cell that runs: asked for, waited for, however long that takes, until there is an answer.

Law: only the main thread waits, in looks that an interrupt ends; whoever is interrupted tells the router so.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from replkernel.errors import NoLease
from replkernel.leasing.notebook import GpuAnswer, GpuQuestion, PausedOn

LOOK_S, LOOK_MAX_S = 0.01, 0.5
"""How soon the router is asked again: at first, and at last. It shows the place in the queue itself."""
UNLEASED = "This cell uses a GPU and has no lease"
UNPAUSED = (
    "This cell was paused for a shorter one, and cannot go on. Its variables are as they were: do the rest "
    "in a new cell with a GPU (`%%gpu` at its top)"
)
ELSEWHERE = (
    "This would start CUDA without a lease, in a thread of its own or between cells, where nobody can wait "
    "for one: begin with a cell that has a GPU (`%%gpu` at its top)."
)


def lease_in_cell(kernel: Any, gpus: int, paused: PausedOn | None = None) -> GpuAnswer:
    """Return what says on which GPUs the running cell has a lease, once it has one; raises NoLease.

    `paused`: it had others, and has left them for a shorter cell.
    """
    if threading.current_thread() is not threading.main_thread() or not kernel.in_leased_notebook():
        raise NoLease(ELSEWHERE)
    look_s = LOOK_S
    try:
        while True:
            answer: GpuAnswer = kernel.ask_router(GpuQuestion("lease", gpus, paused=paused))
            if answer.gpus:
                return answer
            if answer.error and not answer.unheard:
                raise NoLease(f"{UNLEASED if paused is None else UNPAUSED}: {answer.error}")
            time.sleep(look_s)
            look_s = min(look_s * 1.5, LOOK_MAX_S)
    except KeyboardInterrupt:
        with kernel.interrupts.put_off():
            kernel.tell_router(GpuQuestion("waive"))
        raise
