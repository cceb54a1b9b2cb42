"""A notebook that replaces Python's builtins has its cells run, captured and moved all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.breadth import first_of
from tests.support.live import kernel

pytestmark = pytest.mark.timeout(60)

WRAPPED = """
kept = {name: vars(builtins)[name] for name in ("isinstance", "open", "sorted", "print")}
builtins.isinstance = lambda one, other: kept["isinstance"](one, other)
builtins.open = lambda *a, **k: kept["open"](*a, **k)
builtins.sorted = lambda *a, **k: kept["sorted"](*a, **k)
"""


@pytest.mark.parametrize("policy", first_of("rotate", "sticky"))
def test_builtins_that_the_notebook_replaces_are_the_notebooks_alone(tmp_path: Path, policy: str) -> None:
    with kernel(tmp_path, REPLKERNEL_EXECUTOR=policy) as live:
        live.run("import builtins; builtins.sum = lambda values: 'SUM'; held = [1]")
        assert live.value("held.append(2); print(sum(held), held)") == "SUM [1, 2]"
        assert live.run(WRAPPED).status == "ok"
        assert live.value("print(sorted([3, 1]), isinstance(1, int), sum(held))") == "[1, 3] True SUM"
        assert "Nothing binds" in live.value("%replkernel pins")
        assert live.run("held.append(3)").err == ""
