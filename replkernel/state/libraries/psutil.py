"""Processes that psutil looks at: the notebook's own is that of wherever its cells run, others stay.

Law: imported only when psutil is. What was measured of a process is not carried over to another one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psutil

from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_process(context: ReducerContext, process: psutil.Process) -> object:
    """Reduce the notebook's own process to that, with what the user put on it; refuse any other."""
    if type(process) is not psutil.Process or process.pid != os.getpid():
        raise CannotTravel("A process is known on its own host only; keep its pid.")
    context.module_needed("psutil")
    of_user = {name: value for name, value in vars(process).items() if not name.startswith("_")}
    return psutil.Process, (), of_user or None


FAMILIES: list[tuple[type, Any]] = [(psutil.Process, reduce_process)]
