"""The order of modules where several processes run them: what takes longest begins first.

Else a Hub of one test begins last, and the other processes wait for it. Nobody keeps a list of times: the
folder says what a test takes, more or less, and one that may take longer says so by a timeout of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

USUAL_S = {"e2e": 8.0, "ui": 30.0, "integration": 2.0, "security": 1.0, "fuzz": 1.0}
"""What a test of these folders takes."""
SHORT_S = 0.1
"""Likewise in those that start nothing."""
OF_ITS_TIMEOUT = 1 / 6
"""So much of it does a test take that has its own."""


def expected_s(folder: str, timeout_s: float | None) -> float:
    """Return how long a test of this folder of `tests` takes, as far as one can say."""
    usual = USUAL_S.get(folder, SHORT_S)
    return usual if timeout_s is None else max(usual, timeout_s * OF_ITS_TIMEOUT)


def longest_first(modules: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the modules in their order, by the seconds of their tests; equal ones stay as they were."""
    return sorted(modules, key=lambda module: -sum(modules[module]))


def put_in_order(items: list[pytest.Item]) -> None:
    """Order collected tests by their modules; each module's own tests keep theirs."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.split("::")[0], []).append(item)
    order = longest_first({name: [_expected_s(item) for item in each] for name, each in modules.items()})
    items[:] = [item for name in order for item in modules[name]]


def _expected_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    folder = item.nodeid.removeprefix("tests/").split("/")[0]
    return expected_s(folder, float(mark.args[0]) if mark is not None and mark.args else None)
