"""The module of a dictionary is asked of ``sys.modules`` first: the search looks at every object there is."""

from __future__ import annotations

import gc
import importlib.machinery
import sys
import types
from typing import NoReturn

import pytest

from replkernel.state.python.modules import module_of_dict


def made(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return module


def test_the_dictionary_of_a_registered_module_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hundreds of modules that a notebook changed, each search takes as long as memory is large."""

    def search(*things: object) -> NoReturn:
        raise AssertionError("every object there is was looked at")

    modules = [made(f"registered_{number}") for number in range(3)]
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(gc, "get_referrers", search)
    assert [module_of_dict(vars(module)) for module in modules] == modules


def test_a_module_that_only_bears_a_registered_name_is_found_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = made("registered_twice"), made("registered_twice")
    monkeypatch.setitem(sys.modules, "registered_twice", new)
    assert module_of_dict(vars(old)) is old
    assert module_of_dict(dict(vars(new))) is None


def test_a_proxy_that_stands_for_a_module_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise AssertionError("code of the notebook's ran")

    module = made("behind_a_proxy")
    monkeypatch.setitem(sys.modules, "behind_a_proxy", Proxy())  # type: ignore[arg-type]
    assert module_of_dict(vars(module)) is module
