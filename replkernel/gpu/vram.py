"""How much of each GPU's memory this process may take: what its cell asked for, where that is a limit.

torch's allocator keeps it, for what it reserves; other libraries know none. Law: torch is never imported
and CUDA never started from here; who was never limited keeps what the notebook itself has set.
"""

from __future__ import annotations

import sys

PROCESS_BYTES = 2**29
"""So much of a card CUDA takes for each process, before anything is put there."""
GIB = 2**30
_pretended = [0]


def pretended_limit() -> int:
    """Return what holds for pretended GPUs that are met from now on."""
    return _pretended[0]


class VramLimit:
    """One process's limit."""

    def __init__(self) -> None:
        self._bytes = 0
        self._shared = False
        self._used = False
        """Whether there ever was one, so that it has to be kept, or taken away."""
        self._queued = False

    def set(self, count: int, *, shared: bool = False) -> None:
        """Allow so many bytes of each GPU from now on; 0: all of it. `shared`: the rest is others'."""
        self._bytes, self._shared, self._used = count, shared, self._used or count > 0
        _pretended[0] = count
        fake = sys.modules.get("replkernel.gpu.fake")
        if fake is not None and self._used:
            vars(fake)["fake_backend"]().limit = count
        self.keep()

    def keep(self) -> None:
        """Have torch know it: now, or when CUDA starts. Called again once torch has been imported."""
        cuda = sys.modules.get("torch.cuda")
        if cuda is None or not self._used or "_lazy_call" not in vars(cuda):
            return
        if vars(cuda).get("_initialized", False):
            self._put()
        elif not self._queued:
            self._queued = True
            cuda._lazy_call(self._put)

    def _put(self) -> None:
        cuda = sys.modules["torch.cuda"]
        for index in range(cuda.device_count()):
            total = int(cuda.get_device_properties(index).total_memory)
            bound = of_part(self._bytes, total) if self._shared else self._bytes
            fraction = min(1.0, bound / total) if bound else 1.0
            cuda.set_per_process_memory_fraction(fraction, index)
            if bound and cuda.memory_reserved(index) > bound:
                cuda.empty_cache()  # What torch keeps for later would stay beside others.


def of_part(count: int, total: int) -> int:
    """Return what torch may take of a part of `count` bytes, on a card that has `total` in truth.

    CUDA's own share comes off the part. Older agents offered the next whole number of GiB.
    """
    real = min(count, total)
    return max(real - PROCESS_BYTES, real // 2)
