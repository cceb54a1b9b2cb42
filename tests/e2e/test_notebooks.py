"""Whole notebooks give the stock outputs on the replicated kernel, changing replica at every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.breadth import first_of
from tests.support.executed import comparable, run_notebook
from tests.support.stock import OURS, STOCK

EXAMPLES = Path(__file__).parents[2] / "examples"
STRESS = ("exploration", "plain_python", "training")
PRELOADED = {
    "exploration": {"REPLKERNEL_PRELOAD": "matplotlib.pyplot,pandas,sklearn.ensemble,sklearn.pipeline"}
}
"""What three replicas would take three seconds each to import; each imports for itself with the others."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", first_of(*STRESS))
def test_a_notebook_that_changes_replica_at_every_cell_gives_the_stock_outputs(
    name: str, tmp_path: Path
) -> None:
    path = EXAMPLES / f"{name}.ipynb"
    stock = comparable(run_notebook(path, STOCK, tmp_path))
    preload = PRELOADED.get(name, {})
    ours = run_notebook(path, OURS, tmp_path, REPLKERNEL_EXECUTOR="rotate", **preload)
    for expected, got in zip(stock, comparable(ours), strict=True):
        assert got == expected


@pytest.mark.slow
def test_the_simulators_notebook_runs_and_shows_its_plots(tmp_path: Path) -> None:
    executed = run_notebook(EXAMPLES / "simulator.ipynb", STOCK, tmp_path)
    shown = {cell.source: cell.outputs for cell in executed.cells if cell.cell_type == "code"}
    for source, outputs in shown.items():
        kinds = {kind for output in outputs for kind in output.get("data", {})}
        assert ("image/png" in kinds) == (".plot." in source), source
    tables = [one for outputs in shown.values() for one in outputs if one.output_type == "execute_result"]
    assert any("large-pool" in one.data.get("text/html", "") for one in tables)


def test_the_notebooks_are_committed_without_outputs() -> None:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        assert '"outputs": []' in path.read_text()
        assert '"output_type"' not in path.read_text(), path.name
