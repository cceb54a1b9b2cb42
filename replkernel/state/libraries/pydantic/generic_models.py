"""Models of pydantic made for types: ``Model[int]`` is the same class wherever the notebook asks for it.

Law: pydantic is asked only where it is imported; a class that it knows already stays what it is.
"""

from __future__ import annotations

import sys
from typing import Any

from replkernel.state.restore import loading

_TOLD = "__pydantic_generic_metadata__"


def enter(cls: type, attributes: dict[str, Any]) -> None:
    """Have pydantic give a rebuilt class to whoever asks for its model and types next."""
    told = attributes.get(_TOLD)
    if type(told) is not dict or told.get("origin") is None:
        return
    library: object = sys.modules.get("pydantic._internal._generics")
    enter_it = getattr(library, "set_cached_generic_type", None)
    if enter_it is not None:
        origin, args = told["origin"], told["args"]
        loading.current().late.append(lambda: enter_it(origin, args, cls, origin, args))
