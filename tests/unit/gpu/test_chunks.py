"""State on a device by chunks: hashed there, only those that changed are fetched, and put straight back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu import device_buffer, fake, in_place  # noqa: E402
from replkernel.gpu.device_buffer import DeviceBuffer  # noqa: E402
from replkernel.gpu.device_copy import BATCH_CHUNKS, batches, fill  # noqa: E402
from replkernel.gpu.fake import FakeBackend, put  # noqa: E402
from replkernel.objects.cutting import CHUNK_BYTES  # noqa: E402
from replkernel.state.capture.dump import DIGEST_BYTES  # noqa: E402
from tests.support.notebook import changed, pair  # noqa: E402

GPU = "GPU-fake-h1-0"
CHUNKS = 5
SIZE = CHUNKS * CHUNK_BYTES - 1000


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPU)
    made = FakeBackend()
    monkeypatch.setattr(fake, "_backends", [made])
    yield made
    in_place._in_use.clear()


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the chunks that were copied from the device."""
    seen: list[int] = []
    real = device_buffer.batches

    def watched(flat: Any, wanted: Any, chunk_bytes: int) -> Any:
        seen.extend(wanted)
        return real(flat, wanted, chunk_bytes)

    monkeypatch.setattr(device_buffer, "batches", watched)
    return seen


def digests(tensor: Any) -> list[bytes]:
    found = DeviceBuffer(torch, tensor.untyped_storage()).digest()
    return [found[at : at + DIGEST_BYTES] for at in range(0, len(found) - DIGEST_BYTES, DIGEST_BYTES)]


def test_a_byte_changes_the_digest_of_its_chunk_alone() -> None:
    x = torch.zeros(SIZE, dtype=torch.uint8)
    before = digests(x)
    assert len(before) == CHUNKS
    for place in (0, 2 * CHUNK_BYTES - 1, 2 * CHUNK_BYTES, SIZE - 1):
        x[place] = 1
        after = digests(x)
        assert [one != other for one, other in zip(before, after, strict=True)].index(True) == (
            place // CHUNK_BYTES
        )
        assert sum(one != other for one, other in zip(before, after, strict=True)) == 1
        x[place] = 0
    assert digests(x) == before
    longer = DeviceBuffer(torch, torch.zeros(SIZE + 1, dtype=torch.uint8).untyped_storage()).digest()
    assert longer != DeviceBuffer(torch, x.untyped_storage()).digest(), "zeros at the end count"


def test_many_batches_bring_every_chunk_as_it_is() -> None:
    size = (2 * BATCH_CHUNKS + 3) * 64 - 5
    flat = torch.randint(0, 256, (size,), dtype=torch.uint8)
    wanted = [number for number in range(2 * BATCH_CHUNKS + 3) if number % 5]
    seen = {number: bytes(piece) for batch in batches(flat, wanted, 64) for number, piece in batch}
    assert seen == {number: bytes(flat[number * 64 : (number + 1) * 64].tolist()) for number in wanted}
    back = torch.empty_like(flat)
    fill(back, bytearray(flat.tolist()), 64)
    assert torch.equal(back, flat)


def test_only_the_chunk_that_changed_leaves_the_device(backend: FakeBackend, fetched: list[int]) -> None:
    one, two = pair()
    one.namespace["model"] = put(torch.zeros(SIZE, dtype=torch.uint8))
    one.namespace["other"] = put(torch.ones(SIZE, dtype=torch.uint8))
    assert two.take(one.capture(1)).failed == ()
    assert sorted(fetched) == sorted([*range(CHUNKS)] * 2)
    fetched.clear()
    assert changed(one.capture(2)) == []
    assert fetched == []
    one["model"][3 * CHUNK_BYTES + 7] = 9
    delta = one.capture(3)
    assert (changed(delta), fetched) == (["model"], [3])
    assert two.take(delta).failed == ()
    assert torch.equal(two["model"], one["model"])
    assert backend.poses(two["model"].untyped_storage()), "and lies on the device again"


def test_one_that_was_rebuilt_elsewhere_ships_only_what_changes_there(
    backend: FakeBackend, fetched: list[int]
) -> None:
    one, two = pair()
    one.namespace["model"] = put(torch.arange(SIZE // 8))
    assert two.take(one.capture(1)).failed == ()
    fetched.clear()
    two["model"][0] = -1
    delta = two.capture(2)
    assert (changed(delta), fetched) == (["model"], [0])
    assert one.take(delta).failed == ()
    assert one["model"][0].item() == -1


def test_state_off_the_device_is_known_by_the_same_chunks(backend: FakeBackend, fetched: list[int]) -> None:
    one, two = pair()
    one.namespace["model"] = put(torch.arange(SIZE // 8))
    here = digests(one["model"])
    backend.suspend()
    parked = DeviceBuffer(torch, (s := one["model"].untyped_storage()), in_place.parked_of(s)).digest()
    assert [parked[at : at + 16] for at in range(0, len(parked) - 16, 16)] == here
    delta = one.capture(1)
    backend.resume((GPU,))
    assert two.take(delta).failed == ()
    assert torch.equal(two["model"], one["model"])
    fetched.clear()
    assert changed(one.capture(2)) == []
    assert fetched == []
