"""Which modules count as the user's: told by where their directory really is, on a real disk."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.state.patches import own_modules


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a directory that counts as a library's, on the path of imports."""
    directory = tmp_path / "site-packages"
    directory.mkdir()
    monkeypatch.setattr(own_modules, "_libraries", (f"{directory}/",))
    monkeypatch.syspath_prepend(str(directory))
    known = set(sys.modules)
    yield directory
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
