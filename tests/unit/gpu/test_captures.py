"""Captures while state is off the GPU: they find what was there, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu import fake, in_place, touched  # noqa: E402
from replkernel.gpu.device_buffer import DeviceBuffer  # noqa: E402
from replkernel.gpu.fake import FakeBackend  # noqa: E402
from tests.support.notebook import Notebook, changed, pair  # noqa: E402

GPU = "GPU-fake-h1-0"
SETUP = """
import torch
from replkernel.gpu.fake import put
big = put(torch.arange(100_000.0)); small = put(torch.ones(3)); view = big[10:20]
model = put(torch.nn.Linear(50, 50)); model.weight.grad = put(torch.ones(50, 50))
other = [1]
"""


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPU)
    made = FakeBackend()
    monkeypatch.setattr(fake, "_backends", [made])
    watch = touched.Watching(touched.refuse)
    touched.enter(watch)
    yield made
    touched.leave(watch)
    in_place._in_use.clear()


def test_nothing_has_changed_by_leaving_the_gpu(backend: FakeBackend) -> None:
    one = Notebook("r1")
    one.run(SETUP, 1)
    backend.suspend()
    assert changed(one.run("other.append(2)", 2)) == ["other"]
    backend.resume((GPU,))
    assert changed(one.run("other.append(3)", 3)) == ["other"]
    assert changed(one.run("view[0] = -1", 4)) == ["big", "view"]


def test_a_capture_of_state_off_the_gpu_is_of_what_was_there(backend: FakeBackend) -> None:
    one, two = pair()
    exec(SETUP, one.namespace)
    backend.suspend()
    delta = one.capture(1)
    backend.resume((GPU,))
    assert two.take(delta).failed == ()
    assert torch.equal(two["big"], torch.arange(100_000.0))
    assert two["view"].untyped_storage()._cdata == two["big"].untyped_storage()._cdata
    assert torch.equal(two["model"].weight, one["model"].weight)
    assert torch.equal(two["model"].weight.grad, torch.ones(50, 50))


def test_how_often_a_tensor_was_changed_goes_along_without_its_bytes() -> None:
    one, two = pair()
    two.take(one.run("import torch; big = torch.ones(200_000); view = big[:3]; small = torch.ones(2)", 1))
    written = len(one.cache.written)
    two.take(one.run("view.add_(0)", 2))
    assert len(one.cache.written) == written
    assert [two[name]._version for name in ("big", "view", "small")] == [1, 1, 0]
    two["big"].add_(1)
    assert two["view"]._version == 2


def test_a_digest_is_the_same_in_pieces_on_the_host(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replkernel.gpu.device_buffer.CHUNK_BYTES", 512)
    monkeypatch.setattr("replkernel.gpu.device_buffer.BYTES_AT_ONCE", 1024)
    monkeypatch.setattr("replkernel.gpu.in_place.HostRoom", _small_room)
    for size in (1, 511, 2048, 5000, 5001):
        tensor = fake.put(torch.arange(size, dtype=torch.uint8))
        whole = DeviceBuffer(torch, tensor.untyped_storage()).digest()
        backend.suspend()
        parked = in_place.parked_of(tensor.untyped_storage())
        assert parked is not None
        off = DeviceBuffer(torch, tensor.untyped_storage(), parked)
        assert off.digest() == whole
        assert bytes(off.host()) == bytes(range(256)) * (size // 256) + bytes(range(size % 256))
        backend.resume((GPU,))


def _small_room(total: int, *, pinned: bool) -> object:
    from replkernel.gpu.host_copy import HostRoom

    return HostRoom(total, pinned=pinned, piece_bytes=2048)


def test_a_read_of_bytes_off_the_gpu_is_stopped_and_shapes_may_be_asked_for(backend: FakeBackend) -> None:
    from replkernel.errors import StateSuspended

    x = fake.put(torch.arange(4.0, requires_grad=True))
    with fake.posing():
        loss = (x * x).sum()
    host = loss.detach().clone() + 1
    backend.suspend()
    assert (x.shape, x.dtype, len(x)) == ((4,), torch.float32, 4)
    assert float(host + 1) == 16.0
    for reads in (
        repr,
        torch.sum,
        lambda t: t + 1,
        lambda t: t.tolist(),
        lambda t: t[0],
        lambda t: t.numpy(),
    ):
        with pytest.raises(StateSuspended):
            reads(x)
    with pytest.raises(StateSuspended):
        loss.backward()
    backend.resume((GPU,))
    loss.backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]
