"""What the system says of a process's use of GPUs: the devices that it has open, and what NVML has under it.

Light: torch is never imported and CUDA never started from here. Law: nothing here raises; where the system
does not tell, that is said (None) and never taken for nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DEVICES = Path("/dev")
PROC = Path("/proc")
CUDA_13 = 13_000
FOREIGN = ("cupy", "jax", "tensorflow", "numba.cuda", "cudf", "rmm", "pycuda", "paddle", "mxnet")
"""Libraries whose arrays on a GPU only the driver could move: where one is imported, it may have some."""
LIBRARIES = (*FOREIGN, "onnxruntime")
"""What may use CUDA by itself, beside torch; `cuda.core` is not among them, for we ask the driver by it."""


def has_driver() -> bool:
    """Tell whether this machine has NVIDIA's driver."""
    return os.path.exists(f"{DEVICES}/nvidiactl")


def devices_open(pid: int | None = None) -> frozenset[str] | None:
    """Return the names of NVIDIA's devices that a process (this one) has open; None where it is not told."""
    if not has_driver():
        return frozenset()  # Nothing to look through.
    prefix, found, told = f"{DEVICES}/nvidia", set(), 0
    folder = _folder(pid) / "fd"
    try:
        numbers = os.listdir(folder)
    except OSError:
        return None
    for number in numbers:
        try:
            target = os.readlink(folder / number)
        except OSError:  # Closed meanwhile, or not ours to read.
            continue
        told += 1
        if target.startswith(prefix):
            found.add(target.removeprefix(f"{DEVICES}/"))
    return frozenset(found) if told or not numbers else None


def libraries_loaded(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the libraries that may use CUDA and are imported."""
    known = set(modules)
    return tuple(name for name in LIBRARIES if name in known)


def bytes_by_gpu(pid: int | None = None) -> dict[str, int] | None:
    """Return the bytes that NVML has under a process (this one) on each GPU; None where it tells nothing.

    A GPU that the process is on with an amount that is not told counts with 0.
    """
    found = bytes_by_process()
    return None if found is None else found.get(os.getpid() if pid is None else pid, {})


def bytes_by_process() -> dict[int, dict[str, int]] | None:
    """Return the bytes that NVML has under each process on each GPU; None where it tells nothing."""
    found: dict[int, dict[str, int]] = {}
    try:
        nvml, handles = _nvml()
        for handle in handles:
            running = [
                *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
                *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
            ]
            gpu = text(nvml.nvmlDeviceGetUUID(handle)) if running else ""
            for each in running:
                held = found.setdefault(int(each.pid), {})
                held[gpu] = max(held.get(gpu, 0), int(each.usedGpuMemory or 0))
    except Exception:  # No library, no driver, no right to know.
        return None
    return found


def free_by_gpu() -> dict[str, int]:
    """Return the bytes that are free on each GPU; nothing of those that NVML does not tell of."""
    found = dict[str, int]()
    with contextlib.suppress(Exception):  # No library, no driver.
        nvml, handles = _nvml()
        for handle in handles:
            found[text(nvml.nvmlDeviceGetUUID(handle))] = int(nvml.nvmlDeviceGetMemoryInfo(handle).free)
    return found


def uvm_mappings(pid: int | None = None) -> int | None:
    """Return how often a process (this one) maps the device of managed memory; None where it is not told."""
    device = f"{DEVICES}/nvidia-uvm"
    try:
        lines = (_folder(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return sum(line.endswith(device) for line in lines)


def thread_names(pid: int | None = None) -> tuple[str, ...]:
    """Return the names of a process's (this one's) threads, those that libraries have started among them."""
    found = []
    with contextlib.suppress(OSError):
        for folder in (_folder(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                found.append((folder / "comm").read_text(errors="replace").strip())
    return tuple(sorted(found))


def shared_storages() -> int:
    """Return how many of torch's storages on a GPU this process has from, or has given to, others."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    if reductions is None:
        return 0
    known = dict(vars(reductions)["shared_cache"])
    return sum(_is_cudas(handle) and not ref.expired() for handle, ref in known.items())


def _is_cudas(handle: object) -> bool:
    """Tell a handle of CUDA's, with or without an offset, from a file's path and from its two numbers."""
    first = handle[0] if isinstance(handle, tuple) and handle else handle
    return isinstance(first, bytes) and not first.startswith(b"/")


def models() -> dict[str, str]:
    """Return the models of all GPUs that the driver knows, by UUID; nothing where NVML does not tell."""
    try:
        nvml, handles = _nvml()
        return {text(nvml.nvmlDeviceGetUUID(each)): text(nvml.nvmlDeviceGetName(each)) for each in handles}
    except Exception:  # Whatever the library makes of a machine without a working driver.
        return {}


def extra() -> str:
    """Return the extra of this package whose libraries suit the driver: CUDA 13's want 580 or later."""
    try:
        version = int(_nvml()[0].nvmlSystemGetCudaDriverVersion())
    except Exception:  # No library, no driver.
        return "gpu"
    return "gpu-cu13" if version >= CUDA_13 else "gpu-cu12"


def _folder(pid: int | None) -> Path:
    return PROC / ("self" if pid is None else str(pid))


def _nvml() -> tuple[Any, Iterator[Any]]:
    """Return the library, and the driver's GPUs one by one; raises what that raises, or ImportError."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    return nvml, map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))


def text(value: str | bytes) -> str:
    """Return what NVML's functions give, which is bytes in older releases."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
