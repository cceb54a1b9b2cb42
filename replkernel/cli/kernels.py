"""`replkernel hibernate`, `recover`, `forget`: what is done to one kernel, named by its id.

Law: it only asks and says; what is done is `by_record`'s.
"""

from __future__ import annotations

import os

from replkernel.client.by_record import ask_kernel, forget, known_record
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, router_lives


def run_hibernate(kernel_id: str) -> int:
    """Hibernate a kernel; return the exit code."""
    ask_kernel(_served(kernel_id), "replkernel_hibernate_request")
    print(
        f"Kernel {kernel_id} hibernates: no replica is left, and the next cell resumes it with all variables."
    )
    return 0


def run_recover(kernel_id: str) -> int:
    """Have a kernel that has lost its majority for good go on from what is left; return the exit code."""
    ask_kernel(_served(kernel_id), "replkernel_recover_request")
    print(f"Kernel {kernel_id} goes on from what is left; its next cell says which cells are lost, if any.")
    return 0


def run_forget(kernel_id: str) -> int:
    """Delete everything that a hibernated kernel has left; return the exit code."""
    forget(kernel_id, os.environ)
    print(f"Kernel {kernel_id} is forgotten: its record, its checkpoints and its data are deleted.")
    return 0


def _served(kernel_id: str) -> KernelRecord:
    record = known_record(kernel_id, os.environ)
    if not router_lives(record):
        state = "hibernates already" if record.state == "hibernated" else "has no router"
        raise ReplkernelError(f"Kernel {kernel_id} {state}: open its notebook to resume it.")
    return record
