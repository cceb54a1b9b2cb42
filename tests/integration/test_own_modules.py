"""Which modules count as the user's: told by where their directory really is, on a real disk."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from replkernel.state.patches import own_modules


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a directory that counts as a library's, on the path of imports."""
    directory = tmp_path / "site-packages"
    directory.mkdir()
    monkeypatch.setattr(own_modules, "_libraries", (f"{directory}/",))
    monkeypatch.syspath_prepend(str(directory))
    own_modules._is_a_library.cache_clear()
    own_modules._lies_in_a_library.cache_clear()
    known = set(sys.modules)
    yield directory
    own_modules._is_a_library.cache_clear()
    own_modules._lies_in_a_library.cache_clear()
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_library_of_links_into_an_installers_cache_is_not_the_users(library: Path, tmp_path: Path) -> None:
    """Its functions come from an import elsewhere, as any library's do."""
    cached = tmp_path / "cache" / "linked_library.py"
    cached.parent.mkdir()
    cached.write_text("value = 1\n")
    (library / "linked_library.py").symlink_to(cached)
    assert importlib.import_module("linked_library").value == 1
    assert not own_modules.is_own("linked_library")


def test_a_package_that_is_linked_to_its_sources_is_the_users(library: Path, tmp_path: Path) -> None:
    """Somebody works on it there: its variables travel."""
    sources = tmp_path / "work" / "linked_package"
    sources.mkdir(parents=True)
    (sources / "__init__.py").write_text("value = 1\n")
    (library / "linked_package").symlink_to(sources, target_is_directory=True)
    assert importlib.import_module("linked_package").value == 1
    assert own_modules.is_own("linked_package")
    assert "linked_package" in dict(own_modules.own_modules())


def test_a_module_of_the_users_in_the_place_of_a_librarys_is_found(library: Path, tmp_path: Path) -> None:
    """As the documented recipe puts it there, also where the library was imported long ago."""
    (library / "replaced.py").write_text("value = 1\n")
    importlib.import_module("replaced")
    assert "replaced" not in dict(own_modules.own_modules())
    mine = tmp_path / "mine.py"
    mine.write_text("value = 2\n")
    spec = importlib.util.spec_from_file_location("replaced", mine)
    assert spec is not None
    sys.modules["replaced"] = importlib.util.module_from_spec(spec)
    try:
        sys.modules["imported_later"] = ModuleType("imported_later")
        assert dict(own_modules.own_modules()).get("replaced") is sys.modules["replaced"]
    finally:
        del sys.modules["replaced"], sys.modules["imported_later"]


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_a_package_of_another_python_is_not_the_users(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters offer libraries by ``PYTHONPATH``: hundreds of their classes would travel by value."""
    there = tmp_path / "apps" / name / "offered"
    there.mkdir(parents=True)
    (there / "__init__.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(there.parent))
    try:
        assert importlib.import_module("offered").value == 1
        assert not own_modules.is_own("offered")
    finally:
        sys.modules.pop("offered", None)


def test_beside_what_was_installed_into_a_directory_the_users_modules_are_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pip install --target`` records what it has put there; an editable project records nothing."""
    for module in ("recorded", "beside_it", "edited"):
        (tmp_path / f"{module}.py").write_text("value = 1\n")
    (tmp_path / "recorded-1.0.dist-info").mkdir()
    record = tmp_path / "recorded-1.0.dist-info" / "RECORD"
    record.write_bytes(b"recorded.py,,\n\ntests/__init__.py,,,\n.,,\n\xff.py,,\n")
    (tmp_path / "edited.egg-info").mkdir()
    (tmp_path / "edited.egg-info" / "PKG-INFO").write_text("Name: edited\nVersion: 1.0\n")
    (tmp_path / "edited.egg-info" / "SOURCES.txt").write_text("edited.py\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        own = {name for name in ("recorded", "beside_it", "edited") if importlib.import_module(name).value}
        assert {name for name in own if own_modules.is_own(name)} == {"beside_it", "edited"}
    finally:
        for name in ("recorded", "beside_it", "edited"):
            sys.modules.pop(name, None)


def test_a_package_that_is_installed_later_is_a_library_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the directory is the working directory, which the path of imports names as nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "mine_first.py").write_text("value = 1\n")
    try:
        assert importlib.import_module("mine_first").value == 1
        assert own_modules.is_own("mine_first")
        before = tmp_path.stat()
        (tmp_path / "put_later.py").write_text("value = 1\n")
        (tmp_path / "later-1.0.dist-info").mkdir()
        (tmp_path / "later-1.0.dist-info" / "RECORD").write_text("put_later.py,sha256=x,10\n")
        # A file system's clock may stand still for milliseconds, and people are slower.
        os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
        importlib.invalidate_caches()
        assert importlib.import_module("put_later").value == 1
        assert not own_modules.is_own("put_later")
        assert own_modules.is_own("mine_first")
    finally:
        for name in ("mine_first", "put_later"):
            sys.modules.pop(name, None)
