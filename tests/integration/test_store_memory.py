"""The contract of stores on the memory backend."""

from __future__ import annotations

import secrets

import pytest

from replkernel.objects.backends.memory import open_backend
from replkernel.objects.backends.tree import TreeBackend
from replkernel.objects.store import open_store
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


def test_it_warns_that_it_lives_in_one_process() -> None:
    assert "lost" in open_store("memory://", {}).warning
