"""replkernel: a Jupyter kernel whose state is replicated and whose GPUs are leased cell by cell."""

from __future__ import annotations

TYPE_CHECKING = False  # As typing's own, whose import takes as long as the rest of this module.
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any, TypeVar

    from replkernel.protocol.timeline import Difference, Timeline

    T = TypeVar("T")

__version__ = "0.2.0"


def export(values: object, path: str | os.PathLike[str]) -> None:
    """Write a torch module, or a mapping of names to tensors, as a safetensors file."""
    from replkernel.gpu.export import export as write

    write(values, path)


def history() -> Timeline:
    """Return the points of this notebook's history, the earliest first, with marks and branches."""
    from replkernel.kernel.history_magics import timeline_of_here

    return timeline_of_here()


def undo(steps: int = 1, *, sure: bool = False) -> None:
    """Take all variables back `steps` changes, once the cell that calls this has ended.

    What cannot be copied is named first and nothing is done, unless you are `sure`.
    """
    from replkernel.kernel.history_magics import travel

    travel("undo", str(steps), sure=sure)


def redo(steps: int = 1, *, sure: bool = False) -> None:
    """Go forward again by `steps` changes that were undone, once the cell that calls this has ended."""
    from replkernel.kernel.history_magics import travel

    travel("redo", str(steps), sure=sure)


def goto(point: str | int, *, sure: bool = False) -> None:
    """Take all variables to a mark, a branch's end or a cell's number, once the calling cell has ended."""
    from replkernel.kernel.history_magics import travel

    travel("goto", str(point), sure=sure)


def mark(name: str) -> None:
    """Name the state after the cell that calls this; it is kept until the name is taken away."""
    from replkernel.kernel.history_magics import ask_here

    ask_here("mark", name)


def unmark(name: str) -> None:
    """Take the name of a point, or a branch, away: from then on the settings bound how long it is kept."""
    from replkernel.kernel.history_magics import ask_here

    ask_here("unmark", name)


def branch(name: str) -> None:
    """Begin a branch at the state of now: what cells change from here on is on it."""
    from replkernel.kernel.history_magics import ask_here

    ask_here("branch", name)


def branches() -> dict[str, int]:
    """Return the branches, each with the number of the cell at its end; 0 where that point is not kept."""
    timeline = history()
    cells = {point.mark: point.number for point in timeline.points}
    return {name: cells.get(mark, 0) for name, mark in timeline.branches.items()}


def switch(name: str, *, sure: bool = False) -> None:
    """Take all variables to the end of another branch, once the calling cell has ended, and go on there."""
    from replkernel.kernel.history_magics import travel

    travel("switch", name, sure=sure)


def compare(one: str | int, other: str | int) -> tuple[Difference, ...]:
    """Return the variables that differ between two points, with their bytes and what they hold, in short.

    A point is a mark, a branch's end or a cell's number. Nothing is loaded, so no code of the values runs.
    Raises ReplkernelError where a point is not kept.
    """
    from replkernel.kernel.history_magics import differences_of_here

    return differences_of_here(str(one), str(other))


def register(cls: type[T], dump: Callable[[T], Any], load: Callable[[Any], T]) -> None:
    """Have instances of `cls` (and its subclasses) travel as `load(dump(instance))`.

    `dump` returns anything that can travel, and leaves the instance as it is. It is called after each cell.
    `load` makes an object of the same class, on every replica, and changes nothing else in the notebook.
    """
    from replkernel.state.hooks import register as keep

    keep(cls, dump, load)


def transient(*values: object, on: bool = True) -> list[str] | None:
    """Leave the variables that hold `values` out of what replicas share: `transient(cache)`.

    For what is cheaper to make again than to copy. The mark stays with the variable's name, whatever it is
    bound to later, until `transient(cache, on=False)`. On another replica the variable is there by name only:
    whoever touches it is told which cell to run. Without arguments, return the names that are marked.
    Raises ValueError for what no variable holds.
    """
    import sys

    from replkernel.state import hints

    if not values:
        return list(hints.transient)
    hints.mark_transient(sys._getframe(1).f_globals, values, on=on)
    return None


def keep(*values: object, every: float | str | None = "") -> dict[str, str] | None:
    """Make what changes in these variables durable once in so long at most: `keep(model, every="5 min")`.

    For large state that every cell changes. In between, the whole notebook is durable as of the last time: a
    crash takes it back there, and you are told which cells to run again. `%replkernel sync` makes all of it
    durable at once; so does whatever takes the notebook to another process, a move or a rest.
    Text among `values` is the name of a variable. `every` is seconds, or text such as ``30 s``, ``5 min``,
    ``1 h``; None withdraws the mark, which stays with the name as that of `transient` does. Without values,
    return how often what is kept. Raises ValueError for what no variable holds, and for other times.
    """
    import sys

    from replkernel.state import hints

    if not values:
        return {name: hints.every_in_words(seconds) for name, seconds in hints.kept.items()}
    hints.mark_kept(sys._getframe(1).f_globals, values, every)
    return None
