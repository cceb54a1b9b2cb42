"""Which GPUs the process sees: those of the running cell's lease, and none between leases.

It only sets `CUDA_VISIBLE_DEVICES`, which CUDA reads once, when it starts. Law: without a scheduler nothing
is touched; once CUDA has started the variable is left alone, for it would only tell child processes
otherwise, and a cell whose lease is on other GPUs than CUDA has is told so.
"""

from __future__ import annotations

import os
import sys

from replkernel.gpu.door import HIDDEN

VARIABLE = "CUDA_VISIBLE_DEVICES"
NONE = "-1"
"""No device has this number; some programs take an empty value for none set."""
TORCH_LOOKS = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With this, `torch.cuda.is_available()` looks without starting CUDA, which would settle it for good."""


def cuda_has_started() -> bool:
    """Tell whether torch has started CUDA in this process; torch is not imported for that."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    started = getattr(cuda, "is_initialized", None)
    return bool(started is not None and started())


class VisibleGpus:
    """One process's GPUs, cell by cell."""

    def __init__(self) -> None:
        self._lent: tuple[str, ...] | None = None
        """What was last lent before CUDA had started; None: the variable is the user's own."""
        self._own: str | None = None
        """What the variable was before anything was lent."""
        self._told: tuple[str, ...] = ()

    def lend(self, gpus: tuple[str, ...] | None) -> str:
        """Have the cell that begins see these GPUs (None: what there is); return what its user must know."""
        if gpus is None and self._lent is None:
            return ""
        if not cuda_has_started():
            self._give(gpus)
            return ""
        if not gpus or gpus == self._lent or gpus == self._told:
            return ""
        self._told = gpus
        had = ", ".join(self._lent or ()) or "what was visible then"
        return (
            f"CUDA was started in this process with {had}, and this cell's lease is on {', '.join(gpus)}: "
            "CUDA keeps what it was started with until the kernel is restarted."
        )

    @property
    def hidden(self) -> bool:
        """Whether there are GPUs for those alone who have a lease, and nobody here has one."""
        return self._lent == ()

    def _give(self, gpus: tuple[str, ...] | None) -> None:
        if self._lent is None:
            self._own = os.environ.get(VARIABLE)
        self._lent = gpus
        _set(VARIABLE, self._own if gpus is None else ",".join(gpus) or NONE)
        _set(HIDDEN, "1" if gpus == () else None)
        os.environ.setdefault(TORCH_LOOKS, "1")

    def take_back(self) -> None:
        """Have no GPU seen until the next lease, unless CUDA was started under this one."""
        if self._lent and not cuda_has_started():
            self._give(())


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    elif os.environ.get(name) != value:
        os.environ[name] = value
