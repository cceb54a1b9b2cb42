"""A process in which Kishu keeps the state of each cell: `python peer_kishu.py DIRECTORY < cells.json`.

Run by the Python of Kishu's own environment; imports nothing of ours. Prints one JSON object: for each cell
the seconds that running it took with Kishu's hooks, and the bytes by which Kishu's database grew.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the cells of standard input, (name, code) pairs, in an IPython shell with Kishu."""
    directory = Path(sys.argv[1])
    os.environ["HOME"] = str(directory)
    os.environ["ENV_KISHU_TEST_MODE"] = "1"
    cells: list[tuple[str, str]] = json.load(sys.stdin)

    import nbformat.v4
    from IPython.core.interactiveshell import InteractiveShell

    notebook = directory / "notebook.ipynb"
    notebook.write_text(nbformat.v4.writes_json(nbformat.v4.new_notebook()))  # type: ignore[no-untyped-call]
    shell: Any = InteractiveShell.instance()

    from kishu.jupyterint import KishuForJupyter  # type: ignore[import-not-found]
    from kishu.notebook_id import NotebookId  # type: ignore[import-not-found]

    kishu = KishuForJupyter(NotebookId("bench", notebook, "bench"), shell)
    kishu.install_kishu_hooks()
    costs: dict[str, list[dict[str, float]]] = {}
    for name, code in cells:
        before = _size(directory)
        began = time.perf_counter()
        result = shell.run_cell(code, store_history=True)
        took = time.perf_counter() - began
        result.raise_error()
        costs.setdefault(name, []).append({"seconds": took, "bytes": _size(directory) - before})
    print("\n" + json.dumps(costs))


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
