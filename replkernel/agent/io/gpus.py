"""This host's GPUs and what they do: by NVML where it is there, simulated ones where they are asked for.

A reader blocks as long as the driver does: it is called from one thread of its own, never from the loop's.
Laws: a GPU that cannot be read is left out, and never takes the others with it. What could not be asked is
never told as gone: that is only what the driver counts no more, or has lost.
"""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from replkernel.errors import ReplkernelError
from replkernel.gpu.fake_usage import MEMORY_BYTES, PREFIX, read_usage
from replkernel.leasing.wire import GPUS_OF_HOST_MAX
from replkernel.protocol.status import GpuProcess, GpuStatus

log = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
UUIDS = ("GPU-", "MIG-")
PROCESSES_MAX = 256
READS_SKIPPED = 30
"""A machine without a working driver is asked again after 1, 2, 4 reads and so on, at last after so many."""
NO_LIBRARY, LOST = 12, 15
"""Errors of NVML: this machine has no driver, and a GPU is off its bus."""

ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
ORDER_LIMIT_S = 10.0
COUNT = """
import ctypes, uuid
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
for number in range(count.value):
    found, device = ctypes.create_string_buffer(16), ctypes.c_int()
    assert cuda.cuDeviceGet(ctypes.byref(device), number) == 0
    assert getattr(cuda, "cuDeviceGetUuid_v2")(found, device) == 0
    print(f"GPU-{uuid.UUID(bytes=found.raw)}")
"""
"""CUDA is asked in a process of its own: the agent never starts it."""


class GpusUnread(ReplkernelError):
    """The driver could not be asked: nobody knows what there is."""


class Reading(NamedTuple):
    """What was read; `whole`: what the host had before and is not among it is gone."""

    gpus: tuple[GpuStatus, ...]
    whole: bool = True


class GpuReader(Protocol):
    """Reads the GPUs that this host has to offer."""

    def read(self) -> Reading:
        """Return them as they are now; raises GpusUnread."""


class FakeGpus:
    """Simulated GPUs: leased, queued for and shown like real ones; what poses there takes their memory."""

    def __init__(self, host: str, count: int, env: Mapping[str, str] = MappingProxyType({})) -> None:
        self._env = dict(env)
        self._gpus = tuple(
            GpuStatus(
                f"{PREFIX}{host}-{number}",
                "Simulated GPU",
                MEMORY_BYTES,
                fake=True,
                utilisation=0.0,
                memory_used_bytes=0,
            )
            for number in range(min(count, GPUS_OF_HOST_MAX))
        )

    def read(self) -> Reading:
        """Return them, with what processes have put there."""
        return Reading(
            tuple(
                msgspec.structs.replace(
                    gpu,
                    memory_used_bytes=sum(used.values()),
                    processes=tuple(GpuProcess(pid, count) for pid, count in used.items()),
                )
                for gpu in self._gpus
                for used in (read_usage(gpu.uuid, self._env),)
            )
        )


class NvmlGpus:
    """The GPUs that the driver knows, of which `CUDA_VISIBLE_DEVICES` may name some."""

    def __init__(self, env: Mapping[str, str], order: Callable[[], tuple[str, ...]] | None = None) -> None:
        self._visible = env.get(VISIBLE)
        words = (self._visible or "").split(",")
        self._by_number = any(word.strip().isdecimal() for word in words)
        cudas = self._by_number and env.get(ORDER) != BY_BUS
        self._order = (order or partial(cudas_order, dict(env))) if cudas else None
        self._cudas: tuple[str, ...] | None = None
        self._nvml: Any = None
        self._chosen: set[str] = set()
        """What the numbers stood for when all GPUs were read last: one that is missing moves the others."""
        self._split: set[int] = set()
        """The numbers of the GPUs that were split when they were read last."""
        self._skip = self._skipped = 0
        self._why: GpusUnread | None = None
        """Why the driver could not be asked last; None while it works, or is not there at all."""
        self._said = ""

    def read(self) -> Reading:
        """Return them, none where there is no driver; raises GpusUnread where it does not work."""
        if self._skip:
            self._skip -= 1
            return self._unread()
        try:
            if self._nvml is None:
                nvml = importlib.import_module("pynvml")
                nvml.nvmlInit()
                self._nvml = nvml
            count = int(self._nvml.nvmlDeviceGetCount())
        except Exception as error:  # Whatever the library makes of a machine without a working driver.
            self._fails(error)
            return self._unread()
        self._skipped, self._why = 0, None
        read = [self._read_device(number) for number in range(min(count, GPUS_OF_HOST_MAX))]
        whole = all(each.whole for each in read)
        full = whole and all(each.gpus for each in read)
        found = self._visible_of([gpu for each in read for gpu in each.gpus], full, whole)
        return Reading(found[:GPUS_OF_HOST_MAX], whole)

    def _fails(self, error: Exception) -> None:
        """Take note of a driver that could not be asked, and wait longer each time."""
        there = not isinstance(error, ImportError) and getattr(error, "value", None) != NO_LIBRARY
        self._skipped = min(READS_SKIPPED, 2 * self._skipped or 1) if there else READS_SKIPPED
        self._nvml, self._skip = None, self._skipped
        why = f"The GPUs' driver does not work ({error}): the scheduler keeps what it knows of them."
        self._why = GpusUnread(why) if there else None
        if not there:
            self._say(f"no GPUs: {error}")

    def _unread(self) -> Reading:
        if self._why is not None:
            raise self._why
        return Reading(())

    def _visible_of(self, found: list[GpuStatus], full: bool, whole: bool) -> tuple[GpuStatus, ...]:
        """Return what `CUDA_VISIBLE_DEVICES` leaves; `full`: no GPU is missing."""
        if full or not self._by_number:
            left = tuple(chosen(self._as_cuda_counts(found), self._visible, full=full))
            self._chosen = {gpu.uuid for gpu in left}
            return left
        if self._chosen:
            return tuple(gpu for gpu in found if gpu.uuid in self._chosen)
        if whole:
            return tuple(chosen(self._as_cuda_counts(found), self._visible))
        raise GpusUnread(f"{VISIBLE} names GPUs by number, and not all of them can be read.")

    def _as_cuda_counts(self, found: list[GpuStatus]) -> list[GpuStatus]:
        """Return GPUs in the order in which CUDA counts them, where numbers name some and it has one."""
        if self._order is None or len({gpu.name for gpu in found}) < 2:
            return found  # Of one model, CUDA is reported to count as NVML does: by bus.
        if self._cudas is None:
            self._cudas = self._order()
            if not self._cudas:
                log.warning(
                    "CUDA does not tell its order: %s counts GPUs by bus; set %s=%s", VISIBLE, ORDER, BY_BUS
                )
        places = {uuid: place for place, uuid in enumerate(self._cudas)}
        return sorted(found, key=lambda gpu: places.get(gpu.uuid, len(places)))

    def _read_device(self, number: int) -> Reading:
        """Return one GPU, or the parts that it is split into."""
        nvml, found = self._nvml, list[GpuStatus]()
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            parts = list(self._parts(handle, number))
            (self._split.add if parts else self._split.discard)(number)
            name = _text(nvml.nvmlDeviceGetName(handle))
            for part in parts or [handle]:
                memory_bytes, used_bytes = self._memory(part)
                gpu = GpuStatus(
                    uuid=_text(nvml.nvmlDeviceGetUUID(part)),
                    name=name,
                    memory_bytes=memory_bytes,
                    utilisation=None if parts else self._utilisation(handle),
                    memory_used_bytes=used_bytes,
                    processes=self._processes(part),
                )
                found.append(gpu)
        except Exception as error:  # Lost on its bus, or not ours to read.
            self._say(f"GPU {number} cannot be read: {error}", logging.WARNING)
            return Reading(tuple(found), whole=getattr(error, "value", None) == LOST)
        return Reading(tuple(found))

    def _memory(self, handle: Any) -> tuple[int, int]:
        """Return the bytes that processes may take of a GPU, and those in use.

        What the driver keeps for itself counts as neither, where it tells: half a GiB of an H100.
        """
        nvml = self._nvml
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
            return int(memory.total) - int(memory.reserved), int(memory.used)
        except Exception:  # A driver or binding before that, or a part of a GPU.
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            return int(memory.total), int(memory.used)

    def _parts(self, handle: Any, number: int) -> Iterator[Any]:
        """Yield the MIG instances of a GPU that is split; raises if one that was cannot be asked."""
        nvml = self._nvml
        try:
            if not nvml.nvmlDeviceGetMigMode(handle)[0]:
                return
            most = int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
        except Exception:  # Most models cannot be split.
            if number in self._split:
                raise
            return
        for place in range(most):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            except Exception:  # Places between instances are empty.
                continue
            yield part

    def _processes(self, handle: object) -> tuple[GpuProcess, ...]:
        """Return who computes on it, where the driver tells, and the memory of each (0: it does not tell)."""
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            return tuple(
                GpuProcess(int(each.pid), int(each.usedGpuMemory or 0)) for each in running[:PROCESSES_MAX]
            )
        except Exception:  # Not told by every driver, nor in every container.
            return ()

    def _utilisation(self, handle: object) -> float | None:
        """Return how much it computes, 0 to 1, where the driver tells."""
        try:
            return min(1.0, max(0.0, float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100))
        except Exception:  # Not told by every model.
            return None

    def _say(self, what: str, level: int = logging.INFO) -> None:
        if what != self._said:
            self._said = what
            log.log(level, "%s", what)


def chosen(gpus: list[GpuStatus], visible: str | None, *, full: bool = True) -> Iterator[GpuStatus]:
    """Yield what `CUDA_VISIBLE_DEVICES` leaves: by number or UUID, up to the first word that is neither.

    Not `full`: a UUID that is not there may be of a GPU that is missing, and ends nothing.
    """
    if visible is None:
        yield from gpus
        return
    taken: set[str] = set()
    for word in (part.strip() for part in visible.split(",")):
        if word.isascii() and word.isdecimal():
            matching = gpus[int(word) :][:1] if len(word) < 9 else []
        else:
            matching = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)][:1]
        if not matching and not full and word.startswith(UUIDS):
            continue
        if not matching:
            return
        if matching[0].uuid not in taken:
            taken.add(matching[0].uuid)
            yield matching[0]


def cudas_order(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs' UUIDs as CUDA counts them, its fastest first; nothing where it does not tell."""
    seen = {name: value for name, value in env.items() if name != VISIBLE}
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", COUNT],
            env=seen,
            capture_output=True,
            text=True,
            check=True,
            timeout=ORDER_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(ran.stdout.split())


def gpu_reader(host: str, fake: int, env: Mapping[str, str]) -> GpuReader:
    """Return the reader of `fake` simulated GPUs, or of the real ones when none are simulated."""
    return FakeGpus(host, fake, env) if fake else NvmlGpus(env)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
