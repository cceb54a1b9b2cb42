"""What every unit test gets: a process whose loggers nobody has looked at, whatever tests before it made."""

from __future__ import annotations

import pytest

from replkernel.namespace.patches import loggers


@pytest.fixture(autouse=True)
def _loggers_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which handlers a process had at its start: pytest adds its own to the root logger as it goes."""
    monkeypatch.setattr(loggers, "born", None)
