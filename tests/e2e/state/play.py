"""Plays a sequence on three replicas, a move between every two cells, and beside it on a stock kernel.

Law: each sequence has kernels of its own. Those of the next one start while a sequence is played.
"""

from __future__ import annotations

import itertools
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from tests.e2e.state.cell_outputs import Played, Playing, await_ready
from tests.e2e.state.forks import Forks
from tests.e2e.state.sequence import REPEATS, Sequence

READY_S = 60.0
END_S = 20.0
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


Play = Callable[[Sequence], Outcome]
Result = TypeVar("Result")


class Kernel:
    """One kernel that was forked: its process, its directory and a client of it."""

    def __init__(self, pid: int, file: Path, cwd: Path) -> None:
        self.cwd = cwd
        self._process = os.pidfd_open(pid)
        self.client = BlockingKernelClient(connection_file=str(file))
        self.client.load_connection_file()
        self.client.start_channels(hb=False)

    def play(self, cell: str, *, counted: bool = True) -> Playing:
        """Send a cell; one that is not `counted` leaves no trace in prompts."""
        return Playing(self.client, self.cwd, cell, counted=counted)

    def tell_to_end(self) -> None:
        """Ask the kernel to end, and do not wait for it."""
        self.client.shutdown()

    def close(self, patience_s: float = 0.0) -> None:
        """Kill the process unless it ends by itself in time, and let go of it."""
        if not select.select([self._process], [], [], patience_s)[0]:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        os.close(self._process)
        self.client.stop_channels()
        self.client.context.destroy(linger=0)


class Pair:
    """Both kernels of one sequence, below a directory of theirs, from their start on."""

    def __init__(
        self, sequence: Sequence, base: Path, sockets: Path, forks: Forks, settings: Mapping[str, str]
    ) -> None:
        self.sequence = sequence
        self._replicas = int(settings.get("REPLKERNEL_REPLICAS", REPLICAS))
        self.base = base
        self.terminal = base / "terminal"
        here, there = base / "a", base / "b"
        here.mkdir(parents=True)
        there.mkdir()
        if sequence.needs and sequence.preload:
            settings = {**settings, "REPLKERNEL_PRELOAD": ",".join(PRELOADED)}
        files = [_connection_file(base, sockets, name) for name in ("ours", "stock")]
        self.ours = Kernel(forks.router(files[0], there, self.terminal, settings), files[0], there)
        packages = sequence.needs if sequence.preload else ()
        self.stock = Kernel(forks.stock(files[1], here, packages), files[1], here)

    def await_ready(self) -> None:
        """Return when both take cells, and ours on all replicas."""
        await_ready(self.ours.client, self.terminal)
        await_ready(self.stock.client)
        _await_replicas(self.ours.client, self._replicas)

    def tell_to_end(self) -> None:
        """End the stock kernel, and have ours begin to end."""
        self.stock.close()
        self.ours.tell_to_end()

    def close(self) -> None:
        """Return when ours has ended as well."""
        self.ours.close(END_S)
        shutil.rmtree(self.base, ignore_errors=True)


class Players:
    """Both kernels of every sequence of a test module, below one directory."""

    def __init__(self, place: Path, forks: Forks, settings: Mapping[str, str]) -> None:
        self._place = place
        self._forks = forks
        self._settings = settings
        self._count = 0
        self._next: Pair | None = None
        self._ending: Pair | None = None
        """The kernels of the last sequence, of which ours was told to end."""

    def play(self, sequence: Sequence, then: Sequence | None = None) -> Outcome:
        """Play a sequence on both kernels, with moves; `then` is the one that is played next."""
        return self.play_as(_play, sequence, then)

    def play_as(self, how: Callable[[Pair], Result], sequence: Sequence, then: Sequence | None) -> Result:
        """Play a sequence on both kernels in the way that `how` says."""
        pair, self._next = self._next, None
        if pair is not None and pair.sequence is not sequence:
            self._end(pair)
            pair = None
        pair = pair or self._start(sequence)
        try:
            pair.await_ready()
            self._next = None if then is None else self._start(then)
            return how(pair)
        finally:
            self._end(pair)

    def close(self) -> None:
        """Return when every kernel has ended."""
        if self._next is not None:
            self._end(self._next)
        if self._ending is not None:
            self._ending.close()

    def _start(self, sequence: Sequence) -> Pair:
        self._count += 1
        sockets = self._place / "s" / f"k{self._count}"
        return Pair(sequence, self._place / f"p{self._count}", sockets, self._forks, self._settings)

    def _end(self, pair: Pair) -> None:
        """Have a sequence's kernels end, while the next sequence is played."""
        pair.tell_to_end()
        before, self._ending = self._ending, pair
        if before is not None:
            before.close()


def _connection_file(base: Path, sockets: Path, name: str) -> Path:
    file = base / f"{name}.json"
    write_connection_file(str(file), transport="ipc", ip=f"{sockets}{name[0]}")
    return file


def _play(pair: Pair) -> Outcome:
    sequence, ours = pair.sequence, pair.ours
    outcome = Outcome([], [])
    for cell in sequence.cells[:-1]:
        _play_both(outcome, pair, cell)
    if sequence.refuses:
        outcome.pins = _said(ours.client, "%replkernel pins")
        _kill_executor(ours.client)
    for _ in range(1 + REPEATS if sequence.again else 1):
        if sequence.refuses:
            outcome.ours.append(ours.play(sequence.cells[-1]).end())
        else:
            _play_both(outcome, pair, sequence.cells[-1])
    if sequence.pinned or outcome.stayed():
        outcome.pins = outcome.pins or _said(ours.client, "%replkernel pins")
    return outcome


def _play_both(outcome: Outcome, pair: Pair, cell: str) -> None:
    """Run one cell on both kernels at the same time."""
    first, second = pair.stock.play(cell), pair.ours.play(cell)
    outcome.ours.append(second.end())
    outcome.stock.append(first.end())


def _await_replicas(client: BlockingKernelClient, count: int) -> None:
    """Return once all replicas take cells: until then the others run by turns without them."""
    deadline = time.monotonic() + READY_S
    seen: list[str] = []
    while len(set(seen[-count:])) < count:
        assert time.monotonic() < deadline, f"the replicas that took cells were {seen[-count:]}"
        reply = client.execute_interactive("", silent=True, store_history=False, timeout=READY_S)
        assert "replkernel" in reply["metadata"], reply["content"]
        replica = str(reply["metadata"]["replkernel"]["replica"])
        if count > 1 and replica in seen[1 - count :]:
            time.sleep(0.05)
        seen.append(replica)


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
