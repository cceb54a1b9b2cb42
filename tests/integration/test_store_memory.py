"""The contract of stores on the memory backend."""

from __future__ import annotations

import random
import secrets
import struct

import pytest

from replkernel.objects import store as subject
from replkernel.objects.backends.memory import open_backend
from replkernel.objects.backends.tree import TreeBackend
from replkernel.objects.packing import is_packed
from replkernel.objects.store import ObjectStore, open_store
from tests.contracts.object_store import ObjectStoreContract, named


class TestMemoryStore(ObjectStoreContract):
    @pytest.fixture
    def backend(self) -> TreeBackend:
        return open_backend(f"memory://{secrets.token_hex(8)}", {})


def test_stores_of_one_url_share_and_others_do_not() -> None:
    prefix = secrets.token_hex(8)
    first, second = open_store(f"memory://{prefix}", {}), open_store(f"memory://{prefix}", {})
    other = open_store(f"memory://{prefix}/below", {})
    first.put_chunk(named(b"x"), b"x")
    assert second.has(named(b"x"))
    assert not other.has(named(b"x"))


def floats(seed: int) -> bytes:
    """Return float32 numbers as a model has them."""
    chance = random.Random(seed)
    return struct.pack("100000f", *(chance.gauss(0, 0.03) for _ in range(100_000)))


@pytest.mark.parametrize("rate", [10e6, 1e9])
def test_floats_are_packed_once_the_store_has_turned_out_to_be_slow(
    monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    clock, stored = [0.0], []
    backend = open_backend(f"memory://{secrets.token_hex(8)}", {})
    put = backend.put

    def put_slowly(key: str, data: bytes) -> None:
        clock[0] += len(data) / rate
        stored.append(data)
        put(key, data)

    monkeypatch.setattr(subject.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(backend, "put", put_slowly)
    store = ObjectStore("memory://", backend)
    chunks = [floats(seed) for seed in range(40)]
    for data in chunks:
        store.put_chunk(named(data), data)
    assert [is_packed(data) for data in (stored[0], stored[-1])] == [False, rate == 10e6]
    assert [store.get_chunk(named(data)) for data in chunks] == chunks


def test_the_memory_store_warns_that_it_lives_in_one_process() -> None:
    assert "lost" in open_store("memory://", {}).warning
