"""Forks of a kernel: new kernels at rest that begin with its state and share its blobs in the store.

Law: a fork never has the id or the key of the kernel that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping

from replkernel.carrying.founding import found_kernel
from replkernel.carrying.reseeding import reseeded
from replkernel.carrying.taking import rewritten, taken
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord

FORKS_MAX = 256


def fork_kernel(
    kernel_id: str, env: Mapping[str, str], count: int = 1, *, at: str = "", reseed: bool = False
) -> tuple[list[KernelRecord], bool]:
    """Make `count` kernels of a kernel's state; tell whether a cell runs, so that it is of an earlier one.

    `at` is a point of its history: a name, a branch or the number of a cell. Raises
    ReplkernelError; those that were made before something failed are there.
    """
    if not 1 <= count <= FORKS_MAX:
        raise ReplkernelError(f"{count} forks cannot be made at once: ask for 1 to {FORKS_MAX}.")
    with taken(kernel_id, env, at) as original:
        made = []
        for _ in range(count):
            base = original.base
            if reseed:
                base, _state = rewritten(original.state, reseeded(original.table.components))
            record = original.record
            about = f"fork of {kernel_id}"
            name = record.kernel_name or "replkernel"
            made.append(found_kernel(base, original.store, env, record.cwd, name, about))
        return made, original.behind
