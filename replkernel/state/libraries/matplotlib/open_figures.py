"""The open figures of pyplot under their numbers, the current one last, as one place in a library.

Law: putting figures there shows nothing and runs no callback.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MODULE, OWNER = "matplotlib._pylab_helpers", "Gcf.figs"
_INLINE = "matplotlib_inline.backend_inline"
FIRST_APART = 1_000_000
"""Callbacks that are made with a figure's canvas and manager are numbered from here."""


def read_figures(managers: Any) -> list[tuple[Any, Any]] | None:
    """Return the open figures with their numbers; None when there are none."""
    if not managers:
        return None
    return [(number, manager.canvas.figure) for number, manager in list(managers.items())]


def put_figures(managers: Any, figures: list[tuple[Any, Any]]) -> None:
    """Make these the open figures."""
    wanted = dict(figures)
    for number, manager in list(managers.items()):
        if wanted.get(number) is not manager.canvas.figure:
            del managers[number]
    for number, figure in figures:
        if number not in managers:
            _open(number, figure)
        managers.move_to_end(number)


def _open(number: int | str, figure: Figure) -> None:
    """Give a figure a manager with its own kind of canvas; one with a window gets this backend's."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    stale = vars(figure).get("_stale")
    with _undrawn(), apart(figure):
        backend, canvas = pyplot._get_backend_mod(), type(figure.canvas)
        if canvas in (backend.FigureCanvas, _plain_canvas()) or canvas.required_interactive_framework:
            manager = backend.new_figure_manager_given_figure(number, figure)
        else:
            manager = canvas.new_manager(figure, number)
        sys.modules[MODULE].Gcf._set_new_active_manager(manager)
    vars(figure)["_stale"] = stale


def _plain_canvas() -> object:
    """Return the class of the canvas of a figure that has no backend."""
    return importlib.import_module("matplotlib.backend_bases").FigureCanvasBase


@contextlib.contextmanager
def apart(figure: Any) -> Iterator[None]:
    """Let callbacks be connected that are not the notebook's: they use none of the numbers it may get."""
    registries = (figure._canvas_callbacks, figure._axobservers)
    counters = [registry._cid_gen for registry in registries]
    for registry in registries:
        registry._cid_gen = itertools.count(FIRST_APART + len(registry.callbacks))
    try:
        yield
    finally:
        for registry, counter in zip(registries, counters, strict=True):
            registry._cid_gen = counter


@contextlib.contextmanager
def _undrawn() -> Iterator[None]:
    """Keep a backend from drawing or showing a figure because it was opened here."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    pyplot._get_backend_mod()
    settings = pyplot.rcParams
    show: Any = getattr(sys.modules.get(_INLINE), "show", None)
    before = None if show is None else (list(show._to_draw), show._draw_called)
    interactive = settings["interactive"]
    settings["interactive"] = False
    try:
        yield
    finally:
        settings["interactive"] = interactive
        if before is not None:
            show._to_draw[:], show._draw_called = before
