"""A training by torch for tests of jobs. Its batch is split among its GPUs, whose gradients are averaged.

`python torch_training.py EPOCHS`. An epoch takes the seconds of the file `pace_s` on one GPU, less on more.
It prints every epoch with its loss, holds a lock so that nothing runs twice, and saves when it is asked to.
"""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from replkernel import job

SPEED_UP = 0.9
"""What each doubling keeps of twice the speed, as the scheduler guesses."""


class Momentum:
    """Gradient descent with momentum. Torch's own imports its compiler: a second of each start."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float) -> None:
        self._parameters = list(parameters)
        self._lr, self._momentum = lr, momentum
        self._speeds = [torch.zeros_like(each) for each in self._parameters]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for each in self._parameters:
            each.grad = None

    def step(self) -> None:
        """Go one step."""
        with torch.no_grad():
            for each, speed in zip(self._parameters, self._speeds, strict=True):
                assert each.grad is not None
                speed.mul_(self._momentum).add_(each.grad)
                each.sub_(speed, alpha=self._lr)

    def state_dict(self) -> list[torch.Tensor]:
        """Return what a checkpoint keeps of it."""
        return self._speeds

    def load_state_dict(self, kept: list[torch.Tensor]) -> None:
        """Go on from a checkpoint."""
        self._speeds = kept


def batches(epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples of an epoch, the same in every run."""
    dice = torch.Generator().manual_seed(epoch)
    inputs = torch.randn(64, 8, generator=dice)
    return inputs, 0.5 * inputs[:, :1] - inputs[:, 1:2]


def main(epochs: int) -> None:
    """Train, and print the loss last."""
    torch.set_num_threads(1)
    gpus = max(1, job.gpus)
    lock = open("lock", "w")  # noqa: SIM115 - held for life
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("TWICE")
        sys.exit(3)
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    steps = Momentum(model.parameters(), lr=0.05, momentum=0.9)
    first, loss = 0, 0.0
    if job.checkpoint_path.exists():
        kept = torch.load(job.checkpoint_path, weights_only=True)
        model.load_state_dict(kept["model"])
        steps.load_state_dict(kept["steps"])
        first, loss = kept["epoch"], kept["loss"]
    print(f"BEGINS epoch={first} gpus={job.gpus}", flush=True)
    for epoch in range(first, epochs):
        inputs, wanted = batches(epoch)
        steps.zero_grad()
        loss = 0.0
        for own, own_wanted in zip(inputs.chunk(gpus), wanted.chunk(gpus), strict=True):
            share = nn.functional.mse_loss(model(own), own_wanted) / gpus
            share.backward()  # type: ignore[no-untyped-call]
            loss += share.item()
        steps.step()
        time.sleep(_pace_s() / (2 * SPEED_UP) ** (gpus.bit_length() - 1))
        print(f"EPOCH {epoch} gpus={gpus} loss={loss:.6f}", flush=True)
        job.progress(epoch + 1, loss)
        if job.should_checkpoint():
            fresh = job.checkpoint_path.with_suffix(".new")
            state = {
                "model": model.state_dict(),
                "steps": steps.state_dict(),
                "epoch": epoch + 1,
                "loss": loss,
            }
            torch.save(state, fresh)
            fresh.replace(job.checkpoint_path)
            job.progress(epoch + 1, loss)  # It is saved: what comes now may be trained again.
    print(f"LOSS {loss:.6f}")


def _pace_s() -> float:
    try:
        return float(Path("pace_s").read_text() or 0)
    except OSError:
        return 0.0


if __name__ == "__main__":
    main(int(sys.argv[1]))
