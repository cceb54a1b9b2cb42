"""Which comm targets tie a notebook to its process."""

from __future__ import annotations

import json

from replkernel.kernel.comm_pins import comm_pins
from replkernel.records import ReplicaId, Seq


def handler() -> None:
    """Stand for a function of the notebook."""


handler.__module__ = "__main__"


def test_only_the_notebooks_own_handlers_pin() -> None:
    targets = {"mine": handler, "jupyter.widget": json.loads, "bound": [].append}
    (pin,) = comm_pins(targets, ReplicaId("r1"), Seq(3))
    assert (pin.name, pin.replica, pin.seq) == ("comm target mine", "r1", 3)
    assert "'mine'" in pin.reason
