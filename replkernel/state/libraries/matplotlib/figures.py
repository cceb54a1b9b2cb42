"""matplotlib's figures: their state, and a canvas of the same class.

A figure is rebuilt without a manager; `patches.pyplot` puts open figures under their numbers.
Law: imported only when matplotlib's figures are; nothing of a figure is changed by being looked at.
"""

from __future__ import annotations

import copyreg
import importlib
import sys
from typing import TYPE_CHECKING, Any

from matplotlib import figure as _figure
from matplotlib.axes._base import _AxesBase
from matplotlib.figure import Figure

from replkernel.loaders import loader
from replkernel.state.libraries.matplotlib.open_figures import apart
from replkernel.state.python.kinds import module_of, qualname_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

PROTOCOL = 5
_Figure: Any = Figure
_stack = vars(_figure)["_AxesStack"]
_ORIGINAL_DPI = "_original_dpi"
"""What a figure had when it got its canvas, to which a new one without a window would set it back."""
_TO_PYLAB = "_restore_to_pylab"


def reduce_figure(context: ReducerContext, figure: Any) -> object:
    """Reduce a figure to its state and the class of its canvas."""
    state = figure.__getstate__()
    state.pop(_TO_PYLAB, None)
    if figure.canvas.device_pixel_ratio == 1:
        # matplotlib takes what a screen's pixels make of it for what the user set, and forgets both.
        state["_dpi"] = figure.dpi
    canvas = type(figure.canvas)
    where = (module_of(canvas), qualname_of(canvas))
    return copyreg.__newobj__, (type(figure),), (state, where), None, None, fill_figure  # type: ignore[attr-defined]


@loader("matplotlib:fill_figure")
def fill_figure(figure: Any, state: tuple[dict[str, Any], tuple[str, str]]) -> None:
    """Give a figure its state and a canvas of the same class (called by payloads)."""
    attributes, (module, name) = state
    stale = attributes.get("_stale")
    if type(figure).__setstate__ is _Figure.__setstate__:
        _take(figure, attributes)
    else:
        figure.__setstate__(attributes)
    found: object = sys.modules.get(module) or _import(module)
    canvas = getattr(found, name, None)
    if canvas is not None and canvas is not type(figure.canvas):
        with apart(figure):
            canvas(figure)
    vars(figure)["_stale"] = stale


def _take(figure: Any, attributes: dict[str, Any]) -> None:
    """Do what a figure's own `__setstate__` does, but leave transforms that are right as they are."""
    attributes.pop("__mpl_version__", None)
    vars(figure).update(attributes)
    original = vars(figure).pop(_ORIGINAL_DPI, None)
    with apart(figure):
        figure._set_base_canvas()
    if original is not None:
        vars(figure)[_ORIGINAL_DPI] = original
    scale = figure.dpi_scale_trans
    if scale._mtx[0, 0] != figure._dpi:
        scale.clear().scale(figure._dpi)


def reduce_axes(context: ReducerContext, axes: _AxesBase) -> object:
    """Reduce axes as they reduce themselves, and whether they are to be drawn again."""
    reduced = axes.__reduce_ex__(PROTOCOL)
    if type(reduced) is not tuple or len(reduced) < 3 or any(reduced[3:]):
        return NotImplemented
    return *reduced[:2], (reduced[2], vars(axes).get("_stale")), None, None, fill_axes


@loader("matplotlib:fill_axes")
def fill_axes(axes: Any, state: tuple[Any, Any]) -> None:
    """Give axes their state (called by payloads)."""
    attributes, stale = state
    axes.__setstate__(attributes)
    vars(axes)["_stale"] = stale


def reduce_stack(context: ReducerContext, stack: object) -> object:
    """Reduce which axes are current: matplotlib's own way gives a number to the next that these have."""
    return copyreg.__newobj__, (type(stack),), vars(stack), None, None, fill_stack  # type: ignore[attr-defined]


@loader("matplotlib:fill_stack")
def fill_stack(stack: object, attributes: dict[str, Any]) -> None:
    """Give a figure's stack of axes its order and its counter (called by payloads)."""
    vars(stack).update(attributes)


def _import(module: str) -> object:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


EXACT: dict[type, Any] = {_stack: reduce_stack}
FAMILIES = [(Figure, reduce_figure), (_AxesBase, reduce_axes)]
