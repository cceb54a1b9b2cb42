"""Models of pydantic made for types: ``Model[int]`` is the same class again wherever the notebook asks for it.

Law: pydantic is asked only where it is imported; a class that it knows already stays what it is.
"""

from __future__ import annotations

import sys
from typing import Any

from replkernel.namespace import loading

_TOLD = "__pydantic_generic_metadata__"


def enter(cls: type, attributes: dict[str, Any]) -> None:
    """Have pydantic give a rebuilt class to whoever asks for its model and types next."""
    told = attributes.get(_TOLD)
    origin = told.get("origin") if type(told) is dict else None
    library: Any = sys.modules.get("pydantic._internal._generics")
    enter_it = getattr(library, "set_cached_generic_type", None)
    if origin is not None and enter_it is not None:
        args = told["args"]
        loading.current().late.append(lambda: enter_it(origin, args, cls, origin, args))
