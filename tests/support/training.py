"""A small training for tests of jobs: by numpy, the same on any number of GPUs, saved when it is asked to.

`python training.py EPOCHS PACE_S [GATE]`. It holds a lock on a file of its directory, so that nothing runs
twice. The last epoch begins when there is a file GATE, so that a test finds it alive until then.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

import numpy as np

from replkernel import job


def main(epochs: int, pace_s: float, gate: str = "") -> None:
    """Train, and print the loss last."""
    lock = open("lock", "w")  # noqa: SIM115 - held for life
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("TWICE")
        sys.exit(3)
    dice = np.random.default_rng(0)
    inputs = dice.normal(size=(256, 4))
    wanted = inputs @ np.array([1.0, -2.0, 3.0, 0.5])
    weights, first, loss = np.zeros(4), 0, 0.0
    if job.checkpoint_path.exists():
        kept = json.loads(job.checkpoint_path.read_text())
        weights, first = np.array(kept["weights"]), kept["epoch"]
    print(f"BEGINS epoch={first} gpus={job.gpus} pid={os.getpid()}")
    for epoch in range(first, epochs):
        while gate and epoch == epochs - 1 and not os.path.exists(gate):
            time.sleep(0.02)
        weights = weights - 0.01 * 2 * inputs.T @ (inputs @ weights - wanted) / len(inputs)
        loss = float(np.mean((inputs @ weights - wanted) ** 2))
        time.sleep(pace_s)
        job.progress(epoch + 1, loss)
        if job.should_checkpoint() or epoch % 10 == 9:
            fresh = job.checkpoint_path.with_suffix(".new")
            fresh.write_text(json.dumps({"weights": weights.tolist(), "epoch": epoch + 1}))
            fresh.replace(job.checkpoint_path)
    print(f"LOSS {loss!r}")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
