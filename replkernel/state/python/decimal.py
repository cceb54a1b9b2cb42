"""Decimal contexts: the one in force travels by reference, for who holds it sets what cells compute with.

Law: imported only when decimal is; what the context in force is set to travels as `@decimal`.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING

from replkernel.state.capture.sentinels import plan_for_library

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_context(pickler: UnitContext, context: decimal.Context) -> object:
    """Reduce a context: by reference where cells compute in it."""
    if context is decimal.getcontext():
        pickler.unlinked.add(id(context))
        return decimal.getcontext, ()
    return _by_name_or_value(pickler, context)


_by_name_or_value = plan_for_library(decimal.Context)
EXACT = {decimal.Context: reduce_context}
