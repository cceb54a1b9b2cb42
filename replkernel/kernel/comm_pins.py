"""The pins of comms: of a notebook's handler of ``comm_open``, and of what pages show that is no widget.

Law: only looks. What a library registers when it is imported is registered on each replica, and pins nothing;
neither do widgets, which every replica has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from replkernel.records import Pin, ReplicaId, Seq

NOTEBOOK = "__main__"
WIDGETS = "jupyter.widget"


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


def shown_pins(comms: Mapping[str, Any], replica: ReplicaId, seq: Seq) -> tuple[Pin, ...]:
    """Return a pin if pages show something by a comm for widgets that no other process could go on with."""
    library = sys.modules.get("replkernel.state.libraries.ipywidgets")
    shown = [held for held in list(comms.values()) if held.target_name == WIDGETS]
    if not shown or (library is not None and library.all_travel(shown)):
        return ()
    reason = "The page shows an object that lives in this process alone: it is no widget of ipywidgets."
    return (Pin(name="object on the page", type_name="comm", replica=replica, seq=seq, reason=reason),)
