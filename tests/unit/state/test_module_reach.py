"""Which libraries a cell leads to: what it says itself, and what the modules that it uses import."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from replkernel.state.analysis.cell import analyse
from replkernel.state.analysis.module_reach import GPU_ONLY, leads_to, uses_gpu_only


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A notebook with stand-ins for CuPy, a module that uses it behind another one, and a plain one."""
    made: dict[str, Any] = {}
    for name in ("cupy", "trains", "layers", "plain"):
        made[name] = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, made[name])
    exec("def arange(n): return n\nclass ndarray: pass", vars(made["cupy"]))
    exec("import cupy\ndef step(): return cupy.arange(3)", vars(made["layers"]))
    exec("from layers import step\nimport json", vars(made["trains"]))
    exec("import json, os\ndef step(): return 1", vars(made["plain"]))
    return made


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import cupy as cp", False),
        ("import cupy as cp\nx = cp.arange(3)", True),
        ("from cudf import DataFrame\nDataFrame()", True),
        ("print('cupy')", False),
        ("cp.arange(3)", True),
        ("total()", True),
        ("trains.step()", True),
        ("array", True),
        ("plain.step()", False),
        ("x = 1", False),
        ("this is not Python", False),
    ],
)
def test_a_cell_uses_a_library_of_gpus_itself_or_through_its_modules(
    modules: dict[str, Any], source: str, uses: bool
) -> None:
    namespace: dict[str, Any] = {
        "cp": modules["cupy"],
        "trains": modules["trains"],
        "plain": modules["plain"],
        "array": vars(modules["cupy"])["ndarray"](),
    }
    exec("def total(): return cp.arange(3)", namespace)
    assert uses_gpu_only(source, analyse(source, namespace).reads, namespace) is uses


def test_without_such_a_library_a_cell_costs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", {name: 1 for name in sys.modules if name not in GPU_ONLY})
    assert not uses_gpu_only("x.y()", {"x"}, {"x": object()})


def test_a_library_that_is_watched_itself_counts_behind_a_module_only(modules: dict[str, Any]) -> None:
    namespace = {"cupy": modules["cupy"], "trains": modules["trains"]}
    assert not leads_to({"cupy"}, namespace, GPU_ONLY, known=("cupy",))
    assert leads_to({"trains"}, namespace, GPU_ONLY, known=("cupy",))
