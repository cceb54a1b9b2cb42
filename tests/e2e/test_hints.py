"""What a notebook says of its variables beforehand holds wherever it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ending import lose
from tests.support.live import Live, eventually, kernel
from tests.support.shared_place import _kernel_in_reach, _own_directories, place

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

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


TRAINING = """
import os
import numpy as np
import replkernel

model, losses = np.zeros(2_000_000), []
replkernel.keep(model, every="10 min")

def step():
    global model
    model += 1.0
    losses.append(len(losses))

print(os.getpid())
"""
SHOWN = "print(int(model.min()), int(model.max()), len(losses))"


def as_of(live: Live) -> str:
    """Return what the state's table says of the model, once the last cell has been looked at."""

    def look() -> str:
        row = next(line for line in live.value("%replkernel state").splitlines() if line.startswith("model"))
        return "" if "pending" in row or "not checked" in row else row

    return eventually(look, "a look at the model")


def test_a_kept_variable_is_durable_now_and_then_and_a_crash_goes_back_to_that(tmp_path: Path) -> None:
    with kernel(tmp_path) as live:
        eventually(
            lambda: live.value("%replkernel status").count("standby on") == 2,
            "both standbys: one that joins has the state settled",
        )
        pid = int(live.value(TRAINING))
        eventually(lambda: " yes " in as_of(live), "a first version of the model")
        live.run("step()")
        kept = live.run("step()").reply["content"]["execution_count"]
        eventually(lambda: "kept every 10 min" in as_of(live), "a change that is kept for later")
        later = "kept for later: `model`, due in"  # Said once a look has met the change.
        table = eventually(
            lambda: later in (told := live.value("%replkernel state")) and told, "what is said of it"
        )
        assert "last durable: cell" in table
        lose(pid)
        after = live.run(SHOWN, 120)
        assert after.out in ("0 0 0\n", "1 1 1\n"), "the state is as after one cell"
        assert f"the notebook is back at cell {kept - 1 if after.out[0] == '1' else ''}" in after.err
        assert "replkernel.keep" not in after.err
        assert live.value("print(replkernel.keep())") == "{'model': '10 min'}"


@pytest.mark.slow
def test_sync_makes_what_is_kept_durable_at_once(tmp_path: Path) -> None:
    with kernel(tmp_path) as live:
        pid = int(live.value(TRAINING))
        live.run("step()")
        assert "Durable up to this cell" in live.value("step()\n%replkernel sync")
        lose(pid)
        after = live.run(SHOWN, 120)
        assert (after.out, after.err) == ("2 2 2\n", "")


@pytest.mark.slow
def test_a_kept_variable_goes_along_when_the_notebook_rests_or_moves(tmp_path: Path) -> None:
    with kernel(tmp_path) as live:
        live.value(TRAINING)
        eventually(lambda: " yes " in as_of(live), "a first version of the model")
        live.run("step()")
        live.run("step()\n%replkernel hibernate")
        assert live.value(SHOWN, 120) == "2 2 2"
    with kernel(tmp_path, REPLKERNEL_EXECUTOR="rotate") as live:
        live.value(TRAINING)
        replicas = {live.run("step()").replica for _ in range(6)}
        assert len(replicas) > 1
        assert live.value(SHOWN) == "6 6 6"
