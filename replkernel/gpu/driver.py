"""A process's checkpoint by the CUDA driver, with the processes that it has started: all that is on GPUs.

`cuda.core.checkpoint` (extra `gpu`; driver 570 and later) locks a process's CUDA calls, copies device memory
to the host and lets go of the GPUs; calls of other threads block meanwhile and go on after. Law: all are
locked before one is copied; what fails half-way is taken back before it is told; a process whose state is off
makes no CUDA call of its own, so this one goes last and comes back first.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from replkernel.gpu import family, seen
from replkernel.gpu.family import Relative
from replkernel.gpu.host_memory import free_bytes
from replkernel.gpu.preflight import Facts, no_room, refusal

LOCK_TIMEOUT_MS = 10_000
"""Kernels that run are waited for no longer than this: then the process goes on as it was."""
ROOM_WAIT_S = 10.0
"""So long a GPU may take to get empty enough for what comes back: who had it may be leaving still."""
ROOM_LOOK_S = 0.25
RESTORES_MAX = 3
"""A process that the driver has failed to restore so often is given up."""
HERE = "this process"


def as_the_driver_knows_it(pid: int) -> object:
    """Return a process as the driver can checkpoint it; raises what the library makes of a lack."""
    return importlib.import_module("cuda.core.checkpoint").Process(pid)


_asked: list[DriverCheckpoint] = []


def has_this_process() -> bool:
    """Tell whether the driver has this process's state: who lets go of an event then waits for ever."""
    return any(each.is_off for each in _asked)


class _Member:
    """One of the processes that are suspended together."""

    def __init__(self, handle: Any, relative: Relative | None) -> None:
        self._handle = handle
        self.relative = relative
        self.locked = self.off = False

    @property
    def who(self) -> str:
        return HERE if self.relative is None else str(self.relative)

    @property
    def gone(self) -> bool:
        return self.relative is not None and not family.lives(self.relative)

    @property
    def failed(self) -> bool:
        """Whether the driver says that nothing can be made of this process any more."""
        try:
            return bool(self._handle.state == "failed")
        except Exception:  # It does not tell: then it may be tried again.
            return False

    def lock(self) -> None:
        self._handle.lock(timeout_ms=LOCK_TIMEOUT_MS)
        self.locked = True

    def checkpoint(self) -> None:
        self._handle.checkpoint()
        self.off = True

    def restore(self, mapping: dict[str, str] | None) -> None:
        self._handle.restore(gpu_mapping=mapping)
        self.off = False

    def unlock(self) -> None:
        self._handle.unlock()
        self.locked = False


class DriverCheckpoint:
    """One process's, and its relatives'. `off` and `back` return why they could not, or nothing."""

    def __init__(
        self,
        process: Callable[[int], Any] = as_the_driver_knows_it,
        machine: Callable[[], dict[str, str]] = seen.models,
        relatives: Callable[[], tuple[Relative, ...]] = family.that_hold,
    ) -> None:
        self._find = process
        self._machine = machine
        self._relatives = relatives
        self._members: list[_Member] = []
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

    def off(self, size: int, gpus: Iterable[str], *, here: bool = True) -> str:
        """Take all of this process, about `size` bytes, and of its relatives off their GPUs.

        `here`: whether this process has started CUDA itself.
        """
        relatives = self._relatives()
        why = self._refused or self._cannot(size, tuple(gpus), relatives)
        if why:
            return why
        _asked[:] = [self]
        self._had = family.bytes_by_gpu(relatives)
        self._members, who = [], HERE
        try:
            for relative in [*relatives, *([None] if here else [])]:
                member = _Member(self._find(relative.pid if relative else os.getpid()), relative)
                who = member.who
                member.lock()
                self._members.append(member)
        except Exception as error:  # No library, no such driver, kernels that run on.
            return self._say(f"the driver cannot suspend {who}", error, self._undo(), whole=who == HERE)
        self.is_off = True
        try:
            for member in self._members:
                who = member.who
                member.checkpoint()
        except Exception as error:
            return self._say(f"the driver could not copy the GPU memory of {who}", error, self._undo())
        return ""

    def back(self, mapping: dict[str, str]) -> str:
        """Bring all back, from GPUs (the keys) to others of their model; empty: to where it was."""
        why = self.stuck or self._await_room(mapping)
        return why or self._restore(mapping) or self._go_on()

    def _restore(self, mapping: dict[str, str]) -> str:
        """Bring back who is off still, this process first; who has ended meanwhile is let go."""
        self._members = [member for member in self._members if not member.gone]
        for member in reversed(self._members):
            try:
                if member.off:
                    member.restore(mapping or None)
            except Exception as error:
                self._maps = self._maps and not mapping
                self._failures += not mapping
                what = (
                    "cannot bring {} back on other GPUs" if mapping else "could not bring {} back to the GPU"
                )
                why = self._say(f"the driver {what.format(member.who)}", error)
                self.stuck = why if member.failed or self._failures >= RESTORES_MAX else ""
                return why
        self._failures = 0
        return ""

    def _undo(self) -> str:
        """Have all go on as they were; return what keeps that from being, which nothing can mend."""
        why = self._restore({})
        self.stuck = self.stuck or why
        return why or self._go_on()

    def _go_on(self) -> str:
        """Let CUDA calls through again; return what keeps that from being, which nothing can mend."""
        for member in reversed(self._members):
            try:
                if member.locked:
                    member.unlock()
            except Exception as error:
                if not member.gone:
                    self.stuck = self._say(f"the driver does not let {member.who} go on", error)
                    return self.stuck
        self.is_off = False
        return ""

    def _await_room(self, mapping: dict[str, str]) -> str:
        """Wait until the GPUs have room for what comes back; say so where that takes too long."""
        deadline = time.monotonic() + ROOM_WAIT_S
        needed = {f"GPU-{mapping[bare(gpu)]}" if mapping else gpu: had for gpu, had in self._had.items()}
        while why := no_room(needed, seen.free_by_gpu() if needed else {}):
            if time.monotonic() >= deadline:
                return why
            time.sleep(ROOM_LOOK_S)
        return ""

    def _cannot(self, size: int, gpus: tuple[str, ...], relatives: tuple[Relative, ...]) -> str:
        threads, mappings = seen.thread_names(), seen.uvm_mappings()
        size += sum(each.bytes for each in relatives)
        why = refusal(Facts(gpus, size, free_bytes(), mappings, threads, seen.shared_storages()))
        if why:
            return why
        for each in relatives:
            facts = Facts(uvm_mappings=seen.uvm_mappings(each.pid), threads=seen.thread_names(each.pid))
            if why := refusal(facts):
                return f"{each} is in the way: {why}"
        return ""

    def _say(self, what: str, error: Exception, more: str = "", *, whole: bool = False) -> str:
        """Return the sentence; `whole`: where that is not supported, nothing is, and it is asked no more."""
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ImportError):
            text += f"; `pip install 'replkernel[{seen.extra()}]'` brings what it needs"
        text = f"{what} ({text})"
        if whole and (isinstance(error, ImportError) or "not supported" in text or "requires" in text):
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
