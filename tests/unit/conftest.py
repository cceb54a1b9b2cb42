"""What every unit test gets: a process whose loggers nobody has looked at, whatever tests before it made.

Properties are tried on a quarter of their examples (`tests/support/examples.py`), and by no clock.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings

from replkernel.state.python.logging import places as loggers
from tests.support.examples import examples

settings.register_profile("unit", max_examples=examples(100), deadline=None)
settings.load_profile("unit")

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
"""jsonschema makes a grammar of URIs of it in three seconds; no unit test asks whether one is right."""


@pytest.fixture(autouse=True)
def _loggers_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which handlers a process had at its start: pytest adds its own to the root logger as it goes."""
    monkeypatch.setattr(loggers, "born", None)
