"""The GPUs of this process's cells: seen, and with its state on them, under a lease; left when that is asked.

Owns the order of these steps; what is done is in `visible_gpus` and `replkernel.gpu.occupancy`. Law: a
cell runs with its state where its lease says, or not at all; one without a lease reads nothing that is off.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NamedTuple

from replkernel.errors import ReplkernelError, StateKept
from replkernel.gpu import first_use
from replkernel.gpu.backend import Kept, Moved, Outcome, bytes_in_words
from replkernel.gpu.occupancy import Occupancy, resumed_in_words
from replkernel.gpu.vram import VramLimit
from replkernel.kernel.cell_pause import HANDLED, PART, CellPause
from replkernel.kernel.cuda_asks import CudaAsks
from replkernel.kernel.hand_over import HandOver
from replkernel.kernel.lease_in_cell import lease_in_cell
from replkernel.kernel.shared_card import SharedCard
from replkernel.kernel.visible_gpus import VisibleGpus
from replkernel.leasing.notebook import GpuAnswer, PausedOn
from replkernel.settings import Settings
from replkernel.state.analysis.cell import CellNames, analyse
from replkernel.state.analysis.module_reach import GPU_ONLY, leads_to, uses_gpu_only

log = logging.getLogger(__name__)

ELSEWHERE_S = 1.0
"""So long another thread of the kernel may take to answer before a suspension."""


ELSEWHERE_MAX_S = 30.0
"""So long a paused cell waits at most before it asks for other GPUs than those it cannot go on with."""

BUSY = "a subshell or the debugger is at work here"
"""What keeps a process of which another thread does not answer."""

CALLS_CUDA = ("cuda", "cupy", "jax", "tensorflow", "tf.", "cudf", "paddle", "mxnet")
"""Words of a cell that may call CUDA though it reaches nothing on a GPU."""
LIBRARIES = frozenset(
    {"torch", "torchvision", "jax", "jaxlib", "tensorflow", "numba", "pycuda", "paddle", "mxnet"}
)
"""Libraries that may call CUDA when a module of the notebook's uses them."""
WATCHED = frozenset({"torch", "replkernel"})
"""Of these each function that a cell calls itself is looked at."""

CUDA_NUMBER = 8
"""The last part of its socket's name; the channels' are the numbers below it."""

NOT_RUN = "This cell was not run"
PAUSED = "This cell was paused for a shorter one, and cannot go on"
IN_CELL = "This cell has got a lease while it ran, and cannot use it"


class Beginning(NamedTuple):
    """How a cell begins: with a `notice` for its user, or not: without `wants` GPUs, or for `trouble`.

    Nor does it with `renews`: this process cannot use its GPUs, and goes for another one to take over.
    """

    notice: str = ""
    wants: int = 0
    trouble: ReplkernelError | None = None
    renews: bool = False


class _Bound(NamedTuple):
    """So much of its GPUs a cell has: a `part` of one (0: all), and `vram_gb` GiB of each (0: all)."""

    part: float
    vram_gb: float

    @property
    def bytes(self) -> int:
        return int(self.vram_gb * 2**30)


class LeasedGpus:
    """One kernel process's."""

    def __init__(self, kernel: Any, is_ours: Callable[[threading.Thread], bool]) -> None:
        self._kernel = kernel
        self._visible = VisibleGpus()
        self._vram = VramLimit()
        self._share = SharedCard()
        self._occupancy = Occupancy(is_ours, self._needed, self._on_other_threads, self._settled)
        self._asks = CudaAsks(lambda: self._get_lease(1), self._first_use, lambda: self._occupancy.suspended)
        self.pause = CellPause(
            self._leaves,
            self._stands_still,
            kernel.computes_on,
            self._interrupts_postponed,
        )
        self.hand_over = HandOver(
            self._occupancy.suspend, self._handed_over, self._interrupts_postponed, self._visited
        )
        self.resumed = Moved()
        """What was moved back for the cell that runs."""
        self._unleased = False
        """Whether the cell that runs has no lease, where a GPU is for those alone who have one."""
        self.bind_s: float | None = None
        """How long it took the cell that runs to have its GPUs; None: it has none."""

    def limit(self, settings: Settings) -> None:
        """Take note of what the settings allow."""
        self._occupancy.host_bytes_max = settings.gpu_host_gb * 2**30

    def bytes_held(self) -> int:
        """Return how many bytes lie on the process's GPUs."""
        return self._occupancy.bytes_held()

    def told(self) -> dict[str, object]:
        """Return how long the cell's GPUs took to be there, and how much was moved back to them, if so."""
        told: dict[str, object] = {} if self.bind_s is None else {"bind_s": round(self.bind_s, 6)}
        if self.resumed.bytes:
            told |= {"resumed_bytes": self.resumed.bytes, "resumed_s": round(self.resumed.seconds, 3)}
        if self.bind_s is not None and (held := self.bytes_held()):
            told["gpu_bytes"] = held
        return told

    def has_nothing(self) -> bool:
        """Tell whether nothing of this process and of what it started is, or was, on a GPU; on any thread."""
        return self._occupancy.has_nothing()

    # -- around a cell --------------------------------------------------------------------------------

    def begin(
        self,
        gpus: tuple[str, ...] | None,
        texts: Sequence[str],
        *,
        silent: bool,
        vram_gb: float = 0.0,
        part: float = 0.0,
        what_keeps: Callable[[], str] | None = None,
    ) -> Beginning:
        """Have the cell see its GPUs, with the process's state on them.

        `what_keeps` makes the process ready to go, and says what keeps it; None: it must not go. Of each GPU
        the cell may take `vram_gb` (0: all), and of the one it has a `part` (0: all).
        """
        self.resumed, self.bind_s = Moved(), None
        began = time.monotonic()
        if gpus:
            show, keeps = _Line(self._kernel), ""
            bound = self._occupancy.bound_to_others(gpus)
            if bound and what_keeps is not None:
                keeps = self._keeps(gpus, bound, what_keeps, show)
                if not keeps:
                    return Beginning(renews=True)
            trouble = self._bring(gpus, keeps, show, bound=_Bound(part, vram_gb))
            if trouble is not None:
                return Beginning(trouble=trouble)
        elif not silent and (gpus is not None or self._occupancy.suspended):
            wants = self._reached(texts)
            if wants:
                return Beginning(wants=wants)
        notice = self._shows(gpus, part, vram_gb)
        self._occupancy.cell_runs(runs=True)
        if gpus:
            self.bind_s = time.monotonic() - began
            self.pause.begins(self._unpausable(part))
        self._unleased = gpus == ()
        if not gpus and not silent and self._leaves_gpus_alone(gpus, texts):
            self.hand_over.begins()
        if gpus is None and not self._occupancy.locked and not self._occupancy.bytes_held():
            self._vram.set(0)
        if self._unleased or vram_gb:
            first_use.watch(self._first_use, self._vram.keep)
        if self._asks.cell(gpus, self._asks_at()) and self._unleased:
            self.hand_over.listens()
        return Beginning(notice or ("" if gpus or silent else self._asks.notice()))

    def over(self) -> None:
        """Take note that user code has ended, before its changes are captured."""
        self.hand_over.over()
        self.pause.over()
        self._asks.over()
        first_use.rest()
        self._occupancy.cell_runs(runs=False)

    # -- in the middle of a cell ----------------------------------------------------------------------

    def _first_use(self) -> None:
        """Have a cell that starts CUDA without a lease get one, on this host, and wait for it."""
        if self._unleased or self._visible.hidden or self._occupancy.locked:
            self._get_lease(len(self._occupancy.gpus or ()) if self._occupancy.suspended else 1)

    def _needed(self) -> None:
        """Have a cell that reaches what is off the GPU get a lease, and its state back."""
        if threading.current_thread() is not threading.main_thread() or not self._kernel.in_leased_notebook():
            from replkernel.gpu.touched import refuse

            refuse()
        self._get_lease(len(self._occupancy.gpus or ()) or 1)

    def _unpausable(self, part: float) -> str:
        """Say why the cell that begins cannot stand still; nothing: it can."""
        return PART if part else "" if self.hand_over.listens() else HANDLED

    def _leaves(self) -> Outcome:
        """Have the running cell leave its GPUs: whoever starts CUDA meanwhile waits for the next ones."""
        outcome: Outcome | None = None
        try:
            outcome = self._occupancy.leave(self._asks.shut())
        finally:
            if isinstance(outcome, Moved):
                self._visible.lend(())
            else:
                self._asks.cell(self._kernel.leased_gpus(), self._asks_at())
        return outcome

    def _stands_still(self, left: PausedOn) -> None:
        """Wait, off its GPUs, until the running cell has a lease again, and go on with that."""
        self._kernel.stands_still()
        try:
            self._goes_on(len(self._kernel.leased_gpus()), left)
        except BaseException:  # It ends without a lease; what it does on its way out gets one.
            self._unleased = True
            first_use.watch(self._first_use, self._vram.keep)
            self._asks.cell((), self._asks_at())
            raise

    def _goes_on(self, count: int, left: PausedOn) -> None:
        """Get a lease that the state can come back to: no other process can take over in a cell."""
        self.hand_over.over()
        pause_s = ELSEWHERE_S
        while True:
            answer = lease_in_cell(self._kernel, count, left)
            trouble = self._takes(answer, begins=False)
            if trouble is None:
                return
            if self._occupancy.stuck or not answer.lease:
                raise trouble
            log.warning("A paused cell cannot go on on %s: %s", ", ".join(answer.gpus), trouble)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, ELSEWHERE_MAX_S)
            left = self.pause.again(left, answer.lease)

    def _visited(self, frame: FrameType | None) -> None:
        """Do what others wait for, when the main thread comes by."""
        self._asks.visit(frame)
        self.pause.visit(frame)

    def _get_lease(self, count: int) -> None:
        self.hand_over.over()
        trouble = self._takes(lease_in_cell(self._kernel, count), begins=True)
        if trouble is not None:
            raise trouble

    def _takes(self, answer: GpuAnswer, *, begins: bool) -> StateKept | None:
        """Have the running cell go on with a lease; say why it cannot."""
        began, gpus = time.monotonic(), answer.gpus
        bound = _Bound(answer.part, answer.vram_gb)
        trouble = self._bring(gpus, "", _Line(self._kernel), IN_CELL if begins else PAUSED, bound=bound)
        if trouble is not None:
            return trouble
        self._unleased, notice = False, self._shows(gpus, answer.part, answer.vram_gb)
        if begins:
            self.pause.begins(self._unpausable(answer.part))
        self.bind_s = time.monotonic() - began
        self._kernel.leased_in_cell(answer, notice)
        self._asks.cell(gpus, self._asks_at())
        return None

    def _shows(self, gpus: tuple[str, ...] | None, part: float, vram_gb: float) -> str:
        """Have the cell see its GPUs, held to its part of one; return what its user must know."""
        held = self._share.lend(part, vram_gb) if gpus else ""
        return " ".join(filter(None, [self._visible.lend(gpus), held]))

    def _asks_at(self) -> str:
        """Return where processes that the notebook starts ask for a lease, in its own directory."""
        return f"{self._kernel.birth.ipc_base}-{CUDA_NUMBER}"

    def rest(self) -> None:
        """Take note that the changes are captured."""
        self._visible.take_back()
        self._asks.rest(hidden=self._visible.hidden)

    def _keeps(self, gpus: tuple[str, ...], bound: str, what_keeps: Callable[[], str], show: _Line) -> str:
        """Make ready for another process to take over; say what keeps this one, or nothing when it may go."""
        show(f"Another process takes over: {bound}, and this cell's lease is on {', '.join(gpus)}.")
        try:
            keeps = what_keeps() if self._on_other_threads(_nothing) else BUSY
        except BaseException:
            show.end()
            raise
        if keeps:
            show.end()
        return keeps

    def _bring(
        self, gpus: tuple[str, ...], keeps: str, show: _Line, said: str = NOT_RUN, *, bound: _Bound
    ) -> StateKept | None:
        """Have the state on the GPUs of a lease, and no more than its `bound`; say why that is not."""
        occupancy = self._occupancy
        suspended, locked = occupancy.suspended, occupancy.locked
        if not locked:  # Where the driver has the state, torch would wait for it.
            self._vram.set(bound.bytes, shared=bool(bound.part))
        if suspended:
            size = bytes_in_words(occupancy.bytes_off())
            show(f"Resuming: {size} of the notebook's state go back to {', '.join(gpus)} …")
        outcome = occupancy.lend(gpus, bound.bytes if bound.part else 0)
        if isinstance(outcome, Kept):
            if said == NOT_RUN:
                show.end()
            elif suspended:  # To clear that line would take the output of the cell along.
                show(f"The state is not back on {', '.join(gpus)}: {outcome.why}.")
            return StateKept((_lost if occupancy.stuck else _refusal)(said, outcome.why, keeps))
        self.resumed = outcome
        if locked:
            self._vram.set(bound.bytes, shared=bool(bound.part))
        if suspended:
            show(resumed_in_words(outcome, gpus))
        return None

    def _reached(self, texts: Sequence[str]) -> int:
        """Return how many GPUs a cell without a lease needs for what it reaches; 0 for none."""
        held, source = self._occupancy.gpus, "\n".join(texts)
        if self._occupancy.unreadable:
            return len(held or ()) or 1
        namespace = self._kernel.shell.user_ns
        try:
            found = analyse(source, namespace)
            if not held:
                return int(uses_gpu_only(source, found.reads, namespace))
            # A call of CUDA would wait for ever for the driver.
            calls = self._occupancy.locked and self._may_call(source, found, namespace)
        except Exception:
            log.exception("A cell could not be analysed")
            return 0
        return len(held) if calls or found.needs_gpu else 0

    def _leaves_gpus_alone(self, gpus: tuple[str, ...] | None, texts: Sequence[str]) -> bool:
        """Tell whether a cell without a lease has state on GPUs behind it that it reaches nothing of.

        Where a cell sees all GPUs (`gpus` None) it may use that state; else it would have got a lease.
        """
        return not self._occupancy.untouched and (gpus is not None or not self._reached(texts))

    def _may_call(self, source: str, found: CellNames, namespace: dict[str, Any]) -> bool:
        """Tell whether a cell may call CUDA, by what it says or by the modules that it uses."""
        if found.anything or any(word in source for word in CALLS_CUDA):
            return True
        return leads_to(found.reads, namespace, LIBRARIES | GPU_ONLY, WATCHED)

    # -- what others wait for -------------------------------------------------------------------------

    def _interrupts_postponed(self) -> AbstractContextManager[None]:
        postponed: AbstractContextManager[None] = self._kernel.interrupts.postponed()
        return postponed

    def _handed_over(self, lease: str, moved: Moved) -> None:
        """Tell that a lease's GPUs were left while a cell without one runs."""
        log.info(
            "%s were moved off the GPU in %.2f s while a cell ran", bytes_in_words(moved.bytes), moved.seconds
        )
        self._kernel.gpus_freed(lease, moved)

    def suspend(self) -> Outcome:
        """Move the process's state off the GPUs, because somebody else needs them."""
        outcome = self._occupancy.suspend()
        if isinstance(outcome, Moved):
            log.info("%s were moved off the GPU in %.2f s", bytes_in_words(outcome.bytes), outcome.seconds)
        else:
            log.warning("The state stays on the GPU: %s", outcome.why)
        return outcome

    def _settled(self) -> bool:
        """Tell whether all that cells changed is captured, so that nobody has to read what is off."""
        replica = self._kernel.replica
        return replica is not None and replica.captured

    def _on_other_threads(self, function: Callable[[], None]) -> bool:
        """Run a function where the debugger and subshells look at variables; return whether it has run."""
        threads = [self._kernel.control_thread, *threading.enumerate()]
        waited = {id(each): each for each in threads if each is not None and _may_look(each)}
        done = [threading.Event() for _ in waited]

        def run(event: threading.Event) -> None:
            function()
            event.set()

        for thread, event in zip(waited.values(), done, strict=True):
            thread.io_loop.add_callback(run, event)
        return all(event.wait(ELSEWHERE_S) for event in done)


def _nothing() -> None:
    """Find out whether a thread answers."""


def _refusal(said: str, why: str, keeps: str) -> str:
    """Say why a cell was not run, what keeps another process from taking over, and what can be done."""
    if not keeps:
        return f"{said}: {why}. Nothing is lost; run it again."
    return (
        f"{said}: {why}, and no other process can take over: {keeps.rstrip('.')}. Nothing is "
        "lost: end or delete that and run the cell again, or restart the kernel, which clears its variables."
    )


def _lost(said: str, why: str, keeps: str) -> str:
    """Say that what lies on the GPU is lost, and how the notebook goes on without it."""
    held = f", and no other process takes over by itself: {keeps.rstrip('.')}" if keeps else ""
    return (
        f"{said}: {why}. What this process has on the GPU is lost{held}. Run `exit` in a cell of its own: "
        "another process goes on with all that was captured, and names what was not."
    )


def _may_look(thread: threading.Thread) -> bool:
    """Tell whether a thread of the kernel's own runs user code, or looks at variables."""
    return bool(thread.is_alive()) and (thread.name == "Control" or thread.name.startswith("subshell-"))


class _Line:
    """One line under the cell that is about to run, which is replaced as it goes on."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._id = ""

    def __call__(self, text: str) -> None:
        publisher = self._kernel.shell.display_pub
        update, self._id = bool(self._id), self._id or f"replkernel-resumes-{id(self)}"
        metadata = {"replkernel": {"resuming": text}}
        publisher.publish({"text/plain": text}, metadata, transient={"display_id": self._id}, update=update)

    def end(self) -> None:
        """Take the line away."""
        if self._id:
            self._kernel.shell.display_pub.clear_output()
