"""A notebook whose default device is another one: what is rebuilt lies where it lay, whatever that is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from replkernel.gpu.device_buffer import DeviceBuffer  # noqa: E402
from tests.support.notebook import pair  # noqa: E402

SETUP = """
import torch
x = torch.arange(6.0); view = x[2:4]; model = torch.nn.Linear(3, 3)
sparse = torch.eye(3).to_sparse(); compressed = torch.eye(3).to_sparse_csr(); array = x.numpy()
quantised = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
wanted = [x.tolist(), model.weight.tolist(), compressed.values().tolist()]
"""


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """A default device on which nothing has bytes: whoever forgets to name one gets no memory."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.filterwarnings("ignore")
def test_a_rebuilt_tensor_lies_where_it_lay() -> None:
    one, two = pair()
    exec(SETUP, one.namespace)
    delta = one.capture(1)
    torch.set_default_device("meta")
    try:
        assert two.take(delta).failed == ()
        again = one.capture(2)
    finally:
        torch.set_default_device(None)
    assert not [record for record in again.components if not record.cid.startswith("@")]
    x, model, compressed = two["x"], two["model"], two["compressed"]
    assert [x.tolist(), model.weight.tolist(), compressed.values().tolist()] == two["wanted"]
    assert two["sparse"].to_dense().tolist() == torch.eye(3).tolist()
    assert two["quantised"].dequantize().tolist() == one["quantised"].dequantize().tolist()
    two["array"][2] = 99.0
    assert two["view"][0].item() == 99.0


def test_digests_are_computed_where_the_bytes_are(elsewhere: None) -> None:
    from replkernel.gpu.device_buffer import _weights

    storage = torch.arange(1000.0, device="cpu").untyped_storage()
    _weights.cache_clear()
    digest = DeviceBuffer(torch, storage).digest()
    torch.set_default_device(None)
    _weights.cache_clear()
    assert DeviceBuffer(torch, storage).digest() == digest
