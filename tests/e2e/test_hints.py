"""What a notebook says of its variables beforehand holds wherever it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live import kernel

pytestmark = pytest.mark.timeout(120)


def test_a_transient_variable_stays_behind_and_is_made_again_by_its_cell(tmp_path: Path) -> None:
    make = "cache = {'rows': list(range(10))}"
    with kernel(tmp_path, REPLKERNEL_EXECUTOR="rotate") as live:
        live.run("import replkernel; model = [1]")
        made = live.run(f"{make}; replkernel.transient(cache); model.append(2)")
        away = live.run("print(model); cache['rows']")
        assert away.replica != made.replica
        assert away.out == "[1, 2]\n"
        assert "StateLostError: 'cache' is a dict that was not copied, because you marked it" in away.error
        again = live.run(f"{make}; print(len(cache['rows']))")
        assert again.out == "10\n"
        assert "Nothing binds" in live.value("%replkernel pins")
        assert "marked it transient" in live.run("cache['rows']").error
