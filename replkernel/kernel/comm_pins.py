"""The pins of comm targets: a notebook's handler of ``comm_open`` lives in the process that registered it.

Law: only looks. What a library registers when it is imported is registered on each replica, and pins nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from replkernel.records import Pin, ReplicaId, Seq

NOTEBOOK = "__main__"


def comm_pins(targets: Mapping[str, Callable[..., object]], replica: ReplicaId, seq: Seq) -> tuple[Pin, ...]:
    """Return a pin for each comm target whose handler is the notebook's."""
    return tuple(
        Pin(
            name=f"comm target {name}",
            type_name=type(handler).__name__,
            replica=replica,
            seq=seq,
            reason=f"The notebook handles the comm target {name!r} in this process.",
        )
        for name, handler in list(targets.items())
        if getattr(handler, "__module__", "") == NOTEBOOK
    )
