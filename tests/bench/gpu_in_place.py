"""How fast a gigabyte leaves a GPU in place and comes back, against moving as many bytes by plain memcpy.

The pretended backend runs the code of the real one; its "device" is host memory. To move is to copy into
memory that is fresh from the system and to give the old back, each way; the plain move does that with one
block. Copies alone, into fresh memory and into memory that is there already, are told beside.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from tests.bench.report import Result

TOTAL_BYTES = 10**9
TENSORS = 40
ROUNDS = 7


def measure() -> Result:
    """Alternate, so that what else the machine does meets both."""
    import torch

    gpu = "GPU-fake-bench-0"
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"JUPYTER_DATA_DIR": directory, "CUDA_VISIBLE_DEVICES": gpu}
        from replkernel.gpu import fake

        tensors = [fake.put(torch.ones(TOTAL_BYTES // TENSORS // 4)) for _ in range(TENSORS)]
        backend = fake.fake_backend()
        block = [torch.ones(TOTAL_BYTES, dtype=torch.uint8)]
        off, back, plain_off, plain_back, fresh, warm = [], [], [], [], [], []
        for _ in range(ROUNDS):
            off.append(_seconds(backend.suspend))
            back.append(_seconds(lambda: backend.resume((gpu,))))
            plain_off.append(_seconds(lambda: _move(torch, block)))
            plain_back.append(_seconds(lambda: _move(torch, block)))
            fresh.append(_seconds(lambda: block.append(torch.empty_like(block[0]).copy_(block[0]))))
            warm.append(_seconds(lambda: block[1].copy_(block[0])))
            del block[1]
        whole = all(float(each[-1]) == 1.0 for each in tensors)
    ours = [(one + other) * 1000 for one, other in zip(off, back, strict=True)]
    plain = [(one + other) * 1000 for one, other in zip(plain_off, plain_back, strict=True)]
    details = {
        "bytes": TOTAL_BYTES,
        "tensors": TENSORS,
        "GB/s off, back": [TOTAL_BYTES / 1e9 / min(off), TOTAL_BYTES / 1e9 / min(back)],
        "GB/s moved by memcpy off, back": [
            TOTAL_BYTES / 1e9 / min(plain_off),
            TOTAL_BYTES / 1e9 / min(plain_back),
        ],
        "GB/s copied into fresh memory": TOTAL_BYTES / 1e9 / min(fresh),
        "GB/s copied into memory that is there": TOTAL_BYTES / 1e9 / min(warm),
        "values are right": whole,
    }
    goal = "at least 70 % of memcpy: a ratio of 1.43 at most"
    return Result("gpu_in_place", "ms for 1 GB off and back", ours, plain, goal, details)


def _move(torch: Any, block: list[Any]) -> None:
    block[0] = torch.empty_like(block[0]).copy_(block[0])


def _seconds(what: Any) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began
