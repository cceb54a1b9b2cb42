"""What a variable holds in a few letters, of its captured bytes alone."""

from __future__ import annotations

import pytest

from replkernel.carrying.glances import CHARS_MAX, glances, with_glances
from replkernel.protocol.timeline import Difference
from replkernel.records import ComponentId, ComponentRecord, Digest, Payload, Seq
from replkernel.replication.components import TableState
from tests.support.notebook import pair

SHOWN = {
    "x = 41": "41",
    "x = -2.5": "-2.5",
    "x = None": "None",
    "x = True": "True",
    "x = 'text'": "'text'",
    "x = 'a' * 99": "'" + "a" * 38 + "…",
    "x = b'ab'": "b'ab'",
    "x = [1, 'a', (2,)]": "[1, 'a', (2,)]",
    "x = list(range(9))": "[0, 1, 2, 3, …]",
    "x = {'a': 1, 'b': [2]}": "{'a': 1, 'b': [2]}",
    "x = [[[1]]]": "[[list 1]]",
    "x = set()": "set()",
    "x = 10 ** 60": "int",
    "import numpy; x = numpy.arange(3.0)": "numpy.ndarray 3 [0, 1, 2]",
    "import numpy; x = numpy.zeros((2, 3), 'i4')": "numpy.ndarray 2×3 [0, 0, 0, 0, …]",
    "import pandas; x = pandas.DataFrame({'a': [1, 2]})": "pandas.DataFrame 2×1",
    "def x(): pass": "function",
    "class T:\n    def __repr__(self): raise SystemExit\nx = T()": "",
}


def captured(cell: str) -> ComponentRecord:
    notebook, _ = pair()
    return next(one for one in notebook.run(cell, 1).components if "x" in one.names)


@pytest.mark.parametrize("cell", SHOWN)
def test_a_value_is_told_in_short(cell: str) -> None:
    found = glances(captured(cell))["x"]
    assert found == SHOWN[cell]
    assert len(found) <= CHARS_MAX


def test_a_variable_without_a_glance_is_shown_by_its_size() -> None:
    broken = ComponentRecord(ComponentId("c"), ("x",), Seq(1), Payload(head=b"\x80"), Digest(""), 1)
    known = TableState({broken.cid: broken})
    found = (Difference("x", 1, 2),)
    assert with_glances(found, known, None) == found


def test_two_points_are_told_beside_each_other() -> None:
    before, after = (captured(cell) for cell in ("x = 1", "x = 2"))
    tables = [TableState({one.cid: one}) for one in (before, after)]
    (told,) = with_glances((Difference("x", 5, 5),), *tables)
    assert (told.was, told.now) == ("1", "2")
