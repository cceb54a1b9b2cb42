"""matplotlib's callback registries, whose own pickling would use up one of their numbers each time.

Law: imported only when matplotlib is.
"""

from __future__ import annotations

import copy
import copyreg
from typing import TYPE_CHECKING, Any

from matplotlib.cbook import CallbackRegistry

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_registry(pickler: CapturePickler, registry: Any) -> Any:
    """Reduce a registry as it reduces itself, with its counter put back."""
    attributes = vars(registry)
    counter = attributes.get("_cid_gen")
    if counter is None:
        return NotImplemented
    attributes["_cid_gen"] = copy.copy(counter)
    try:
        state = registry.__getstate__()
    finally:
        attributes["_cid_gen"] = counter
    return copyreg.__newobj__, (type(registry),), state  # type: ignore[attr-defined]


FAMILIES = [(CallbackRegistry, reduce_registry)]
