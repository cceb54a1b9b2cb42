"""What the processes of a cell are sent: whatever its text may read of the notebook, and nothing else."""

from __future__ import annotations

import builtins
import math
import os
import sys
from typing import Any

import dill
import pytest
from IPython.core.error import UsageError

from replkernel.ranks.program import names_read, program_of

NOTEBOOK: dict[str, Any] = {"model": [1], "lr": 0.1, "input": [2], "max": 3, "math": math, "data": [4]}


def sent(source: str, namespace: dict[str, Any] = NOTEBOOK, **hidden: Any) -> dict[str, Any]:
    program = program_of(namespace, hidden, source, ())
    return {name: dill.loads(data) for name, data in program.names.items()}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("model = wrap(model)", {"model"}),
        ("lr *= 2", {"lr"}),
        ("def f():\n    global lr\n    lr *= 2\n", {"lr"}),
        ("def f():\n    return model\nmodel = [f()]\n", {"model"}),
        ("if math:\n    model = 1\nprint(model)\n", {"model"}),
        ("for each in data:\n    model = each\nprint(model)\n", {"data", "model"}),
        ("del model", {"model"}),
        ("model = 1\ndel model\nprint(model)", {"model"}),
        ("from os.path import *\nprint(model, join)", {"model"}),
        ("print([lr for each in data])", {"lr", "data"}),
        ("class A:\n    model = model\n", {"model"}),
        ("print(lambda: lr)", {"lr"}),
    ],
)
def test_a_name_that_is_read_is_sent_also_where_it_is_bound_as_well(source: str, names: set[str]) -> None:
    assert set(sent(source)) == names


@pytest.mark.parametrize(
    "source",
    [
        "model = 1\nprint(model)",
        "(model, *data), lr = [[1, 2], 3]\nprint(model, data, lr)",
        "import numpy as model, lr.data\nprint(model, lr)",
        "from os import path as model\nprint(model)",
        "def model(data): return data\nmodel(1)",
        "model: int = 1\nprint(model)",
        "def f(model):\n    lr = model\n    return lr\n",
        "print([model for model in 'ab'])",
        "print(nobody_has_this)",
    ],
)
def test_a_name_that_the_cell_makes_before_it_reads_it_is_not_sent(source: str) -> None:
    assert sent(source) == {}


def test_a_variable_that_is_called_as_a_builtin_is_sent() -> None:
    assert sent("print(input, max, min)") == {"input": [2], "max": 3}


def test_the_shells_own_open_and_exit_are_not_sent() -> None:
    shells = object()
    assert sent("open, exit", {"open": shells, "exit": builtins.exit}, open=shells) == {}
    assert sent("open", {"open": 7}, open=shells) == {"open": 7}
    assert sent("open", {"open": None}) == {"open": None}


def test_modules_are_named_and_imported_there() -> None:
    program = program_of(NOTEBOOK, {}, "print(math.pi)", ())
    assert (program.names, program.modules) == ({}, {"math": "math"})


def test_a_variable_that_cannot_be_sent_is_named() -> None:
    stream = (each for each in [1])
    with pytest.raises(UsageError, match="the cell uses stream, which cannot be sent"):
        sent("print(stream)", {"stream": stream})
    assert sent("stream = 1\nprint(stream)", {"stream": stream}) == {}
    with pytest.raises(UsageError, match="large take more than 48 MiB"):
        sent("print(large)", {"large": bytes(49 << 20)})


@pytest.mark.parametrize("source", ["%time f()", "x =", "await f()"])
def test_a_line_that_is_no_plain_python_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match="line 3 of the cell is no plain Python"):
        names_read(f"x = 1\n{source}\n")


def test_modules_are_found_in_the_notebooks_order_around_the_hosts_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = [entry for entry in sys.path if os.path.basename(entry).startswith("python3")]
    assert own
    monkeypatch.setattr(sys, "path", ["/checkout", "", "/given", *own, "/behind"])
    program = program_of({}, {}, "1", ())
    assert program.path_first == ("/checkout", os.getcwd(), "/given")
    assert program.path == (*own, "/behind")
    monkeypatch.setattr(sys, "path", [*own, "/behind"])
    assert program_of({}, {}, "1", ()).path_first == (os.getcwd(),)
