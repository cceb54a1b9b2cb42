"""Imports outside cells: `get_ipython` is there meanwhile, and gone after."""

from __future__ import annotations

import builtins

import pytest

from replkernel.kernel.ipython_at_hand import ipython_at_hand


def test_a_module_imported_before_there_is_a_shell_finds_a_kernel() -> None:
    with ipython_at_hand():
        shell = builtins.get_ipython()  # type: ignore[attr-defined]
        assert hasattr(shell, "kernel")  # pandas asks this,
        assert type(shell).__name__ == "ZMQInteractiveShell"  # and rich this.
    assert not hasattr(builtins, "get_ipython")


def test_ipythons_own_get_ipython_stays_during_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    during_a_cell = object
    monkeypatch.setattr(builtins, "get_ipython", during_a_cell, raising=False)
    with ipython_at_hand():
        assert builtins.get_ipython is during_a_cell  # type: ignore[attr-defined]
    assert builtins.get_ipython is during_a_cell  # type: ignore[attr-defined]
