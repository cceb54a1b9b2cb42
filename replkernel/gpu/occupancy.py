"""What one process has on GPUs, from lease to lease: it lingers, is suspended, and is resumed for a cell.

Law: torch is never imported and CUDA never started from here; a process that uses no GPU pays for a look at
`sys.modules` and, on a machine with a driver, at its open files. Nothing here raises: what cannot be is a
`Kept`, and nothing has moved then.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from replkernel.gpu import family
from replkernel.gpu.backend import CONTEXT_BYTES, Backend, Kept, Moved, Outcome, bytes_in_words
from replkernel.gpu.driver import DriverCheckpoint
from replkernel.gpu.driver_only import DriverBackend, held_by_itself, held_here

BY_DRIVER = "only the CUDA driver takes off its GPUs what a running cell computes on"
"""Torch would leave its context there, and could go on nowhere else."""


class Occupancy:
    """One process's state on GPUs. `is_ours` tells which threads the kernel itself started.

    `needed` is called, on the main thread, before something reads what is off the GPU; it returns once that
    is back, or raises. `elsewhere` runs a function on each other thread of the kernel's own that may look at
    variables. `settled` tells whether all that cells changed is captured.
    """

    def __init__(
        self,
        is_ours: Callable[[threading.Thread], bool],
        needed: Callable[[], None],
        elsewhere: Callable[[Callable[[], None]], bool] = lambda function: True,
        settled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settled = settled
        self._is_ours = is_ours
        self._needed = needed
        self._on_other_threads = elsewhere
        self.host_bytes_max = math.inf
        """So much host memory the state may take while it is off."""
        self._driver = DriverCheckpoint()
        self._cuda: Backend | None = None
        self._others: DriverBackend | None = None
        """What keeps the state of libraries other than torch, until torch has started CUDA as well."""
        self._watch: Any = None
        self._in_cell = False

    # -- how it stands --------------------------------------------------------------------------------

    def backend(self, *, orphans: bool = False) -> Backend | None:
        """Return what this process's state on GPUs is kept by; None while it has used none.

        `orphans`: look for processes that it has started and whose parents have ended, too.
        """
        known = self._known()
        if known is None and held_here(orphans=orphans):
            known = self._others = DriverBackend(self._driver)
        return known

    def _known(self) -> Backend | None:
        """Return the same as far as it shows without a look at what the system has open."""
        fake = sys.modules.get("replkernel.gpu.fake")
        if fake is not None:
            made: list[Any] = vars(fake).get("_backends", [])
            if made and made[0].in_use:
                found: Backend = made[0]
                return found
        if self._others is not None and self._others.suspended:
            return self._others
        if self._cuda is None and _cuda_started():
            from replkernel.gpu.cuda import CudaBackend

            self._cuda = CudaBackend(self._driver)
        return self._cuda or self._others

    @property
    def untouched(self) -> bool:
        """Whether this process, and what it has started, use no GPU at all; may be asked on any thread."""
        return self._untouched() and held_here() is None

    def has_nothing(self) -> bool:
        """Tell the same for sure, by a look through all processes."""
        return self._untouched() and held_here(orphans=True) is None

    def _untouched(self) -> bool:
        fake = sys.modules.get("replkernel.gpu.fake")
        posed = fake is not None and bool(vars(fake).get("_backends"))
        started = self._cuda is not None or self._others is not None or _cuda_started()
        return not posed and not started

    @property
    def gpus(self) -> tuple[str, ...] | None:
        """The GPUs that the process's devices stand for; None while it has used none."""
        backend = self.backend()
        return None if backend is None else backend.gpus

    @property
    def suspended(self) -> bool:
        """Whether state is off the GPUs: who took it off is known since."""
        backend = self._known()
        return backend is not None and backend.suspended

    @property
    def unreadable(self) -> bool:
        """Whether a look at a variable may be a call of CUDA that blocks until the state is back."""
        return self._others is not None and self._others.suspended and not self._driver.stuck

    @property
    def stuck(self) -> bool:
        """Whether the driver has the state for good: this process never has it back."""
        return bool(self._driver.stuck)

    @property
    def locked(self) -> bool:
        """Whether any call of CUDA blocks until the state is back."""
        backend = self._known()
        return backend is not None and backend.locked

    def bytes_held(self) -> int:
        """Return how many bytes lie on GPUs."""
        backend = self.backend()
        return 0 if backend is None else backend.bytes_held()

    def bytes_off(self) -> int:
        """Return how many bytes are off the GPUs."""
        backend = self.backend()
        return 0 if backend is None else backend.bytes_off()

    def bound_to_others(self, gpus: tuple[str, ...]) -> str:
        """Say with which GPUs this process was started for good, when these are others; else nothing."""
        backend = self.backend()
        return "" if backend is None else backend.bound_to_others(gpus)

    # -- from lease to lease --------------------------------------------------------------------------

    def lend(self, gpus: tuple[str, ...], bytes_max: int = 0) -> Outcome:
        """Have the process's state on the GPUs of the lease of the cell that begins.

        Where others compute beside it, no more than `bytes_max` go there (0: all); more leave, or stay off.
        """
        backend = self.backend()
        if backend is None:
            return Moved()
        size = _own_bytes(backend)
        if bytes_max and size > bytes_max:
            if backend.bytes_held():
                self.suspend()
            return Kept(
                f"{bytes_in_words(size)} of this notebook's state belong on the GPU, and its part of one has "
                f"{bytes_in_words(bytes_max)}: ask for a larger part, or for a whole GPU (`%%gpu 1`)"
            )
        if not backend.suspended:
            if not backend.bind(gpus):
                self._rest()
                return Moved()
            kept = self.suspend()
            if isinstance(kept, Kept):
                return Kept(f"its state could not leave {', '.join(backend.gpus)}: {kept.why}")
        outcome = backend.resume(gpus)
        if isinstance(outcome, Moved):
            self._rest()
        return outcome

    def leave(self, let_in: Callable[[], Iterable[int]] | None = None) -> Outcome:
        """Move everything off the GPUs on which the running cell computes, which may go on with others.

        Who starts CUDA later would compute on a GPU that is somebody else's by then. `let_in`: the processes
        that a door has let in; it is shut now, and whoever comes waits there. None: there is no door.
        """
        why = self._may_start(let_in)
        return Kept(why) if why else self.suspend(in_cell=True)

    def _may_start(self, let_in: Callable[[], Iterable[int]] | None) -> str:
        """Say who may start CUDA, or is about to, beside the main thread; nothing: nobody."""
        names = self._busy_threads()
        if names and held_by_itself() is None:
            return f"thread {', '.join(names)} runs and may start CUDA"
        free = family.without_gpus()
        if let_in is not None:
            entered = set(let_in())
            free = tuple(each for each in free if each.pid in entered)
        return f"{free[0]} may start CUDA at any moment" if free else ""

    def suspend(self, *, in_cell: bool = False) -> Outcome:
        """Move everything off the GPUs.

        `in_cell`: off those on which the running cell computes, which may go on with others.
        """
        backend = self.backend(orphans=True)
        if backend is None:
            return Moved()
        held = backend.bytes_held()
        if held + backend.bytes_off() > self.host_bytes_max:
            limit = bytes_in_words(int(self.host_bytes_max))
            return Kept(f"its {bytes_in_words(held)} are more than the {limit} of REPLKERNEL_GPU_HOST_GB")
        names = self._busy_threads()
        busy = f"thread {', '.join(names)} runs and may use tensors on the GPU" if names else ""
        if not self._watch_over():
            busy = busy or "another thread of the kernel is busy and may use tensors on the GPU"
        if in_cell and backend.bound:
            busy = BY_DRIVER
        outcome = backend.suspend(busy, settled=in_cell or self._settled())
        if isinstance(outcome, Kept) and not backend.suspended:
            self._rest()
        return outcome

    def _busy_threads(self) -> list[str]:
        main = threading.main_thread()
        others = (each for each in threading.enumerate() if each is not main and each.is_alive())
        return sorted(each.name for each in others if not self._is_ours(each))

    # -- while it is off ------------------------------------------------------------------------------

    def _watch_over(self) -> bool:
        """Have no thread of ours read what is off the GPU; return whether that is sure."""
        if "torch" not in sys.modules:
            return True
        from replkernel.gpu import touched

        if self._watch is None:
            self._watch = touched.Watching(self._needed)
            self._watch.in_cell = self._in_cell
            touched.enter(self._watch)
        self._watch.rests = False
        return self._on_other_threads(touched.watch_this_thread)

    def _rest(self) -> None:
        """Watch no more; one that is being asked, and not on torch's stack meanwhile, goes later."""
        if self._watch is not None:
            from replkernel.gpu import touched

            self._watch.rests = True
            if not self._watch.asks:
                touched.leave(self._watch)
                self._watch = None

    def cell_runs(self, *, runs: bool) -> None:
        """Take note that user code begins or has ended: only our own may look at storages between cells."""
        self._in_cell = runs
        if self._watch is not None:
            self._watch.in_cell = runs
            if self._watch.rests:
                self._rest()


def _own_bytes(backend: Backend) -> int:
    """Return how much of a GPU's memory the state takes, or will; of what the driver tells, no context."""
    held, off = backend.bytes_held(), backend.bytes_off()
    by_driver = backend.locked or backend.name == DriverBackend.name
    return max(0, held + off - CONTEXT_BYTES) if by_driver else held + off


def resumed_in_words(moved: Moved, gpus: tuple[str, ...]) -> str:
    """Return what a cell shows once its state is back."""
    return f"Resumed: {bytes_in_words(moved.bytes)} back on {', '.join(gpus)} in {moved.seconds:.2f} s."


def _cuda_started() -> bool:
    cuda = sys.modules.get("torch.cuda")
    started = None if cuda is None else vars(cuda).get("is_initialized")
    return bool(started is not None and started())
