"""Objects with traits: traitlets copies one without those who observe it, of which a move must keep each.

Law: imported only when traitlets is, and for classes of the user's only; no trait is asked for its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from replkernel.namespace.class_registry import module_of
from replkernel.namespace.patches.own_modules import is_own
from replkernel.namespace.paths import instance_dict
from replkernel.namespace.reducers import instances

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def _is_users(cls: type) -> bool:
    return issubclass(cls, traitlets.HasTraits) and (module_of(cls) == "__main__" or is_own(module_of(cls)))


def reduce_traits(pickler: CapturePickler, value: Any) -> Any:
    """Reduce an object with its traits' values, observers and validators."""
    return instances.make_plain, (type(value),), instance_dict(value), None, None, instances.fill_plain


TESTS = [(_is_users, reduce_traits)]
