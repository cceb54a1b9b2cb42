"""What training writes: bytes, disk and CPU of cells that each change a whole torch model and its Adam state.

Disk is counted once per inode, for cache and store share files. `python -m tests.bench.training_disk --help`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.kernels import Kernel, Place, cpu_s, place
from tests.bench.report import Result
from tests.support.stock import OURS, STOCK

MIB = 2**20
LOOK_S = 0.1
GONE_AFTER_S = 3.0
WIDTH = 1024
"""A layer is so wide and high, of 4 MiB of weights."""

PREPARE = """
import torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear({width}, {width}) for _ in range({layers})))
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
losses = []
def step():
    opt.zero_grad()
    loss = model(torch.randn(8, {width})).square().mean()
    loss.backward(); opt.step(); losses.append(loss.item())
"""
STEP = "import time; began = time.monotonic()\nstep()\nwhile time.monotonic() - began < {cell_s}: step()"
SAVE = "\ntorch.save((model.state_dict(), opt.state_dict(), losses), 'checkpoint.pt')"


@dataclass
class Training:
    """What one kernel's training cost; bytes on disk are counted once per inode, above those before it."""

    cells: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    live_mib: float = 0.0
    written_mib: float = 0.0
    written_mib_per_cell: float = 0.0
    disk_max_mib: float = 0.0
    disk_end_mib: float = 0.0
    """When the last cell has ended and ten seconds have passed."""
    disk_left_mib: float = 0.0
    """Three seconds after the kernel's end."""
    took_s: list[float] = field(default_factory=list)
    disk_mib: list[int] = field(default_factory=list)
    """Second by second."""


def disk_bytes(root: Path) -> int:
    """Return what the files below `root` take on disk, each inode once."""
    seen: dict[int, int] = {}
    for directory, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(directory, name))
                seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def written_bytes(pids: list[int]) -> int:
    """Return what the processes have had written to disks."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/io").read_text().splitlines():
                if line.startswith("write_bytes:"):
                    total += int(line.split()[1])
    return total


class Watch:
    """Looks at the disk ten times a second for as long as the block lasts."""

    def __init__(self, root: Path) -> None:
        self.samples: list[tuple[float, int]] = []
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.samples.append((time.monotonic(), disk_bytes(self._root)))


def train(
    name: str, where: Place, *, mib: int, cells: int, cell_s: float, save: bool = False, now: bool = False
) -> Training:
    """Train a model of `mib` MiB of weights in `cells` cells of about `cell_s` each; end the kernel.

    With `save`, each cell ends with a `torch.save`; with `now`, the kernel is killed instead of asked.
    """
    layers = max(1, mib * MIB // (4 * WIDTH * WIDTH))
    made = Training(cells, live_mib=4.0 * layers * 4 * WIDTH * WIDTH / MIB)
    running = Kernel(name, where)
    try:
        running.run(f"import os; os.chdir({str(where.root)!r})")
        running.run(PREPARE.format(width=WIDTH, layers=layers))
        disk, cpu, written = disk_bytes(where.root), cpu_s(where.pids()), written_bytes(where.pids())
        began = time.monotonic()
        with Watch(where.root) as watch:
            code = STEP.format(cell_s=cell_s) + (SAVE if save else "")
            made.took_s = [running.run(code) for _ in range(cells)]
            made.wall_s = time.monotonic() - began
            time.sleep(10.0)
        made.cpu_s = cpu_s(where.pids()) - cpu
        made.written_mib = (written_bytes(where.pids()) - written) / MIB
        made.disk_end_mib = (disk_bytes(where.root) - disk) / MIB
        _note_disk(made, watch, disk)
        if save:
            (where.root / "checkpoint.pt").unlink()
    finally:
        running.client.stop_channels()
        running.manager.shutdown_kernel(now=now)
    time.sleep(GONE_AFTER_S)
    made.disk_left_mib = (disk_bytes(where.root) - disk) / MIB
    made.written_mib_per_cell = made.written_mib / cells
    return made


def _note_disk(made: Training, watch: Watch, disk: int) -> None:
    """Note the highest sample, and one of each second."""
    made.disk_max_mib = max((size - disk for _, size in watch.samples), default=0) / MIB
    began = watch.samples[0][0] if watch.samples else 0.0
    seconds = {int(moment - began): round((size - disk) / MIB) for moment, size in watch.samples}
    made.disk_mib = list(seconds.values())


def stock_beside(*, mib: int, cells: int, cell_s: float) -> tuple[Training, Training]:
    """Train on a stock kernel, without and with a `torch.save` in each cell."""
    with place() as there:
        plain = train(STOCK, there, mib=mib, cells=cells, cell_s=cell_s)
    with place() as there:
        return plain, train(STOCK, there, mib=mib, cells=cells, cell_s=cell_s, save=True)


def measure(mib: int = 20, cells: int = 60, cell_s: float = 0.3) -> Result:
    """Train with three replicas, with one, and on the stock kernel."""
    details = {}
    for replicas in (3, 1):
        with place(REPLKERNEL_REPLICAS=str(replicas)) as here:
            details[f"replicas_{replicas}"] = train(OURS, here, mib=mib, cells=cells, cell_s=cell_s)
    details["stock"], details["torch_save"] = stock_beside(mib=mib, cells=cells, cell_s=cell_s)
    return Result(
        "training_disk",
        "MiB",
        [details["replicas_3"].disk_max_mib],
        [details["torch_save"].disk_max_mib],
        "disk <= 2 x live + 1 GiB, 0 left, CPU <= 1.3 x stock",
        {name: asdict(each) for name, each in details.items()},
    )


def main() -> None:
    """Run what the command line says; print figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=20, help="MiB of weights; state is four times that")
    parser.add_argument("--cells", type=int, default=60, help="how many cells train")
    parser.add_argument("--cell-s", type=float, default=0.3, help="seconds a cell trains, at least a step")
    parser.add_argument("--replicas", default="3", help="replicas, or `stock`, or `save`; several by commas")
    parser.add_argument("--now", action="store_true", help="shut the kernel down with now=True")
    given = parser.parse_args()
    for replicas in given.replicas.split(","):
        ours = replicas.isdigit()
        settings = {"REPLKERNEL_REPLICAS": replicas} if ours else {}
        with place(**settings) as here:
            made = train(
                OURS if ours else STOCK,
                here,
                mib=given.mib,
                cells=given.cells,
                cell_s=given.cell_s,
                save=replicas == "save",
                now=given.now,
            )
        print(replicas, json.dumps({**asdict(made), "took_s": _spread(made.took_s)}), flush=True)


def _spread(took_s: list[float]) -> dict[str, float]:
    """Return the median and the longest of some times."""
    ordered = sorted(took_s)
    return {"median": round(ordered[len(ordered) // 2], 4), "max": round(ordered[-1], 4)}


if __name__ == "__main__":
    main()
