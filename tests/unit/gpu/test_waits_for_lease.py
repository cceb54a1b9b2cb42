"""State that lies on leased GPUs: rebuilt for a cell with a lease, and otherwise left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu import fake, in_place  # noqa: E402
from replkernel.gpu.fake import FakeBackend  # noqa: E402
from replkernel.kernel.withheld import gpus_wanted  # noqa: E402
from replkernel.records import ComponentRecord  # noqa: E402
from replkernel.state.analysis.cell_mentions import cell_mentions  # noqa: E402
from tests.support.notebook import Notebook, pair  # noqa: E402

HERE, THERE = "GPU-fake-h1-0", "GPU-fake-h2-0"
SETUP = """
import torch
from replkernel.gpu.fake import put
x = put(torch.arange(1000.0)); row = x[10:20]
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(put(model).parameters(), lr=0.1)
plain = torch.ones(3)
def total(): return x.sum().item()
def other(): return plain.sum().item()
"""
WAIT = {"x", "row", "model", "optimizer"}


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", HERE)
    made = FakeBackend()
    monkeypatch.setattr(fake, "_backends", [made])
    yield made
    in_place._in_use.clear()


@pytest.fixture
def notebooks(backend: FakeBackend) -> tuple[Notebook, Notebook]:
    """One that has put state on a leased GPU, and another process that has taken it in."""
    one, two = pair()
    one.state.devices.lend((HERE,))
    two.state.receive(one.run(SETUP, 1))
    return one, two


def elsewhere(monkeypatch: pytest.MonkeyPatch, gpu: str) -> FakeBackend:
    """Have what follows happen in another process."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
    made = FakeBackend()
    monkeypatch.setattr(fake, "_backends", [made])
    return made


def rebuild(notebook: Notebook, *, everything: bool = True) -> tuple[Any, ...]:
    report = notebook.state.rebuild(everything=everything, fetch=lambda blobs: None)
    return tuple(report.failed)


def wanted(notebook: Notebook, text: str) -> int:
    shell = SimpleNamespace(user_ns=notebook.namespace)
    found = cell_mentions(text)
    return gpus_wanted(notebook.state, shell, None if found.anything else found)


def test_without_a_lease_what_lies_on_a_gpu_waits_and_the_rest_is_there(
    notebooks: tuple[Notebook, Notebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = notebooks[1]
    there = elsewhere(monkeypatch, "-1")
    for everything in (False, True):
        assert rebuild(two, everything=everything) == ()
    assert two["plain"].sum().item() == 3
    assert WAIT.isdisjoint(two.namespace)
    assert two.state.left_behind == WAIT
    assert not there.in_use


def test_under_a_lease_it_is_rebuilt_on_its_gpu(
    notebooks: tuple[Notebook, Notebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = notebooks
    there = elsewhere(monkeypatch, "-1")
    rebuild(two)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", THERE)
    two.state.devices.lend((THERE,))
    assert rebuild(two) == ()
    assert there.gpus == (THERE,)
    assert there.bytes_held() == 4000 + 4 * 12
    assert torch.equal(two["x"], one["x"])
    assert two["row"].untyped_storage()._cdata == two["x"].untyped_storage()._cdata
    assert two["optimizer"].param_groups[0]["params"][0] is two["model"].weight
    assert two["total"]() == 499500.0
    assert two.state.left_behind == set()
    assert two.capture(2).components == ()


def test_a_cell_wants_a_lease_for_what_it_reaches_and_no_other_does(
    notebooks: tuple[Notebook, Notebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = notebooks[1]
    elsewhere(monkeypatch, "-1")
    rebuild(two)
    for text in ("x.sum()", "print(row)", "total()", "del model", "eval('x.sum()')"):
        assert wanted(two, text) == 1, text
    for text in ("plain.sum()", "other()", "z = 5", "x = 5"):
        assert wanted(two, text) == 0, text
    two.state.devices.lend((THERE,))
    assert wanted(two, "x.sum()") == 0


def test_captures_while_it_waits_leave_it_as_it_is(
    notebooks: tuple[Notebook, Notebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = notebooks
    elsewhere(monkeypatch, "-1")
    rebuild(two)
    two.state.devices.lend(())
    delta = two.run("plain += 1; fresh = 5; x = 'bound anew'", 2)
    assert {name for each in delta.components for name in each.names} == {"plain", "fresh", "x"}
    elsewhere(monkeypatch, THERE)
    two.state.devices.lend((THERE,))
    assert rebuild(two) == ()
    assert two["x"] == "bound anew"
    assert torch.equal(two["row"], one["row"])


def test_where_nobody_leases_gpus_it_is_rebuilt_at_once(backend: FakeBackend) -> None:
    one, two = pair()
    delta = one.run(SETUP, 1)
    assert [each.gpus for each in delta.components] == [0] * len(delta.components)
    assert two.take(delta).failed == ()
    assert backend.poses(two["x"].untyped_storage())


def test_as_many_gpus_are_needed_as_the_tensors_lie_on(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{HERE},{THERE}")
    one, two = pair()
    one.state.devices.lend((HERE, THERE))
    one.run("import torch; from replkernel.gpu.fake import put", 1)
    delta = one.run("a = put(torch.ones(1)); b = put(torch.ones(2), 'cuda:1')", 2)
    two.state.receive(delta)
    assert {each.names: each.gpus for each in delta.components} == {("a",): 1, ("b",): 2}
    assert (wanted(two, "a"), wanted(two, "b")) == (1, 2)


def test_a_record_of_before_says_that_it_needs_none() -> None:
    known = msgspec.json.encode({
        "cid": "c", "names": ["x"], "seq": 1, "payload": {"head": ""}, "digest": "d", "state_bytes": 1,
    })  # fmt: skip
    assert msgspec.json.decode(known, type=ComponentRecord).gpus == 0
