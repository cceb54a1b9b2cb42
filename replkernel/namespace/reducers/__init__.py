"""How each kind of object is reduced: one noun a file, joined here into one table.

A reducer gets the pickler and an object and returns what `__reduce_ex__` may return; NotImplemented leaves
the object to pickle itself. Law: a reducer changes nothing, reads no property and consumes no iterator.
"""

from __future__ import annotations

from replkernel.namespace.reducers.modules import stand_in_for
from replkernel.namespace.reducers.outcome import AT_THE_END, Again, CannotTravel, Endless, Overlap
from replkernel.namespace.reducers.refusals import in_words
from replkernel.namespace.reducers.roots import Grave, whole
from replkernel.namespace.reducers.table import plan, plans
from replkernel.namespace.reducers.users_ways import ASKED_MAX

__all__ = [
    "ASKED_MAX",
    "AT_THE_END",
    "Again",
    "CannotTravel",
    "Endless",
    "Grave",
    "Overlap",
    "in_words",
    "plan",
    "plans",
    "stand_in_for",
    "whole",
]
