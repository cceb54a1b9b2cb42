"""This process's checkpoint by the CUDA driver: all that is on its GPUs, of any library, with contexts.

`cuda.core.checkpoint` (extra `gpu`; driver 570 and later) locks the process's CUDA calls, copies device
memory to the host and lets go of the GPUs; calls of other threads block meanwhile and go on after. Law: what
fails half-way is taken back before it is told; a process whose state is off makes no CUDA call of its own.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from replkernel.gpu import seen
from replkernel.gpu.host_memory import free_bytes
from replkernel.gpu.preflight import Facts, no_room, refusal

LOCK_TIMEOUT_MS = 10_000
"""Kernels that run are waited for no longer than this: then the process goes on as it was."""
ROOM_WAIT_S = 10.0
"""So long a GPU may take to get empty enough for what comes back: who had it may be leaving still."""
ROOM_LOOK_S = 0.25
RESTORES_MAX = 3
"""A process that the driver has failed to restore so often is given up."""


def this_process() -> Any:
    """Return this process as the driver can checkpoint it; raises what the library makes of a lack."""
    return importlib.import_module("cuda.core.checkpoint").Process(os.getpid())


_asked: list[DriverCheckpoint] = []


def has_this_process() -> bool:
    """Tell whether the driver has this process's state: who lets go of an event then waits for ever."""
    return any(each.is_off for each in _asked)


class DriverCheckpoint:
    """One process's. `off` and `back` return why they could not, or nothing."""

    def __init__(
        self,
        process: Callable[[], Any] = this_process,
        machine: Callable[[], dict[str, str]] = seen.models,
    ) -> None:
        self._find = process
        self._machine = machine
        self._process: Any = None
        self._refused = ""
        """Why this process is not asked again."""
        self._maps = True
        self._had: dict[str, int] = {}
        """The bytes that were on each GPU, where NVML has told."""
        self._failures = 0
        self.is_off = False
        """Whether the driver has the state, or keeps CUDA calls of this process waiting."""
        self.stuck = ""
        """Why that will be so until the process ends: then another one has to take over."""

    def off(self, size: int, gpus: Iterable[str]) -> str:
        """Take all of this process, about `size` bytes, off its GPUs."""
        why = self._refused or self._cannot(size, gpus)
        if why:
            return why
        _asked[:] = [self]
        self._had = seen.bytes_by_gpu() or {}
        try:
            self._process = self._process or self._find()
            self._process.lock(timeout_ms=LOCK_TIMEOUT_MS)
        except Exception as error:  # No library, no such driver, kernels that run on.
            return self._say("the driver cannot suspend this process", error)
        try:
            self._process.checkpoint()
        except Exception as error:
            self.is_off = True
            return self._say("the driver could not copy this process's GPU memory", error, self._go_on())
        self.is_off = True
        return ""

    def back(self, mapping: dict[str, str]) -> str:
        """Bring all back, from GPUs (the keys) to others of their model; empty: to where it was."""
        why = self.stuck or self._await_room(mapping)
        if why:
            return why
        try:
            self._process.restore(gpu_mapping=mapping or None)
        except Exception as error:
            self._maps = self._maps and not mapping
            self._failures += 1
            why = self._say("the driver could not bring this process back to the GPU", error)
            self.stuck = why if self._has_failed() or self._failures >= RESTORES_MAX else ""
            return why
        self._failures = 0
        return self._go_on()

    def _await_room(self, mapping: dict[str, str]) -> str:
        """Wait until the GPUs have room for what comes back; say so where that takes too long."""
        deadline = time.monotonic() + ROOM_WAIT_S
        needed = {f"GPU-{mapping[bare(gpu)]}" if mapping else gpu: had for gpu, had in self._had.items()}
        while why := no_room(needed, seen.free_by_gpu() if needed else {}):
            if time.monotonic() >= deadline:
                return why
            time.sleep(ROOM_LOOK_S)
        return ""

    def _cannot(self, size: int, gpus: Iterable[str]) -> str:
        threads, mappings = seen.thread_names(), seen.uvm_mappings()
        return refusal(Facts(tuple(gpus), size, free_bytes(), mappings, threads, seen.shared_storages()))

    def _go_on(self) -> str:
        """Let CUDA calls through again; return what keeps that from being, which nothing can mend."""
        try:
            self._process.unlock()
        except Exception as error:
            self.stuck = self._say("the driver does not let this process go on", error)
            return self.stuck
        self.is_off = False
        return ""

    def _has_failed(self) -> bool:
        """Tell whether the driver says that nothing can be made of this process any more."""
        try:
            return bool(self._process.state == "failed")
        except Exception:  # It does not tell: then it may be tried again.
            return False

    def _say(self, what: str, error: Exception, more: str = "") -> str:
        text = f"{what} ({' '.join(str(error).split()) or type(error).__name__})"
        if isinstance(error, ImportError) or "not supported" in text or "requires" in text:
            self._refused = text
        return f"{text}; {more}" if more else text

    def mapping(self, before: tuple[str, ...], after: tuple[str, ...]) -> dict[str, str] | None:
        """Return where each GPU of the machine goes when these go to those; None: the driver cannot do that.

        It wants a mapping of all GPUs that it knows, and only takes one to another of its model.
        """
        models = self._machine()
        known = set(before) | set(after)
        if not self._maps or self._refused or len(before) != len(after) or not known <= models.keys():
            return None
        if any(models[old] != models[new] for old, new in zip(before, after, strict=True)):
            return None
        taken = dict(zip(before, after, strict=True))
        left = [gpu for gpu in models if gpu not in taken]
        free = [gpu for gpu in models if gpu not in taken.values()]
        stays = [gpu for gpu in left if gpu in free]
        taken.update((gpu, gpu) for gpu in stays)
        moved = [gpu for gpu in left if gpu not in stays]
        room = [gpu for gpu in free if gpu not in stays]
        for gpu in moved:
            match = next((each for each in room if models[each] == models[gpu]), None)
            if match is None:
                return None
            room.remove(match)
            taken[gpu] = match
        return taken


def bare(uuid: str) -> str:
    """Return a UUID as the driver's functions take it."""
    return uuid.removeprefix("GPU-")
