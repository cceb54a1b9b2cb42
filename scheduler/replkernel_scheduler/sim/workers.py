"""Cases played one after the other here, or side by side in processes of their own.

Law: how many processes there are changes no byte of what a case gives. Each process reads the traces itself,
so none gets more than names and numbers; the first fault, or who ends the command, ends them all.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from pathlib import Path
from types import FrameType

import msgspec

from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.cases import Case
from replkernel_scheduler.sim.driver import Watcher
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.fairness import integral_of
from replkernel_scheduler.sim.groups import Grouped, RowsToGroup
from replkernel_scheduler.sim.mix import Mix, remixed
from replkernel_scheduler.sim.output import Output
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.records import Record
from replkernel_scheduler.sim.row_table import RowsInMemory
from replkernel_scheduler.sim.spool import Spool, temporary_directory
from replkernel_scheduler.sim.summary import RunSummary
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.window import Window

LOOK_EVERY_S = 0.2
ENDING = (signal.SIGTERM, signal.SIGHUP)
FIGURES = 2
"""What each run tells of itself meanwhile: its events, and which share of the records was played."""


class Source(msgspec.Struct, frozen=True):
    """What the traces are read from, and with which mix of GPUs."""

    paths: tuple[Path, ...]
    form: str | None
    skip_bad: bool
    mix: Mix | None
    window: Window = Window()
    columns: tuple[tuple[str, str], ...] = ()
    """Of columns of CSV files: ours, and what it is there."""

    def files(self) -> list[TraceFile]:
        """Return the files, not read yet."""
        return [TraceFile(path, skip_bad=self.skip_bad, columns=self.columns) for path in self.paths]

    def spool(
        self,
        seed: int,
        within: Path | None = None,
        files: Sequence[TraceFile] | None = None,
        reading: Callable[[Iterator[Record]], Iterator[Record]] = iter,
    ) -> Spool:
        """Read them, with what sessions draw with this seed; what is sorted on the disk lies in `within`.

        `files` count their rows, `reading` sees the records go by.
        """
        records = forms.read_all(self.files() if files is None else files, self.form)
        spool = Spool(reading(remixed(records, self.mix, seed)), within=within)
        if self.window == Window():
            return spool
        with spool:
            return Spool(self.window.of(spool, spool.first), within=within)


class Shown(msgspec.Struct, frozen=True):
    """What a case has shown; a picture only where something is drawn of it, rows where they are kept."""

    summary: RunSummary
    picture: Picture | None
    rows: RowsInMemory | None = None
    grouped: Grouped = {}


def play_case(
    spool: Spool,
    case: Case,
    output: Output,
    *,
    watch: Watcher | None = None,
    played: Callable[[str, int], None] | None = None,
) -> Shown:
    """Play one case and write its rows."""
    kept = RowsInMemory() if output.kept else None
    to_group = RowsToGroup(output.by) if output.by else None
    with output.rows_of(case, *(sink for sink in (kept, to_group) if sink is not None)) as rows:
        pictures: list[Picture] = []
        run = play(
            spool,
            any_way_named(case.policy),
            case.plan,
            rows=rows,
            watch=watch,
            played=played,
            pictured=pictures.append,
        )
        run = msgspec.structs.replace(run, setting=dict(case.setting))
        picture = pictures[0]
        gpu_seconds = integral_of(picture.provisioned, picture.step_s)
        return Shown(run, picture, kept, {} if to_group is None else to_group.grouped(gpu_seconds))


def play_side_by_side(
    source: Source,
    made: Sequence[Case],
    output: Output,
    processes: int,
    watch: Callable[[float, float], None] | None = None,
) -> Iterator[tuple[int, Shown]]:
    """Yield each case's place and its run, as soon as it is over; raise SimulationError.

    `watch` is told now and then of the events of all runs, and of how many runs that is in all, in parts.
    """
    context = get_context("spawn")
    told = context.RawArray("d", FIGURES * len(made))
    with temporary_directory() as within:
        pool = ProcessPoolExecutor(
            min(processes, len(made)), context, initializer=_begin,
            initargs=(source, output, Path(within), told),
        )  # fmt: skip
        with _ending(pool):
            with _signals_later():
                runs = {pool.submit(_play, number, case): number for number, case in enumerate(made)}
            while runs:
                over = wait(runs, LOOK_EVERY_S, FIRST_COMPLETED).done
                if watch is not None and not over:
                    watch(sum(told[0::FIGURES]), sum(told[1::FIGURES]))
                for run in sorted(over, key=runs.__getitem__):
                    yield runs.pop(run), run.result()


@contextmanager
def _ending(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Wait for the processes at the end; end those that still play where something has gone wrong."""
    before = set(active_children())
    try:
        yield
    except BrokenProcessPool as error:
        raise SimulationError(
            "A process of the sweep ended by itself; if memory was short, play fewer side by side (--jobs). "
            "A script of your own calls sweep below `if __name__ == '__main__':`."
        ) from error
    except BaseException:
        for process in active_children():
            if process not in before:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Begin processes undisturbed; they never hear of Ctrl-C, for the one that began them ends them.

    A mask is what they inherit; here it holds for one thread, so handlers wait as well.
    """
    resource_tracker.ensure_running()  # It would let the signals through again if it were begun below.
    came: list[int] = []
    numbers = (signal.SIGINT, *ENDING)

    def later(number: int, frame: FrameType | None) -> None:
        came.append(number)

    main = threading.current_thread() is threading.main_thread()  # No other one hears of signals.
    handlers = {number: signal.signal(number, later) for number in numbers if main}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for kept in came:
            signal.raise_signal(kept)


class _Worker:
    """What a process of a sweep keeps between its cases: the traces, read once for each draw of GPUs."""

    def __init__(self, source: Source, output: Output, within: Path, told: MutableSequence[float]) -> None:
        self.source, self.output, self._within, self._told = source, output, within, told
        self._spool: Spool | None = None
        self._seed = 0

    def play(self, number: int, case: Case) -> Shown:
        seed = case.plan.seed if self.source.mix is not None else 0
        if self._spool is None or self._seed != seed:
            if self._spool is not None:
                self._spool.close()
            self._spool, self._seed = self.source.spool(seed, self._within), seed
        total, at = max(1, len(self._spool)), number * FIGURES

        def watch(events: int, played: int) -> None:
            self._told[at], self._told[at + 1] = events, played / total

        shown = play_case(self._spool, case, self.output, watch=watch)
        watch(shown.summary.events, total)
        return shown


_workers: list[_Worker] = []
"""The one of this process, if it is one of a sweep."""


def _begin(source: Source, output: Output, within: Path, told: MutableSequence[float]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _workers.append(_Worker(source, output, within, told))


def _end_with_parent() -> None:
    """End this process when the one that began it is gone, also if that was killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        signal.raise_signal(signal.SIGKILL)


def _play(number: int, case: Case) -> Shown:
    return _workers[0].play(number, case)
