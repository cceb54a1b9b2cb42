"""Plays a sequence on three replicas, a move between every two cells, and beside it on a stock kernel."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.connect import write_connection_file

from tests.e2e.state.cell_outputs import Played, Playing, await_ready
from tests.e2e.state.sequence import REPEATS, Sequence
from tests.e2e.state.stock_forks import StockKernels
from tests.support.stock import OURS

READY_S = 60.0
REPLICAS = 3
PRELOADED = ("numpy", "pandas", "matplotlib.pyplot", "sklearn", "torch")
"""What a kernel has imported from the start when its sequence needs any package."""


class Outcome(msgspec.Struct):
    """What both kernels showed, cell by cell, the repeats last; and what binds ours at the end."""

    stock: list[Played]
    ours: list[Played]
    pins: str = ""

    def stayed(self) -> bool:
        """Tell whether a cell of ours ran on the replica of the one before it."""
        return any(one.replica == next_.replica for one, next_ in itertools.pairwise(self.ours))


class Players:
    """Both kernels of every sequence of a test module, below one directory."""

    def __init__(self, place: Path, stock: StockKernels) -> None:
        self._place = place
        self._stock = stock
        self._count = 0
        self._ending: KernelManager | None = None
        """The kernel of the last sequence, which was told to end: it does while the next one starts."""

    def play(self, sequence: Sequence) -> Outcome:
        """Play a sequence on both kernels."""
        self._count += 1
        base = self._place / f"p{self._count}"
        here, there = base / "a", base / "b"
        here.mkdir(parents=True)
        there.mkdir()
        with self._our_kernel(sequence, there) as ours, self._stock_kernel(sequence, here) as stock:
            await_ready(ours, base / "terminal")
            await_ready(stock)
            _await_replicas(ours)
            outcome = Outcome([], [])
            for cell in sequence.cells[:-1]:
                _play_both(outcome, (stock, here), (ours, there), cell)
            if sequence.refuses:
                outcome.pins = _said(ours, "%replkernel pins")
                _kill_executor(ours)
            for _ in range(1 + REPEATS if sequence.again else 1):
                if sequence.refuses:
                    outcome.ours.append(Playing(ours, there, sequence.cells[-1]).end())
                else:
                    _play_both(outcome, (stock, here), (ours, there), sequence.cells[-1])
            if sequence.pinned or outcome.stayed():
                outcome.pins = outcome.pins or _said(ours, "%replkernel pins")
        shutil.rmtree(base, ignore_errors=True)
        return outcome

    @contextlib.contextmanager
    def _stock_kernel(self, sequence: Sequence, cwd: Path) -> Iterator[BlockingKernelClient]:
        file = self._place / f"stock{self._count}.json"
        write_connection_file(str(file), transport="ipc", ip=str(self._place / "s" / f"k{self._count}"))
        pid = self._stock.start(file, cwd, sequence.needs)
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels(hb=False)
        try:
            yield client
        finally:
            client.stop_channels()
            client.context.destroy(linger=0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def _our_kernel(self, sequence: Sequence, cwd: Path) -> Iterator[BlockingKernelClient]:
        settings = {}
        if sequence.needs and sequence.preload:
            settings["REPLKERNEL_PRELOAD"] = ",".join(PRELOADED)
        manager = KernelManager(kernel_name=OURS)
        before, self._ending = self._ending, manager
        with (cwd.parent / "terminal").open("wb") as terminal:
            manager.start_kernel(
                env=os.environ | settings, cwd=str(cwd), stdout=subprocess.DEVNULL, stderr=terminal
            )
        client: BlockingKernelClient = manager.blocking_client()
        client.start_channels(hb=False)
        try:
            yield client
        finally:
            client.stop_channels()
            manager.request_shutdown()
            _end(before)

    def close(self) -> None:
        """Return when every kernel has ended."""
        before, self._ending = self._ending, None
        _end(before)


def _end(manager: KernelManager | None) -> None:
    if manager is not None:
        manager.finish_shutdown()
        manager.cleanup_resources()
        manager.context.destroy(linger=0)


def _play_both(
    outcome: Outcome,
    stock: tuple[BlockingKernelClient, Path],
    ours: tuple[BlockingKernelClient, Path],
    code: str,
) -> None:
    """Run one cell on both kernels at the same time."""
    first, second = Playing(*stock, code), Playing(*ours, code)
    outcome.ours.append(second.end())
    outcome.stock.append(first.end())


def _await_replicas(client: BlockingKernelClient) -> None:
    """Return once all three replicas take cells: until then the others run by turns without them."""
    deadline = time.monotonic() + READY_S
    seen: list[str] = []
    while len(set(seen[-REPLICAS:])) < REPLICAS:
        assert time.monotonic() < deadline, f"the replicas that took cells were {seen[-REPLICAS:]}"
        reply = client.execute_interactive("", silent=True, store_history=False, timeout=READY_S)
        seen.append(str(reply["metadata"]["replkernel"]["replica"]))
        time.sleep(0.01)


def _said(client: BlockingKernelClient, line: str) -> str:
    played = Playing(client, Path(os.devnull), line).end()
    return "\n".join(part[1] for part in played.shown if part[0] == "stdout")


def _kill_executor(client: BlockingKernelClient) -> None:
    """Kill the process that ran the last cell, as a host's failure would, and wait until another answers."""
    words = _where(client)
    os.kill(int(words[words.index("process") + 1]), signal.SIGKILL)
    while not (now := _where(client)) or now == words:
        time.sleep(0.05)


def _where(client: BlockingKernelClient) -> list[str]:
    return _said(client, "%replkernel where").replace(",", "").split()
