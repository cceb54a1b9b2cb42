"""What the C pickler does for an object without a reducer, done here: it would look the object's type up.

Law: a type whose metaclass says how it is hashed, or to what it is equal, is found by its identity.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

from replkernel.state.python.kinds import Odd, entry_of, key_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.capture.outcomes import Reducer

PROTOCOL = 5


def reduction(value: Any) -> Any:
    """Return the reduction of an object as pickle asks for it; NotImplemented for what it finds by name."""
    # By type: a proxy, as of wrapt, calls itself an instance of what it stands for.
    kind = type(value)
    reduce = entry_of(copyreg.dispatch_table, kind)
    if reduce is None and issubclass(kind, type):
        return NotImplemented
    return reduce(value) if reduce is not None else value.__reduce_ex__(PROTOCOL)


def unasked(kind: type, plan: Reducer) -> Reducer:
    """Return a reducer that leaves no instance to the C pickler where the metaclass would be asked."""
    if key_of(kind) is not Odd:
        return plan

    def reduce_unasked(pickler: UnitContext, value: object) -> Any:
        reduced = plan(pickler, value)
        return reduction(value) if reduced is NotImplemented else reduced

    return reduce_unasked
