"""Imported modules: remembered in order, imported only when asked, and a missing one stops nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from replkernel.state.process.modules import ModulesPart

NAMES = ("wave", "xml.dom.minicompat", "colorsys")


@pytest.fixture(autouse=True)
def _modules_as_before() -> Iterator[None]:
    before = dict(sys.modules)
    for name in NAMES:
        sys.modules.pop(name, None)
    yield
    sys.modules.update(before)


def test_loading_imports_nothing_and_import_all_imports_what_is_missing() -> None:
    here, there = ModulesPart(), ModulesPart()
    assert here.dump() is None
    for name in NAMES:
        importlib.import_module(name)
    data = here.dump()
    assert data is not None
    for name in NAMES:
        del sys.modules[name]
    there.load(data)
    assert not set(NAMES) & set(sys.modules)
    assert [name for name in there.missing if name in NAMES] == list(NAMES)
    assert there.import_all() == ()
    assert set(NAMES) <= set(sys.modules)
    assert there.dump() == data


def test_a_module_that_cannot_be_imported_is_named_and_passed_over() -> None:
    here, there = ModulesPart(), ModulesPart()
    module = type(sys)("gone_with_the_host")
    module.__spec__ = importlib.machinery.ModuleSpec("gone_with_the_host", None)
    sys.modules["gone_with_the_host"] = module
    importlib.import_module("colorsys")
    data = here.dump()
    del sys.modules["gone_with_the_host"], sys.modules["colorsys"]
    assert data is not None
    there.load(data)
    assert there.import_all() == ("gone_with_the_host",)
    assert "ModuleNotFoundError" in there.import_errors["gone_with_the_host"]
    assert "colorsys" in sys.modules


def test_a_module_that_the_kernel_imports_late_is_not_the_notebooks() -> None:
    here = ModulesPart()
    late = ("jedi.invented", "pkg._private", "pydevconsole", "_pydev_runfiles.invented")
    for name in late:
        module = type(sys)(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    try:
        assert here.dump() is None
    finally:
        for name in late:
            del sys.modules[name]
