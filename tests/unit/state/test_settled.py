"""A capture right after a whole one, with nothing but values put in since, does not hash all again; and what
it would have missed is found by the next one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from replkernel.kernel.time_travel import brings_values_only
from replkernel.records import ComponentId, Delta
from replkernel.state.capture import dump, survey_order
from replkernel.state.capture.budget import EVERYTHING
from tests.support.notebook import Notebook, pair

SETTLED = EVERYTHING._replace(settled=True)
LARGE = "import numpy as np\nlarge = np.zeros(4_000_000)\nsmall = [0]\n"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the buffers that are hashed."""
    sizes: list[int] = []
    digests = dump.BufferDigests.begin

    def begin(self: dump.BufferDigests, views: list[memoryview]) -> None:
        sizes.extend(memoryview(view).nbytes for view in views)
        digests(self, views)

    monkeypatch.setattr(dump.BufferDigests, "begin", begin)
    monkeypatch.setattr(survey_order, "HEAVY_S", 1000.0)  # However slow the machine is.
    return sizes


def test_large_variables_are_as_they_were_and_stay(hashed: list[int]) -> None:
    one, _ = pair()
    one.run(LARGE, 1)
    assert one.capture(2, SETTLED).components == ()
    assert hashed == []
    assert one.capture(3).components == ()
    assert hashed == [32_000_000]


def test_an_unexpected_change_is_found_by_the_next_capture() -> None:
    one, two = pair()
    two.take(one.run(LARGE, 1), one.run("large[5] = 1.0", 2, SETTLED))
    assert two.namespace["large"][5] == 0
    two.take(one.capture(3))
    assert two.namespace["large"][5] == 1.0


def test_with_anything_else_changed_everything_is_looked_at() -> None:
    one, two = pair()
    two.take(one.run(LARGE, 1), one.run("large[5] = 1.0; small.append(large[:3])", 2, SETTLED))
    assert two.namespace["large"][5] == 1.0
    assert two.namespace["small"][1].base is two.namespace["large"]


def test_classes_of_what_is_not_looked_at_are_kept() -> None:
    one, two = pair()
    many = "class Own: pass\nmany = [Own() for _ in range(30_000)]\nfor n, o in enumerate(many): o.n = [n]"
    two.take(one.run(many, 1), one.capture(2), one.capture(3, SETTLED))
    assert type(two.namespace["many"][7]) is two.namespace["Own"]
    assert one.run("many[7].n.append(1)", 4).dropped == ()


def way(code: str) -> Delta:
    """Return what a cell changes; what earlier tests left in the process's libraries is captured before."""
    notebook = Notebook("a")
    notebook.capture(1)
    told = notebook.run(code, 2)
    print([record.cid for record in told.components], told.dropped)
    return told


@pytest.mark.parametrize(
    "code", ["x = [1, {'a': 2.5}]", LARGE, "import pandas as pd; frame = pd.DataFrame({'a': [1, 2]})"]
)
def test_plain_values_bring_nothing_else(code: str) -> None:
    assert brings_values_only(way(code))


@pytest.mark.parametrize(
    "code",
    [
        "class Own:\n    def __setstate__(self, state): print()\nx = Own()",
        "def call(): pass",
        "x = list(range(30_000))",
    ],
)
def test_a_delta_that_may_run_code_does_not_bring_values_only(code: str) -> None:
    assert not brings_values_only(way(code))


def test_a_place_in_a_library_is_no_plain_variable() -> None:
    told = way("x = 1")
    placed = replace(told.components[0], names=("library json:dumps",))
    assert not brings_values_only(replace(told, components=(placed,)))


@pytest.mark.parametrize("cid", ["class:1", "@modules", "library json:dumps"])
def test_a_dropped_class_or_module_counts_as_well(cid: str) -> None:
    assert not brings_values_only(replace(way("x = 1"), dropped=(ComponentId(cid),)))
    assert brings_values_only(replace(way("x = 1"), dropped=(ComponentId("y"), ComponentId("z~2"))))
