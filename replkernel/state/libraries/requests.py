"""Answers to HTTP requests: one whose body is still on its connection stays, as its own copy would read it.

Law: imported only when requests is; nothing here reads from a connection.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

from requests.models import Response

from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_NEW_OBJECT: Any = copyreg.__dict__["__newobj__"]


def reduce_response(context: ReducerContext, response: Response) -> object:
    """Refuse an answer whose body is still to be read; reduce one that was closed to what it would give."""
    held = vars(response)
    raw = held.get("raw")
    if raw is None or held.get("_content_consumed"):
        return NotImplemented
    if not getattr(raw, "closed", False):
        raise CannotTravel(
            "Its body is still to be read from a connection: `.content` reads it, `.close()` gives it up."
        )
    context.module_needed("requests")
    state = {name: getattr(response, name, None) for name in response.__attrs__}
    return _NEW_OBJECT, (type(response),), {**state, "_content": state["_content"] or b""}


FAMILIES: list[tuple[type, Any]] = [(Response, reduce_response)]
