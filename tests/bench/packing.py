"""What packing makes of chunks as notebooks have them, and whether they are stored sooner for it.

One chunk a kind, on ways of 25 to 500 MB/s; the time on the way is computed, packing is measured.
``python -m tests.bench.packing`` prints the table. ``stock`` is a chunk stored as it is: 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.objects.packing import MARK, is_packed, pack, unpack
from tests.bench.report import Result

RATES = (25e6, 50e6, 100e6, 200e6, 500e6)
ROUNDS = 5
TOLD_MAX = 1.2
"""A kind that takes longer than this part of the plain time on any way is packed wrongly."""


def trained() -> dict[str, Any]:
    """Return weights of a model trained for a moment, and what Adam keeps for them."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    rows = torch.randn(256, 512)
    for _ in range(60):
        adam.zero_grad()
        (model(rows) - rows.flip(1)).square().mean().backward()
        adam.step()

    def flat(tensors: Any) -> Any:
        return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])

    weights = flat(model.parameters())
    states = [adam.state[part] for part in model.parameters()]
    return {
        "float32 weights": weights.numpy(),
        "Adam exp_avg": flat(state["exp_avg"] for state in states).numpy(),
        "Adam exp_avg_sq": flat(state["exp_avg_sq"] for state in states).numpy(),
        "bfloat16 weights": weights.bfloat16().view(torch.int16).numpy(),
        "float16 weights": weights.half().numpy(),
    }


def kinds() -> dict[str, bytes]:
    """Return a chunk of each kind."""
    import numpy as np

    chance = np.random.default_rng(0)
    count = CHUNK_BYTES // 8
    arrays: dict[str, Any] = {
        **trained(),
        "float64 normal": chance.standard_normal(count),
        "float64 random walk": np.cumsum(chance.standard_normal(count)),
        "float64 prices": np.round(chance.random(count) * 1000, 2),
        "int64 0..1000": chance.integers(0, 1000, count),
        "int32 ascending": np.arange(2 * count, dtype=np.int32),
        "int64 timestamps": np.cumsum(chance.integers(1, 2000, count)),
        "random bytes": np.frombuffer(chance.bytes(CHUNK_BYTES), np.uint8),
    }
    sources = sorted(Path(pack.__code__.co_filename).parents[1].rglob("*.py"))
    text = "".join(path.read_text() for path in sources).encode()
    return {name: array.tobytes()[:CHUNK_BYTES] for name, array in arrays.items()} | {
        "source text": text[:CHUNK_BYTES]
    }


def best_s(function: Callable[[], Any]) -> float:
    """Return the shortest time that a call took."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def stored(data: bytes, rate: float) -> dict[str, float]:
    """Return how a chunk is stored on a way of so many bytes a second."""
    packed = pack(data, rate)
    codec = packed[len(MARK)] if is_packed(packed) else 0
    pack_s = best_s(lambda: pack(data, rate))
    unpack_s = best_s(lambda: unpack(packed, 2 * CHUNK_BYTES)) if codec else 0.0
    return {
        "codec": codec,
        "ratio": len(data) / len(packed),
        "pack_mb_s": len(data) / pack_s / 1e6,
        "unpack_mb_s": len(data) / unpack_s / 1e6 if codec else 0.0,
        "time": (len(packed) / rate + pack_s) / (len(data) / rate),
    }


def measure() -> Result:
    """Measure all kinds on all ways; `ours` is the time on a way of 50 MB/s, as a part of the plain one."""
    table = {name: {int(rate / 1e6): stored(data, rate) for rate in RATES} for name, data in kinds().items()}
    ours = [ways[50]["time"] for ways in table.values()]
    goal = f"<= 1.05 at 50 MB/s for each kind, and <= {TOLD_MAX} on any way"
    return Result("packing", "part of the plain time", ours, [1.0], goal, {"kinds": table})


if __name__ == "__main__":
    for kind, ways in measure().details["kinds"].items():
        cells = (f"{way['ratio']:6.2f}:1 in {way['time']:4.2f} ({way['codec']})" for way in ways.values())
        print(f"{kind:20}", *cells, sep=" | ")
