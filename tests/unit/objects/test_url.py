"""The store's URL: what is refused in it, and what of it is shown."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from replkernel.errors import SettingError
from replkernel.objects.store import open_store
from replkernel.objects.url import is_segment, redact


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@host:1/0", "redis://***@host:1/0"),
        ("redis://user:s@cr/et@host/0", "redis://***@host/0"),
        ("s3://KEY:SECRET@bucket/p", "s3://***@bucket/p"),
        ("s3://bucket/p?token=secret", "s3://bucket/p?***"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("file:///home/a@b/store", "file:///home/a@b/store"),
        ("/plain/path", "/plain/path"),
    ],
)
def test_secrets_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("url", "problem", "fix"),
    [
        ("", "not a URL", "file:///path"),
        ("/data/store", "not a URL", "write file:///data/store"),
        ("gopher://x", "unknown scheme 'gopher'", "use one"),
        ("file://data/store", "absolute path", "write file:///data/store"),
        ("file://~/store", "~ is not expanded", "write file:///home/me/store"),
        ("s3:///prefix", "names no bucket", "s3://bucket/prefix"),
        ("s3://KEY:HUSH@bucket", "credentials do not belong", "AWS_ACCESS_KEY_ID"),
        ("s3://bucket/a b", "cannot be part of a prefix", "letters"),
        ("memory://../x", "cannot be part of a prefix", "letters"),
        ("redis://", "names no host", "redis://host:6379/0/prefix"),
        ("redis://:HUSH@host:port/0", "host or port", "redis://host:6379/0/prefix"),
        ("hdfs:///x", "names no host", "hdfs://host:8020"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_in_one_sentence(url: str, problem: str, fix: str) -> None:
    with pytest.raises(SettingError) as caught:
        open_store(url, {"HOME": "/home/me"})
    told = str(caught.value)
    assert told.startswith("REPLKERNEL_STORE=")
    assert problem in told
    assert fix in told
    assert "HUSH" not in told


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("s3://bucket", "s3fs", "s3"),
        ("redis://host", "redis", "redis"),
        ("hdfs://host", "pyarrow.fs", "hdfs"),
    ],
)
def test_a_missing_package_says_what_to_install(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match=rf'pip install "replkernel\[{extra}\]"'):
        open_store(url, {"HOME": "/nowhere"})


def test_a_plug_in_opens_its_own_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, dict[str, str]]] = []

    class Plugged:
        warning = "from a plug-in"

    class Entry:
        def load(self) -> object:
            return lambda url, env: opened.append((url, env)) or Plugged()

    def entry_points(*, group: str, name: str) -> list[Entry]:
        assert group == "replkernel.object_stores"
        return [Entry()] if name == "tape" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert open_store("tape://reel:pass@1", {"A": "b"}).warning == "from a plug-in"
    assert opened == [("tape://reel:pass@1", {"A": "b"})]


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a b", "ä", "a\n", "*", "x" * 129])
def test_a_text_that_could_escape_is_no_segment(text: str) -> None:
    assert not is_segment(text)


@pytest.mark.parametrize(
    ("url", "endpoint", "warned"),
    [
        ("redis://10.78.0.9:6379/0", "", "rediss://"),
        ("redis://store.example/0", "", "rediss://"),
        ("rediss://10.78.0.9/0", "", ""),
        ("redis://127.0.0.1/0", "", ""),
        ("redis://[::1]/0", "", ""),
        ("redis://localhost/0", "", ""),
        ("s3://bucket", "http://10.78.0.9:9000", "https://"),
        ("s3://bucket", "https://10.78.0.9:9000", ""),
        ("s3://bucket", "http://127.0.0.1:9000", ""),
        ("s3://bucket", "", ""),
    ],
)
def test_a_store_that_is_reached_in_clear_is_told(url: str, endpoint: str, warned: str) -> None:
    store = open_store(url, {"HOME": "/nowhere", "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"})
    assert ("unencrypted" in store.exposed) == bool(warned)
    assert warned in store.exposed


def test_an_endpoint_in_the_profile_is_told_as_well(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[default]\nregion = us-east-1\nendpoint_url = http://store.example:9000\n"
    )
    store = open_store("s3://bucket", {"HOME": "/nowhere", "AWS_CONFIG_FILE": str(tmp_path / "config")})
    assert "unencrypted" in store.exposed
