"""What is told of variables, without any code of the user's being run for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replkernel.kernel.variable_answers import described
from replkernel.protocol.variables import VARIABLES_MAX, Variable


def one(value: Any) -> Variable:
    """Return what is told of a variable."""
    (found,) = described({"x": value}, {}, []).variables
    return found


ASKED: list[str] = []


class Sly(type):
    """A metaclass that runs code where its types are asked for their names."""

    def __getattribute__(cls, name: str) -> Any:
        ASKED.append(name)
        return super().__getattribute__(name)


class Watched(metaclass=Sly):
    """A type that runs code for each look."""

    def __getattribute__(self, name: str) -> Any:
        ASKED.append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1, Variable(name="x", type="int", text="1")),
        (1 << 5000, Variable(name="x", type="int")),
        ("a" * 200, Variable(name="x", type="str", length=200, text=repr("a" * 200)[:80])),
        ([1, 2], Variable(name="x", type="list", length=2)),
        (np.zeros((2, 3)), Variable(name="x", type="numpy.ndarray", shape=(2, 3), dtype="float64")),
    ],
)
def test_types_shapes_and_plain_values_are_told(value: Any, told: Variable) -> None:
    assert one(value) == told


def test_a_column_that_is_called_dtype_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    assert one(pandas.DataFrame({"dtype": [1, 2]})).dtype == ""
    assert [each.name for each in described({"x": 1, 5: 2}, {}, []).variables] == ["x"]  # type: ignore[dict-item]


def test_no_code_of_the_users_runs_for_it() -> None:
    value = Watched()
    ASKED.clear()
    found = one(value)
    assert not ASKED
    assert found.type.endswith(".Watched")
    assert (found.shape, found.length, found.text) == (None, None, "")


def test_names_that_are_not_the_users_are_left_out_and_waiting_ones_are_told() -> None:
    hidden = {"quit": 1, "mine": 1}
    namespace = {"_": 1, "_i1": "x", "np": np, "quit": 1, "mine": 2, "late": SimpleNamespace()}
    hidden["quit"] = namespace["quit"] = object()  # type: ignore[assignment]
    found = described(namespace, hidden, ["later", "_hidden", "late"])
    assert [(each.name, each.waits) for each in found.variables] == [
        ("late", False),
        ("later", True),
        ("mine", False),
    ]


def test_there_is_a_bound() -> None:
    found = described({f"v{number}": number for number in range(VARIABLES_MAX + 7)}, {}, [])
    assert (len(found.variables), found.more) == (VARIABLES_MAX, 7)
