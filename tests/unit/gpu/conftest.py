"""What tests of GPUs get: a process in which only their own tensors are looked for."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _only_their_own_objects() -> None:
    """Pass over what was here before: torch alone imports 120,000 objects, and each test looks at all."""
    gc.freeze()
