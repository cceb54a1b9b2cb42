"""The same cells by those who keep state in other ways: cloudpickle and dill of everything, and Kishu.

Each peer runs the cells in a process of its own and keeps the state after each, into files of the same file
system. Stock is the cell alone; what keeping state adds is the difference. Kishu is installed from PyPI into
an environment of its own below build/; where it does not run, the reason is printed in its place.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.kernels import kernel, place
from tests.bench.report import BUILD, Result
from tests.bench.state_kernels import LARGE, SMALL, touch_memory, watched
from tests.support.stock import STOCK

HERE = Path(__file__).parent
KISHU = BUILD.parent / "kishu"
INSTALL_S = 600.0
RUN_S = 900.0
ROUNDS = 3
MS = 1000.0
SETUP = [("small variables", SMALL), ("large variables", LARGE)]
CELLS = {
    "nothing changes": "pass",
    "a small variable": "l7.append({number})",
    "m = arr.mean()": "m = arr.mean()",
    "one element of 100 MB": "arr[{number}000] = 1.0",
    "a new array of 100 MB": "new = np.random.default_rng({number}).random(12_500_000)",
}

Costs = dict[str, list[dict[str, float]]]


def measure() -> Result:
    """Run everybody, one after the other; the headline is an unchanged cell against cloudpickle."""
    touch_memory()
    cells = SETUP + [
        (name, code.format(number=number)) for number in range(1, ROUNDS + 1) for name, code in CELLS.items()
    ]
    plain = _stock(cells)
    peers: dict[str, Costs | str] = {"replkernel": _ours(cells)}
    with tempfile.TemporaryDirectory(prefix="rkb-", dir="/tmp") as directory:
        for library in ("cloudpickle", "dill"):
            command = [sys.executable, str(HERE / "peer_whole.py"), library, f"{directory}/{library}"]
            peers[library] = _run(command, cells)
        peers["kishu"] = _kishu(cells, Path(directory))
    table = {name: costs if isinstance(costs, str) else _table(costs, plain) for name, costs in peers.items()}
    _print(table)
    ours, whole = (_added("nothing changes", peers[name], plain) for name in ("replkernel", "cloudpickle"))
    return Result("state_peers", "ms", ours, whole, "well below any peer, cell by cell", table)


def _stock(cells: list[tuple[str, str]]) -> dict[str, float]:
    """Return the median seconds of each cell with nobody keeping state."""
    taken: dict[str, list[float]] = {}
    with place() as there, kernel(STOCK, there) as stock:
        for name, code in cells:
            taken.setdefault(name, []).append(stock.run(code))
    return {name: statistics.median(times) for name, times in taken.items()}


def _ours(cells: list[tuple[str, str]]) -> Costs:
    """Return reply and capture together, which is when the next cell can start, and what was shipped."""
    costs: Costs = {}
    with watched() as ours:
        for name, code in cells:
            cost = ours.run(code)
            shipped = cost["inline_bytes"] + cost["chunk_bytes"]
            row = {"seconds": cost["reply"] + cost["capture"], "bytes": shipped, "reply": cost["reply"]}
            costs.setdefault(name, []).append(row)
    return costs


def _run(command: list[str], cells: list[tuple[str, str]]) -> Costs | str:
    """Return what a peer's process prints, or why it did not get that far."""
    try:
        done = subprocess.run(
            command, input=json.dumps(cells), capture_output=True, text=True, timeout=RUN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {RUN_S:g} s"
    if done.returncode:
        return f"failed: {done.stderr.strip()[-1500:]}"
    costs: Costs = json.loads(done.stdout.strip().splitlines()[-1])
    return costs


def kishu_python() -> Path | str:
    """Install Kishu if it is not there, beside our packages for what it does not bring itself.

    Return the Python of its environment, or why there is none.
    """
    python = KISHU / "bin" / "python"
    if not (KISHU / "installed").exists():
        install = [str(python), "-m", "pip", "install", "--quiet", "kishu"]
        for command in ([sys.executable, "-m", "venv", "--clear", str(KISHU)], install):
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            if done.returncode:
                return f"cannot be installed: {done.stderr.strip()[-1500:]}"
        major, minor = sys.version_info[:2]
        packages = KISHU / "lib" / f"python{major}.{minor}" / "site-packages"
        (packages / "measured.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (KISHU / "installed").touch()
    return python


def _kishu(cells: list[tuple[str, str]], directory: Path) -> Costs | str:
    """Run the cells with Kishu."""
    python = kishu_python()
    if isinstance(python, str):
        return python
    home = directory / "kishu"
    home.mkdir()
    return _run([str(python), str(HERE / "peer_kishu.py"), str(home)], cells)


def _added(name: str, costs: Costs | str, plain: dict[str, float]) -> list[float]:
    """Return the milliseconds that keeping state added to each run of a cell."""
    if isinstance(costs, str):
        return []
    return [max(0.0, (row["seconds"] - plain[name]) * MS) for row in costs[name]]


def _table(costs: Costs, plain: dict[str, float]) -> dict[str, Any]:
    return {
        name: {
            "added_ms": round(statistics.median(_added(name, costs, plain)), 2),
            "bytes": int(statistics.median(row["bytes"] for row in rows)),
        }
        for name, rows in costs.items()
    }


def _print(table: dict[str, Any]) -> None:
    names = [*dict(SETUP), *CELLS]
    print(f"{'added ms / bytes kept':<24}" + "".join(f"{peer:>24}" for peer in table))
    for name in names:
        row = [
            f"{found[name]['added_ms']:,.1f} / {found[name]['bytes']:,}" if isinstance(found, dict) else "-"
            for found in table.values()
        ]
        print(f"{name:<24}" + "".join(f"{cell:>24}" for cell in row))
    for peer, found in table.items():
        if isinstance(found, str):
            print(f"{peer}: {found}")
