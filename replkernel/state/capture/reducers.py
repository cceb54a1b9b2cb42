"""How each kind of object is reduced: one noun a file, joined here into one table.

A reducer gets the pickler and an object and returns what `__reduce_ex__` may return; NotImplemented leaves
the object to pickle itself. Law: a reducer changes nothing, reads no property and consumes no iterator.
"""

from __future__ import annotations

from replkernel.state.capture.outcomes import Again, CannotTravel, Endless, Overlap
from replkernel.state.capture.reducer_table import plan, plans
from replkernel.state.capture.refusals import in_words
from replkernel.state.capture.registered import ASKED_MAX
from replkernel.state.format.roots import LostRoot, whole
from replkernel.state.python.modules import stand_in_for

__all__ = [
    "ASKED_MAX",
    "Again",
    "CannotTravel",
    "Endless",
    "LostRoot",
    "Overlap",
    "in_words",
    "plan",
    "plans",
    "stand_in_for",
    "whole",
]
