"""Real notebooks: from a cell's arrival to its first kernel's end, and two that want one GPU in turns."""

from __future__ import annotations

import statistics
import time

from tests.bench.gpu.card import Card
from tests.bench.gpu.rows import Row
from tests.bench.kernels import kernel, place
from tests.bench.lease import scheduler
from tests.support.stock import OURS

WARM_UP = 3
REAL = 'x = torch.ones(1000, device="cuda")'
PRETENDED = "from replkernel.gpu.fake import put\nx = put(torch.ones(1000))"
FIRST = "%%gpu 1\nimport time, torch\n{made}\n"
AGAIN = "%%gpu 1\nx.add_(1); torch.cuda.synchronize() if x.is_cuda else None\nprint(repr(time.time()))"


def first_kernel(card: Card, _size: int) -> Row:
    """Run cells under one lingering lease; both clocks are this machine's."""
    waits = []
    with place(**card.settings) as here, scheduler(here), kernel(OURS, here) as ours:
        ours.stream(FIRST.format(made=PRETENDED if card.settings else REAL))
        for number in range(card.cells + WARM_UP):
            sent = time.time()
            _, text = ours.stream(AGAIN)
            if number >= WARM_UP:
                waits.append((float(text) - sent) * 1000)
            time.sleep(0.05)  # The lease lingers between cells.
    p50, most = statistics.median(waits), max(waits)
    return Row(
        "a cell's way to the end of its first kernel, its lease lingering",
        "at most 50 ms",
        f"{p50:.1f} ms (p50), {most:.1f} ms at most, of {card.cells}",
    )


TURNS = 3
HOLD = "%%gpu 1\nimport torch\n{made}"
MADE = "x = torch.ones({count}, dtype=torch.uint8, device='cuda')"
POSED = "from replkernel.gpu.fake import put\nx = put(torch.ones({count}, dtype=torch.uint8))"
TURN = "%%gpu 1\nprint(int(x[-1]))"


def contending(card: Card, size: int) -> Row:
    """Have two notebooks take turns on one GPU, each with its state there."""
    made = (POSED if card.settings else MADE).format(count=size)
    waits = []
    with (
        place(**card.settings) as here,
        scheduler(here),
        kernel(OURS, here) as one,
        kernel(OURS, here) as two,
    ):
        for each in (one, two):
            each.stream(HOLD.format(made=made))
        for _ in range(TURNS):
            for each in (one, two):
                began = time.perf_counter()
                _, text = each.stream(TURN)
                waits.append(time.perf_counter() - began)
                if text.strip() != "1":
                    raise RuntimeError(f"its state came back as {text!r}")
    p50, most = statistics.median(waits), max(waits)
    return Row(
        f"two notebooks with {size / 1e9:g} GB each take turns on a GPU: from a cell's arrival to its output",
        "its state whole",
        f"{p50:.2f} s (p50), {most:.2f} s at most, of {len(waits)}",
    )
