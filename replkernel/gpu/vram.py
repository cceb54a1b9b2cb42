"""How much of each GPU's memory this process may take: what its cell asked for, where that is a limit.

torch's allocator keeps it, for what it reserves; other libraries know none. Law: torch is never imported
and CUDA never started from here; who was never limited keeps what the notebook itself has set.
"""

from __future__ import annotations

import sys
from typing import Any

_pretended = [0]


def pretended_limit() -> int:
    """Return what holds for pretended GPUs that are met from now on."""
    return _pretended[0]


class VramLimit:
    """One process's limit."""

    def __init__(self) -> None:
        self._bytes = 0
        self._used = False
        """Whether there ever was one, so that it has to be kept, or taken away."""
        self._queued = False

    def set(self, count: int) -> None:
        """Allow so many bytes of each GPU from now on; 0: all of it."""
        self._bytes, self._used = count, self._used or count > 0
        _pretended[0] = count
        fake = sys.modules.get("replkernel.gpu.fake")
        if fake is not None and self._used:
            vars(fake)["fake_backend"]().limit = count
        self.keep()

    def keep(self) -> None:
        """Have torch know it: now, or when CUDA starts. Called again once torch has been imported."""
        cuda: Any = sys.modules.get("torch.cuda")
        if cuda is None or not self._used or "_lazy_call" not in vars(cuda):
            return
        if vars(cuda).get("_initialized", False):
            self._put()
        elif not self._queued:
            self._queued = True
            cuda._lazy_call(self._put)

    def _put(self) -> None:
        cuda: Any = sys.modules["torch.cuda"]
        for index in range(cuda.device_count()):
            total = int(cuda.get_device_properties(index).total_memory)
            fraction = min(1.0, self._bytes / total) if self._bytes else 1.0
            cuda.set_per_process_memory_fraction(fraction, index)
