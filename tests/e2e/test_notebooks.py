"""Whole notebooks give the stock outputs on the replicated kernel, changing replica at every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.executed import comparable, run_notebook
from tests.support.stock import OURS, STOCK

EXAMPLES = Path(__file__).parents[2] / "examples"
STRESS = ("plain_python", "exploration", "training")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", STRESS)
def test_a_notebook_that_changes_replica_at_every_cell_gives_the_stock_outputs(
    name: str, tmp_path: Path
) -> None:
    path = EXAMPLES / f"{name}.ipynb"
    stock = comparable(run_notebook(path, STOCK, tmp_path))
    ours = run_notebook(path, OURS, tmp_path, REPLKERNEL_EXECUTOR="rotate")
    for expected, got in zip(stock, comparable(ours), strict=True):
        assert got == expected


@pytest.mark.one_host  # Its third cell comes within a second: hosts of their own may not have theirs by then.
@pytest.mark.timeout(180)
def test_the_demo_notebook_runs_and_shows_three_replicas(tmp_path: Path) -> None:
    demo = run_notebook(EXAMPLES / "demo.ipynb", OURS, tmp_path)
    shown = [str(cell.outputs) for cell in demo.cells if cell.cell_type == "code"]
    assert all(replica in shown[2] for replica in ("r1", "r2", "r3"))
    assert "'cells': 3" in shown[-1]


def test_the_notebooks_are_committed_without_outputs() -> None:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        assert '"outputs": []' in path.read_text()
        assert '"output_type"' not in path.read_text(), path.name
