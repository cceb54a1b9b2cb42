"""The GPUs that a host's status names: by NVML where it is there, pretended ones where they are asked for."""

from __future__ import annotations

import contextlib
import importlib
import logging
from typing import Any

from replkernel.status import GpuStatus

log = logging.getLogger(__name__)

FAKE_MEMORY_BYTES = 16 * 2**30


def list_gpus(host: str, fake: int) -> tuple[GpuStatus, ...]:
    """Return this host's GPUs, or `fake` pretended ones; blocks a little where there is a driver."""
    if fake:
        return tuple(
            GpuStatus(f"GPU-fake-{host}-{number}", "Pretended GPU", FAKE_MEMORY_BYTES, fake=True)
            for number in range(fake)
        )
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # No library, no driver, or one that does not work: then no GPUs.
        log.info("no GPUs: %s", error)
        return ()
    with contextlib.closing(_Shutdown(nvml)):
        return tuple(_read(nvml, number) for number in range(nvml.nvmlDeviceGetCount()))


class _Shutdown:
    def __init__(self, nvml: Any) -> None:
        self.close = nvml.nvmlShutdown


def _read(nvml: Any, number: int) -> GpuStatus:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuStatus(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(memory.total),
    )


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
