"""The digest that is taken where a tensor lives tells every change (here the CPU is the device)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu.device_buffer import DeviceBuffer  # noqa: E402 (it imports torch)


def digest(tensor: object) -> bytes:
    return DeviceBuffer(torch, tensor.untyped_storage()).digest()  # type: ignore[attr-defined]


def test_equal_bytes_have_equal_digests() -> None:
    one = torch.rand(1000, generator=torch.Generator().manual_seed(1))
    assert digest(one) == digest(one.clone())


@pytest.mark.parametrize("size", [1, 3, 8, 1001])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
def test_any_changed_element_changes_it(size: int, dtype: object) -> None:
    values = torch.ones(size, dtype=dtype)
    before = digest(values)
    for index in {0, size // 2, size - 1}:
        values[index] = 3
        assert digest(values) != before
        values[index] = 1
    assert digest(values) == before


def test_flipped_signs_do_not_cancel() -> None:
    values = torch.rand(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    seen = {digest(values), digest(-values)}
    for index in range(0, 64, 2):
        changed = values.clone()
        changed[index : index + 2] *= -1
        seen.add(digest(changed))
    assert len(seen) == 34


def test_exchanged_elements_change_it() -> None:
    values = torch.arange(4096.0)
    before = digest(values)
    values[[5, 900]] = values[[900, 5]]
    assert digest(values) != before


def test_lengths_are_told_apart() -> None:
    assert digest(torch.zeros(5)) != digest(torch.zeros(6))


def test_the_bytes_come_to_the_host_when_they_are_written() -> None:
    values = torch.arange(300, dtype=torch.int32)
    assert bytes(DeviceBuffer(torch, values.untyped_storage()).host()) == values.numpy().tobytes()
