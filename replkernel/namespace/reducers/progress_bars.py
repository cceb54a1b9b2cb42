"""tqdm's wrappers of streams, which ask the wrapped stream for every attribute, their own state included.

Law: imported only when tqdm is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tqdm.utils import ObjectWrapper  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_wrapper(pickler: CapturePickler, wrapper: Any) -> Any:
    """Reduce a wrapper to its class and attributes, past what it answers in the stream's name."""
    return bare_wrapper, (type(wrapper),), vars(wrapper), None, None, set_attributes


def bare_wrapper(cls: Any) -> Any:
    """Make a wrapper around nothing yet (called by payloads)."""
    return object.__new__(cls)


def set_attributes(wrapper: Any, attributes: dict[str, Any]) -> None:
    """Give a wrapper its own attributes (called by payloads)."""
    vars(wrapper).update(attributes)


FAMILIES = [(ObjectWrapper, reduce_wrapper)]
