"""Modules of tests that need a library which the processes that they start import, not they themselves."""

from __future__ import annotations

import importlib.util

import pytest


def need(library: str) -> None:
    """Skip a module, or a test, where a library is not installed, without the seconds of its import."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed", allow_module_level=True)
