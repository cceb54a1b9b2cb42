"""Runs notebooks on a kernel by name, and makes the results of two kernels comparable.

Law: only what differs between two runs of the *stock* kernel is evened out: process ids in file names,
memory addresses, and how the text of one stream was cut into pieces.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ADDRESS = re.compile(r"0x[0-9a-f]{6,16}")
PROCESS_FILE = re.compile(r"ipykernel_\d+")


def run_notebook(path: Path, kernel: str, cwd: Path, **settings: str) -> nbformat.NotebookNode:
    """Execute the notebook on `kernel` with `settings` in its environment; return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=120,
        startup_timeout=60,
        kernel_name=kernel,
        resources={"metadata": {"path": str(cwd)}},
    )
    return client.execute(env=os.environ | settings)


def comparable(notebook: nbformat.NotebookNode) -> list[dict[str, Any]]:
    """Return what a reader of the executed notebook sees: execution counts and outputs, cell by cell."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        {"source": cell.source, "count": cell.execution_count, "outputs": _outputs(cell.outputs)}
        for cell in cells
    ]


def _outputs(outputs: list[nbformat.NotebookNode]) -> list[Any]:
    streams: dict[str, str] = {}
    rest: list[Any] = []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] = streams.get(output.name, "") + output.text
        else:
            rest.append(output)
    return [_even(json.loads(json.dumps(part))) for part in [dict(sorted(streams.items())), *rest]]


def _even(value: Any) -> Any:
    if isinstance(value, str):
        return PROCESS_FILE.sub("ipykernel_PID", ADDRESS.sub("0xADDRESS", value))
    if isinstance(value, list):
        return [_even(item) for item in value]
    if isinstance(value, dict):
        return {key: _even(item) for key, item in value.items()}
    return value
