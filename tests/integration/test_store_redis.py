"""Object stores in a real Redis server."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.errors import StoreError, StoreRefused
from replkernel.objects.backends.redis import RedisBackend, open_backend
from replkernel.objects.store import ObjectStore, open_store
from tests.contracts.object_store import ObjectStoreContract, named
from tests.support.ports import free_port
from tests.support.redis_server import PASSWORD, RedisServer, find_redis

pytestmark = pytest.mark.skipif(find_redis() is None, reason="redis-server is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    running = RedisServer(tmp_path_factory.mktemp("redis"))
    yield running
    running.stop()


class TestRedisStore(ObjectStoreContract):
    @pytest.fixture
    def backend(self, server: RedisServer) -> Iterator[RedisBackend]:
        opened = open_backend(f"{server.url}/{secrets.token_hex(8)}", {})
        yield opened
        opened.close()


def fill(store: ObjectStore, chunks: int) -> None:
    for _ in range(chunks):
        chunk = os.urandom(1 << 20)
        store.put_chunk(named(chunk), chunk)


def message(url: str) -> str:
    """Return what the user is told about `url`, which must come soon and without the password."""
    started = time.monotonic()
    store = open_store(url, {})
    with pytest.raises(StoreError) as caught:
        store.probe()
    store.close()
    assert time.monotonic() - started < 60
    assert PASSWORD not in str(caught.value)
    assert "REPLKERNEL_STORE" in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_wrong_password_is_refused(server: RedisServer) -> None:
    assert message(f"redis://:wrong@{server.address}/0").startswith(
        "StoreRefused: The object store redis://***@"
    )
    assert "asks for a password" in message(f"redis://{server.address}/0")


def test_a_wrong_database_is_refused(server: RedisServer) -> None:
    assert "has no database of that number" in message(f"redis://:{PASSWORD}@{server.address}/99")


def test_a_closed_port_and_an_unknown_name_are_told() -> None:
    closed = free_port()
    assert "cannot be reached" in message(f"redis://:{PASSWORD}@127.0.0.1:{closed}/0")
    assert "does not resolve" in message(f"redis://:{PASSWORD}@no-such-host.invalid/0")


def test_a_full_server_is_told_and_keeps_what_it_has(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, bytes_max=24 << 20)
    try:
        store = open_store(server.url, {})
        store.put_document("k1/checkpoint", b"kept")
        with pytest.raises(StoreError, match="has no room left"):
            fill(store, 40)
        with pytest.raises(StoreError, match="has no room left"):
            store.put_document("k1/checkpoint", os.urandom(1 << 20))
        assert store.get_document("k1/checkpoint") == b"kept"
        store.close()
    finally:
        server.stop()


def test_a_server_that_comes_back_is_used_again(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        store = open_store(server.url, {})
        store.put_document("k1/checkpoint", b"before")
        server.stop()
        with pytest.raises(StoreError) as caught:
            store.probe()
        assert not isinstance(caught.value, StoreRefused)
        server.start()
        store.put_document("k1/checkpoint", b"after")
        assert store.get_document("k1/checkpoint") == b"after"
        store.close()
    finally:
        server.stop()
