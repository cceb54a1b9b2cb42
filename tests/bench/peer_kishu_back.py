"""A process in which Kishu checks out earlier cells: `peer_kishu_back.py DIRECTORY cells|sequences < JSON`.

Run by the Python of Kishu's own environment; imports nothing of ours. `cells`: (name, code) pairs, where a
pair without code checks out the state before the last cell. `sequences`: (name, cells) pairs; all but the
last cell run, the state before them is checked out, then that after them, then the last cell runs. It is
right when it shows what it shows in a shell without Kishu. Prints one JSON object; for each sequence its
outcome, the seconds of each checkout, and the bytes of Kishu's database (`sequences_back.Row`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

SEQUENCE_S = 20
_ADDRESS = re.compile(r"0x[0-9a-f]{6,16}")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    """Do what the second argument says."""
    directory = Path(sys.argv[1])
    os.environ.update(HOME=str(directory), ENV_KISHU_TEST_MODE="1", MPLBACKEND="agg")
    work = json.load(sys.stdin)
    import kishu.jupyterint  # type: ignore[import-not-found]  # noqa: F401 (the children have it)

    if sys.argv[2] == "cells":
        print("\n" + json.dumps(_cells(directory, work)))
    else:
        print("\n" + json.dumps({name: _outcome(directory, name, cells) for name, cells in work}))


def _shell(directory: Path, *, with_kishu: bool) -> tuple[Any, Any]:
    """Return a shell, and Kishu in it if it is to be there."""
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell.instance()
    if not with_kishu:
        return shell, None
    import nbformat.v4
    from kishu.jupyterint import KishuForJupyter
    from kishu.notebook_id import NotebookId  # type: ignore[import-not-found]

    notebook = directory / "notebook.ipynb"
    notebook.write_text(nbformat.v4.writes_json(nbformat.v4.new_notebook()))  # type: ignore[no-untyped-call]
    kishu = KishuForJupyter(NotebookId("bench", notebook, "bench"), shell)
    kishu.install_kishu_hooks()
    return shell, kishu


def _cells(directory: Path, cells: list[tuple[str, str]]) -> dict[str, list[dict[str, float]]]:
    shell, kishu = _shell(directory, with_kishu=True)
    commits: list[str] = []
    costs: dict[str, list[dict[str, float]]] = {}
    for name, code in cells:
        before, began = _size(directory), time.perf_counter()
        if code:
            shell.run_cell(code, store_history=True).raise_error()
            commits.append(_head(kishu))
        else:
            commits.pop()
            kishu.checkout(commits[-1], skip_notebook=True)
        took = time.perf_counter() - began
        costs.setdefault(name, []).append({"seconds": took, "bytes": _size(directory) - before})
    return costs


def _head(kishu: Any) -> str:
    return str(kishu._kishu_branch.get_head().commit_id)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _outcome(directory: Path, name: str, cells: list[str]) -> dict[str, Any]:
    """Return how a sequence comes back, from a process of each kind."""
    found: list[dict[str, Any] | None] = []
    for number, with_kishu in enumerate((False, True)):
        place = directory / f"{abs(hash(name))}-{number}"
        (place / "work").mkdir(parents=True)
        found.append(_in_child(place, cells, with_kishu=with_kishu))
        if found[-1] is None:
            return {"outcome": "failed" if with_kishu else "without"}
        found[-1]["shown"] = found[-1]["shown"].replace(str(place), "PLACE")
    without, back = found
    assert without is not None and back is not None
    outcome = "right" if without["shown"] == back["shown"] else "other"
    return {"outcome": outcome, "checkouts_s": back["checkouts_s"], "kept": back["kept"]}


def _in_child(place: Path, cells: list[str], *, with_kishu: bool) -> dict[str, Any] | None:
    """Return what the last cell shows in a process of its own; None if it fails, or takes too long."""
    result = place / "shown"
    pid = os.fork()
    if not pid:
        signal.alarm(SEQUENCE_S)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.environ["HOME"] = str(place)
        os.chdir(place / "work")
        try:
            result.write_text(json.dumps(_play(place, cells, with_kishu=with_kishu)))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    found: dict[str, Any] | None = json.loads(result.read_text()) if result.exists() else None
    return found


def _play(place: Path, cells: list[str], *, with_kishu: bool) -> dict[str, Any]:
    shell, kishu = _shell(place, with_kishu=with_kishu)
    took_s = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        before = _size(place)
        shell.run_cell("pass", store_history=True)
        commits = [_head(kishu)] if kishu else []
        for cell in cells[:-1]:
            shell.run_cell(cell, store_history=True)
        kept = _size(place) - before - _size(place / "work")
        if kishu:
            commits.append(_head(kishu))
            for commit in commits:
                began = time.perf_counter()
                kishu.checkout(commit, skip_notebook=True)
                took_s.append(time.perf_counter() - began)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        shell.run_cell(cells[-1], store_history=False)
    shown = _COLOUR.sub("", _ADDRESS.sub("0xADDRESS", out.getvalue()))
    return {"shown": shown, "checkouts_s": took_s, "kept": kept}


if __name__ == "__main__":
    main()
