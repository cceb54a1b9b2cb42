"""replkernel: a Jupyter kernel whose state is replicated and whose GPUs are leased cell by cell."""

from __future__ import annotations

TYPE_CHECKING = False  # As typing's own, whose import takes as long as the rest of this module.
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

__version__ = "0.1.0"


def export(values: Any, path: str | os.PathLike[str]) -> None:
    """Write a torch module, or a mapping of names to tensors, as a safetensors file."""
    from replkernel.gpu.export import export as write

    write(values, path)


def register(cls: type[T], dump: Callable[[T], Any], load: Callable[[Any], T]) -> None:
    """Have instances of `cls` (and its subclasses) travel as `load(dump(instance))`.

    `dump` returns anything that can travel, and leaves the instance as it is. It is called after each cell.
    `load` makes an object of the same class, on every replica, and changes nothing else in the notebook.
    """
    from replkernel.namespace.hooks import register as keep

    keep(cls, dump, load)


def transient(*values: Any, on: bool = True) -> None:
    """Leave the variables that hold `values` out of what replicas share: `transient(cache)`.

    For what is cheaper to make again than to copy. The mark stays with the variable's name, whatever it is
    bound to later, until `transient(cache, on=False)`. On another replica the variable is there by name only:
    whoever touches it is told which cell to run. Raises ValueError for what no variable holds.
    """
    import sys

    from replkernel.namespace.hints import mark_transient

    mark_transient(sys._getframe(1).f_globals, values, on=on)
