"""What somebody registered with dill travels as that says; what dill alone would change stays."""

from __future__ import annotations

from collections.abc import Iterator

import dill
import pytest

from replkernel.state.tombstone import is_tombstone
from tests.support.notebook import Notebook, pair

DIALECT = "import csv\ndialect = csv.get_dialect('excel')\n"
REGISTERED = """
import dill
@dill.register(type(csv.get_dialect("excel")))
def save(pickler, dialect):
    name = "excel-tab" if dialect.delimiter == "\\t" else "excel"
    pickler.save_reduce(csv.get_dialect, (name,), obj=dialect)
"""
BROKEN = """
import dill
@dill.register(type(csv.get_dialect("excel")))
def save(pickler, dialect):
    raise ValueError("broken")
"""
CAPSULE = """
import ctypes
def made():
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    return new(1, None, None)
x = made()
"""


@pytest.fixture(autouse=True)
def registered_with_dill() -> Iterator[None]:
    before = dict(dill._dill.Pickler.dispatch)
    yield
    dill._dill.Pickler.dispatch.clear()
    dill._dill.Pickler.dispatch.update(before)


def refused(one: Notebook, code: str) -> list[str]:
    return [pin.reason for record in one.run(code, 1).components for pin in record.pins]


def test_a_type_registered_with_dill_is_copied_as_that_says_and_shared_as_before() -> None:
    one, two = pair()
    told = one.run(DIALECT + REGISTERED + "kept = [dialect, csv.get_dialect('excel-tab')]", 1)
    two.take(told)
    assert [each.delimiter for each in two["kept"]] == [",", "\t"]
    assert two["kept"][0] is two["dialect"]
    names = [name for record in told.components for name in record.names]
    assert "library dill._dill:Pickler.dispatch[<Dialect@_csv>]" in names
    assert one.state.unfaithful == two.state.unfaithful == ()


def test_an_error_in_a_function_registered_with_dill_is_told() -> None:
    told = refused(Notebook("r1"), DIALECT + BROKEN)
    assert told == ["What was registered with dill for a Dialect failed (ValueError: broken)."]


@pytest.mark.parametrize("code", [CAPSULE, "x = iter(vars().items())", DIALECT + "import dill; x = dialect"])
def test_a_value_that_dill_would_change_stays_and_says_so(code: str) -> None:
    one, two = pair()
    two.take(one.run(code, 1))
    assert is_tombstone(two["x"])


def test_a_type_of_pythons_that_nobody_has_asked_yet_is_refused_by_name() -> None:
    assert refused(Notebook("r1"), "at = (lambda: 0).__code__.co_lines()") == [
        "Its library has no way to copy a line_iterator to another process."
    ]
