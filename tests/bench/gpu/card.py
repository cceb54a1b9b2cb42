"""The device that is measured: a real GPU, or host memory that poses as one: then all of it runs anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from replkernel.gpu.backend import Backend, Moved, Outcome

TAKE_ALL = """
import torch
free, _ = torch.cuda.mem_get_info()
x = torch.empty(int(free * 0.95), dtype=torch.uint8, device="cuda").fill_(7)
print(int(x[-1]))
"""
PRETENDED = "GPU-fake-bench-0"


class Card(Protocol):
    """One device, and the backend that keeps this process's state there."""

    backend: Backend
    settings: dict[str, str]
    """What a kernel's environment needs to have such a device."""
    cells: int
    """So many cells make a figure."""

    def described(self) -> str:
        """Name it, with its driver."""

    def put(self, value: Any) -> Any:
        """Put a tensor or a model on it."""

    def finish(self) -> None:
        """Wait until it has nothing to do."""

    def copy_gb_s(self, size: int) -> float:
        """Return how fast plain bytes leave it for the fastest memory of the host, in GB/s."""

    def taken_by_another(self) -> str:
        """Have another process take all of it; return what went wrong."""


class Real:
    """The first GPU that torch sees."""

    def __init__(self) -> None:
        import torch

        from replkernel.gpu.cuda import CudaBackend

        self._torch: Any = torch
        self._cuda: Any = torch.cuda
        self._cuda.init()
        made = CudaBackend()
        made.bind(made.gpus or ("GPU-0",))
        self.backend: Backend = made
        self.settings: dict[str, str] = {}
        self.cells = 30

    def described(self) -> str:
        """Return ``NVIDIA H100 80GB HBM3, driver 580.65, torch 2.13.0``."""
        properties = self._cuda.get_device_properties(0)
        return f"{properties.name}, driver {_driver()}, torch {self._torch.__version__}"

    def put(self, value: Any) -> Any:
        """Put it there."""
        return value.cuda()

    def finish(self) -> None:
        """Wait for it."""
        self._cuda.synchronize()

    def copy_gb_s(self, size: int) -> float:
        """Copy into pinned memory, twice: the first copy may start something."""
        here = self._torch.empty(size, dtype=self._torch.uint8, device="cuda").fill_(3)
        pinned = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)

        def copy() -> None:
            pinned.copy_(here, non_blocking=True)
            self.finish()

        self.finish()
        return size / min(seconds(copy) for _ in range(3)) / 1e9

    def taken_by_another(self) -> str:
        """Have a process of its own fill it."""
        ran = subprocess.run([sys.executable, "-c", TAKE_ALL], capture_output=True, text=True, check=False)
        return "" if ran.stdout.strip() == "7" else ran.stderr.strip()[-300:]


class Pretended:
    """Host memory: its figures say nothing of a GPU, only that everything runs through."""

    def __init__(self) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = PRETENDED
        import torch

        from replkernel.gpu import fake

        self._torch: Any = torch
        self._put = fake.put
        self.backend: Backend = fake.fake_backend()
        self.backend.bind((PRETENDED,))
        self.settings = {"REPLKERNEL_FAKE_GPUS": "1"}
        self.cells = 5

    def described(self) -> str:
        """Say that there is none."""
        return f"pretended GPU (host memory), torch {self._torch.__version__}"

    def put(self, value: Any) -> Any:
        """Have it pose."""
        return self._put(value)

    def finish(self) -> None:
        """Nothing goes on beside."""

    def copy_gb_s(self, size: int) -> float:
        """Copy in host memory."""
        here, there = (self._torch.ones(size, dtype=self._torch.uint8) for _ in range(2))
        return size / min(seconds(lambda: there.copy_(here)) for _ in range(3)) / 1e9

    def taken_by_another(self) -> str:
        """Say what is seen from outside: nothing of this process is left there."""
        from replkernel.gpu.fake_usage import read_usage

        left = read_usage(PRETENDED, os.environ).get(os.getpid(), 0)
        return f"{left} bytes are still there" if left else ""


def seconds(what: Callable[[], Any]) -> float:
    """Return how long it takes."""
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def moved(outcome: Outcome) -> Moved:
    """Return what was moved; raises RuntimeError where nothing was, with the reason."""
    if not isinstance(outcome, Moved):
        raise RuntimeError(outcome.why)
    return outcome


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)
    except Exception:  # Whatever the library makes of a driver that does not tell.
        return "unknown"
