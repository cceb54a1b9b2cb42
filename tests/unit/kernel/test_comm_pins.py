"""Which comm targets tie a notebook to its process."""

from __future__ import annotations

import json
from types import SimpleNamespace

import ipywidgets
from ipywidgets.widgets import widget as widgets

from replkernel.kernel.comm_pins import comm_pins, shown_pins
from replkernel.records import ReplicaId, Seq
from replkernel.state.libraries import ipywidgets as carried


def handler() -> None:
    """Stand for a function of the notebook."""


handler.__module__ = "__main__"


def test_only_the_notebooks_own_handlers_pin() -> None:
    targets = {"mine": handler, "jupyter.widget": json.loads, "bound": [].append}
    (pin,) = comm_pins(targets, ReplicaId("r1"), Seq(3))
    assert (pin.name, pin.replica, pin.seq) == ("comm target mine", "r1", 3)
    assert "'mine'" in pin.reason


def comm_of(handles: object, target: str = "jupyter.widget") -> SimpleNamespace:
    """Return a comm that gives its messages to a method of an object."""
    return SimpleNamespace(target_name=target, _msg_callback=SimpleNamespace(__self__=handles))


def test_an_object_that_pages_show_like_a_widget_pins() -> None:
    assert carried.ALIVE
    figure = type("Figure", (ipywidgets.IntText,), {"__module__": "plotly.figures"})
    own = type("Own", (figure,), {"__module__": "__main__"})
    made = [ipywidgets.IntText(), figure(), own()]
    try:
        slider, drawn, derived = map(comm_of, made)
        fine = {"slider": slider, "figure": drawn, "other": comm_of(None, "panel")}
        assert shown_pins(fine, ReplicaId("r1"), Seq(3)) == ()
        for apart in (derived, comm_of(object()), SimpleNamespace(target_name="jupyter.widget")):
            (pin,) = shown_pins({**fine, "apart": apart}, ReplicaId("r1"), Seq(3))
            assert (pin.replica, pin.seq) == ("r1", 3)
    finally:
        for one in made:
            widgets._instances.pop(one.model_id, None)
