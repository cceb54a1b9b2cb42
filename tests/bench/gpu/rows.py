"""The rows of the table: each measures one thing on a card, and says it in one line beside its goal.

Law: nothing here fails because of a number; what could not be measured says why.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.bench.gpu.card import Card, moved, seconds

LAYERS = 10
STEPS, MOVED_AFTER = 6, 2
TRAINED_BYTES = 64 * 10**6
CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class Row(NamedTuple):
    """What was measured, what was wanted, and what was seen."""

    what: str
    goal: str
    figure: str


def model_of(card: Card, size: int) -> Any:
    """Return a model of so many bytes on the card, of equal layers."""
    import torch

    width = max(8, math.isqrt(size // LAYERS // 4))
    return card.put(torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS))))


def bytes_of(model: Any) -> int:
    """Return how many bytes its parameters have."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def training(card: Card, size: int) -> Row:
    """Train, leave the card, have another process take all of it, come back, train on."""
    import torch

    os.environ.setdefault(*CUBLAS)
    torch.use_deterministic_algorithms(True)
    try:
        trouble: list[str] = []
        interrupted, whole = (_losses(card, size, trouble, moves=moves) for moves in (True, False))
    finally:
        torch.use_deterministic_algorithms(False)
    same = "identical" if interrupted == whole else f"DIFFERENT: {interrupted} and {whole}"
    figure = f"{same}{f' ({trouble[0]})' if trouble else ''}"
    return Row(
        "loss curve, with the state off the GPU while another process takes all of it", "bit for bit", figure
    )


def _losses(card: Card, size: int, trouble: list[str], *, moves: bool) -> list[float]:
    import torch

    torch.manual_seed(5)
    model = model_of(card, min(size, TRAINED_BYTES))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, seen = card.put(torch.randn(64, model[0].in_features)), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        if moves and step == MOVED_AFTER:
            del loss
            moved(card.backend.suspend())
            trouble += [why for why in (card.taken_by_another(),) if why]
            moved(card.backend.resume(card.backend.gpus))
    return seen


def by_torch(card: Card, size: int) -> Row:
    """Off and back in place, beside the fastest plain copy."""
    first, later, _ = _off_and_back(card, size, settled=False)
    plain = card.copy_gb_s(min(size, 2**30))
    shares = f"{later[0] / plain:.0%} and {later[1] / plain:.0%} of a pinned copy's {plain:.1f} GB/s"
    return Row(
        f"{size / 1e9:g} GB off and back, by torch",
        "at least 60 % of a pinned copy",
        f"first {first[0]:.1f} and {first[1]:.1f} GB/s, later {later[0]:.1f} and {later[1]:.1f}: {shares}",
    )


def by_driver(card: Card, size: int) -> Row:
    """Off and back by the driver; where it cannot, that is said."""
    first, later, locked = _off_and_back(card, size, settled=True)
    rates = f"first {first[0]:.1f} and {first[1]:.1f} GB/s, later {later[0]:.1f} and {later[1]:.1f}"
    figure = rates if locked else "the driver does not, here"
    return Row(f"{size / 1e9:g} GB off and back, by the driver", "beside it", figure)


def _off_and_back(
    card: Card, size: int, *, settled: bool
) -> tuple[tuple[float, float], tuple[float, float], bool]:
    """Return the first rates, which get their host memory, and the best later ones: off and back, in GB/s."""
    model, rates, locked = model_of(card, size), [], False
    for _ in range(3):
        off = moved(card.backend.suspend(settled=settled))
        locked = card.backend.locked
        back = moved(card.backend.resume(card.backend.gpus))
        rates.append((off.bytes / off.seconds / 1e9, back.bytes / back.seconds / 1e9))
    assert next(model.parameters()) is not None, "it has to live until here"
    best = max(off for off, _ in rates[1:]), max(back for _, back in rates[1:])
    return rates[0], best, locked


def capture(card: Card, size: int) -> list[Row]:
    """Capture a model again that nobody has changed, then with one layer changed."""
    import torch

    from replkernel.gpu import device_buffer
    from replkernel.objects.cutting import CHUNK_BYTES
    from tests.support.notebook import changed, pair

    one, two = pair()
    one.namespace["model"] = model_of(card, size)
    two.take(one.capture(1))
    fetched: list[int] = []
    real = device_buffer.batches

    def watched(flat: Any, wanted: Any, chunk_bytes: int) -> Any:
        fetched.extend(wanted)
        return real(flat, wanted, chunk_bytes)

    device_buffer.batches = watched
    try:
        took = min(seconds(lambda number=number: one.capture(number)) for number in range(2, 5))
        unchanged = len(fetched)
        with torch.no_grad():
            one["model"][2].weight.add_(1)
        delta = one.capture(5)
    finally:
        device_buffer.batches = real
    layer = bytes_of(one["model"][2])
    shipped, chunks = (len(fetched) - unchanged) * CHUNK_BYTES, -(-layer // CHUNK_BYTES)
    whole = two.take(delta).failed == () and torch.equal(two["model"][2].weight, one["model"][2].weight)
    only = changed(delta) == ["model"] and len(fetched) - unchanged == chunks and whole
    return [
        Row(
            f"capture of an unchanged model of {size / 1e9:g} GB",
            "at most 0.1 s",
            f"{took:.3f} s" + (f", {unchanged} chunks copied" if unchanged else ""),
        ),
        Row(
            "one changed layer",
            "ships only its storages",
            f"{shipped / 1e6:.0f} MB of a layer with {layer / 1e6:.0f} MB"
            + ("" if only else " (NOT AS WANTED)"),
        ),
    ]


def notebookos(card: Card, size: int) -> Row:
    """Copy each parameter to the host after a cell and back before the next, as NotebookOS does."""
    model = model_of(card, size)

    def there_and_back() -> None:
        for parameter in model.parameters():
            host = parameter.data.detach().to("cpu", copy=True)
            parameter.data = card.put(host)
        card.finish()

    each = statistics.median(seconds(there_and_back) for _ in range(3))
    moved(card.backend.suspend())
    moved(card.backend.resume(card.backend.gpus))
    ours = min(
        moved(card.backend.suspend()).seconds + moved(card.backend.resume(card.backend.gpus)).seconds
        for _ in range(2)
    )
    return Row(
        f"every parameter to the host and back around each cell, {size / 1e9:g} GB (NotebookOS's way)",
        "compared",
        f"{each:.2f} s a cell; here nothing while it lingers, {ours:.2f} s when somebody wanted the GPU",
    )


def guarded(measure: Callable[[Card, int], Row | list[Row]], card: Card, size: int) -> list[Row]:
    """Return a measurement's rows, or the one that says why there are none."""
    try:
        made = measure(card, size)
    except Exception as error:  # The other rows are worth having.
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        made = Row((measure.__doc__ or "").split("\n")[0].rstrip("."), "", f"FAILED: {said}")
    gc.collect()
    return made if isinstance(made, list) else [made]
