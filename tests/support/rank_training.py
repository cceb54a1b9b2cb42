"""A training in several processes, one a GPU, for tests of jobs.

`torchrun rank_training.py EPOCHS PACE_S EVERY`.

The first process alone asks whether to save, and tells the others. Gradients are averaged by gloo. It saves
after each EVERY epochs, too (0: never).
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

from replkernel import job


def main(epochs: int, pace_s: float, every: int) -> None:
    """Train; the first process prints what it sees, the others that they have begun."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    weights, first = torch.zeros(4), 0
    if job.checkpoint_path.exists():
        kept = torch.load(job.checkpoint_path, weights_only=True)
        weights, first = kept["weights"], kept["epoch"]
    if rank == 0:
        print(f"BEGINS epoch={first} ranks={ranks} gpus={os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
    else:
        print(f"RANK {rank} begins", flush=True)
    dice = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 4, generator=dice)
    wanted = inputs @ torch.tensor([1.0, -2.0, 3.0, 0.5])
    own, own_wanted = inputs.chunk(ranks)[rank], wanted.chunk(ranks)[rank]
    loss = 0.0
    for epoch in range(first, epochs):
        slope = 2 * own.T @ (own @ weights - own_wanted) / len(own)
        dist.all_reduce(slope)
        weights = weights - 0.05 * slope / ranks
        loss = float(((inputs @ weights - wanted) ** 2).mean())
        time.sleep(pace_s)
        job.progress(epoch + 1, loss)
        told = [job.should_checkpoint() if rank == 0 else None]
        dist.broadcast_object_list(told)
        if rank == 0 and (told[0] or (every and not (epoch + 1) % every)):
            fresh = job.checkpoint_path.with_suffix(".new")
            torch.save({"weights": weights, "epoch": epoch + 1}, fresh)
            fresh.replace(job.checkpoint_path)
        if rank == 0:
            print(f"AT {epoch} {loss:.9f}\nEPOCH {epoch}", flush=True)
    if rank == 0:
        print(f"LOSS {loss:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
