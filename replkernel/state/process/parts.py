"""The process's own state: the parts that travel beside the namespace, and the pins of what cannot.

Call `Baseline.take` once, at a kernel process's birth, when its shell is there; the capture gets its parts.
Law: `dump`, `process_pins` and `settle` run on the main thread, in the context in which cells run.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from replkernel.records import ComponentId, Pin, ReplicaId, Seq
from replkernel.state.hints import HintsPart
from replkernel.state.libraries import index
from replkernel.state.libraries.ipython.config import InlineBackendPart, ShellConfigPart, ShellTraitsPart
from replkernel.state.libraries.ipython.extensions import ExtensionsPart
from replkernel.state.libraries.ipython.hooks import HooksPart
from replkernel.state.libraries.ipython.magics import MagicsPart
from replkernel.state.libraries.matplotlib.figure_formats import FigureFormatsPart
from replkernel.state.libraries.numpy.global_generator import reseed_numpy
from replkernel.state.libraries.torch import WarnedOncePart
from replkernel.state.names import Names, OddNamesPart
from replkernel.state.patches.book import book
from replkernel.state.process import pins
from replkernel.state.process.decimal_context import DecimalPart
from replkernel.state.process.environment import EnvironPart, SysPathPart, WorkingDirectoryPart
from replkernel.state.process.interpreter import InterpreterPart, LocalePart, SignalsPart
from replkernel.state.process.library_generators import CountersPart
from replkernel.state.process.library_patches import PatchesPart
from replkernel.state.process.modules import ModulesPart, OwnModulesPart
from replkernel.state.process.own_streams import OwnStreamsPart
from replkernel.state.process.part import Part
from replkernel.state.process.random import RandomPart
from replkernel.state.process.same_values import SameValuesPart
from replkernel.state.process.seldom_settings import SeldomPart
from replkernel.state.process.warnings import WarningsPart, WarningsShownPart
from replkernel.state.python.asyncio import callbacks as loop_callbacks
from replkernel.state.python.logging.config import LoggingPart
from replkernel.state.wording import part_in_words

__all__ = [
    "Baseline",
    "ProcessPart",
    "built_in_parts",
    "process_pins",
    "reseed_after_fork",
    "settle",
    "troubles",
]


class ProcessPart(Protocol):
    """One part of the process's state that travels as a component of its own; its id begins with ``@``."""

    @property
    def cid(self) -> ComponentId:
        """Return the part's component id."""
        ...

    def dump(self) -> bytes | None:
        """Return the state as bytes, equal for equal state; None while there is nothing to say."""
        ...

    def load(self, data: bytes) -> None:
        """Take over what `dump` returned in another process; doing it twice is doing it once."""
        ...


def built_in_parts(shell: Any = None, names: Names | None = None) -> tuple[Part[Any], ...]:
    """Return the parts in the order in which they are to be loaded, each with its baseline taken now.

    `shell` is the process's InteractiveShell; without one, IPython's own state has no parts. `names` are
    those of its namespace, which somebody looks at before parts are dumped. Places come before modules,
    modules before what their import sets up, and random generators last, because imports may draw from them.
    """
    index.look()
    places: tuple[Part[Any], ...] = (
        EnvironPart(),
        WorkingDirectoryPart(),
        SysPathPart(),
        InterpreterPart(),
        LocalePart(),
        OwnStreamsPart(),
        HintsPart(),
    )
    modules = ModulesPart()
    with_shell: tuple[Part[Any], ...] = ()
    figures: tuple[Part[Any], ...] = ()
    changed: tuple[Part[Any], ...] = ()
    last: tuple[Part[Any], ...] = ()
    if shell is not None:
        names = names or Names(shell.user_ns)
        with_shell = (
            ExtensionsPart(shell),
            ShellConfigPart(shell),
            ShellTraitsPart(shell),
            InlineBackendPart(shell),
            magics := MagicsPart(shell),
            hooks := HooksPart(shell),
        )
        figures = (FigureFormatsPart(shell),)
        last = (
            WarningsShownPart(),
            WarnedOncePart(),
            SameValuesPart(shell.user_ns, names),
            OddNamesPart(names),
        )
        seldom = SeldomPart(shell.user_ns)
        changed = (
            OwnModulesPart(),
            PatchesPart(shell.user_ns, book, lambda: bool(modules.missing), (magics, hooks), seldom),
            seldom,
        )
    libraries: tuple[Part[Any], ...] = (
        LoggingPart(),
        SignalsPart(),
        DecimalPart(),
        *(part() for library in index.BUILT_IN for part in library.parts),
        *index.foreign_parts("parts"),
        CountersPart(),
        *figures,
        WarningsPart(),
    )
    generators: tuple[Part[Any], ...] = (
        RandomPart(),
        *(part() for library in index.BUILT_IN for part in library.random_parts),
        *index.foreign_parts("random_parts"),
    )
    return (*places, modules, *with_shell, *libraries, *changed, *generators, *last)


class Baseline:
    """What a kernel process looked like at its birth: its parts, threads, children and streams."""

    def __init__(self, shell: object, parts: tuple[Part[Any], ...]) -> None:
        self.shell = shell
        self.parts = parts
        self.patches = next((part for part in parts if isinstance(part, PatchesPart)), None)
        self.threads = {id(thread): thread for thread in threading.enumerate()}
        self.children = pins.children()
        self.streams = pins.streams()
        self.traced = tracemalloc.is_tracing()

    @classmethod
    def take(cls, shell: object = None, names: Names | None = None) -> Baseline:
        """Look at this process now, and remember it as what every notebook starts from."""
        return cls(shell, built_in_parts(shell, names))


def process_pins(
    seq: Seq,
    replica: ReplicaId,
    baseline: Baseline,
    is_ours: pins.ThreadTest = pins.nobodys,
) -> tuple[Pin, ...]:
    """Return the process-level state that cannot travel, one pin with a one-sentence reason each.

    `is_ours` tells threads that the kernel itself started after its birth. Call it after the parts'
    `dump`: what these could not carry is among the pins.
    """
    found = [
        *_running(baseline, is_ours),
        *loop_callbacks.callbacks(),
        *pins.event_loops(baseline.shell),
        *pins.memory_traces(baseline.traced),
        *pins.replaced_streams(baseline.streams),
    ]
    for part in baseline.parts:
        if part.stuck:
            found.extend((part_in_words(part.cid), "process state", reason) for reason in part.stuck)
    return _as_pins(found, seq, replica)


def running_pins(
    seq: Seq,
    replica: ReplicaId,
    baseline: Baseline,
    is_ours: pins.ThreadTest = pins.nobodys,
) -> tuple[Pin, ...]:
    """Return the pins of what runs now beside the cells, and may end at any time."""
    return _as_pins(_running(baseline, is_ours), seq, replica)


def _as_pins(found: Iterable[pins.Found], seq: Seq, replica: ReplicaId) -> tuple[Pin, ...]:
    return tuple(Pin(name, kind, replica, seq, "", reason) for name, kind, reason in found)


def _running(baseline: Baseline, is_ours: pins.ThreadTest) -> Iterator[pins.Found]:
    yield from pins.threads(baseline.threads, is_ours)
    yield from pins.child_processes(baseline.children)
    yield from pins.tasks()


def settle(parts: Iterable[object]) -> tuple[str, ...]:
    """Do what the loads put off: import the notebook's modules, then apply what waited for them.

    Call it before user code runs on a process that has loaded something; what needs the namespace's
    functions (magics, callbacks, figures) is settled when it is called with the namespace rebuilt.
    Cheap when nothing is left. Return the names of modules that could not be imported.
    """
    failed: tuple[str, ...] = ()
    for part in parts:
        if isinstance(part, ModulesPart):
            failed = part.import_all()
        elif isinstance(part, Part):
            part.settle()
    return failed


def troubles(parts: Iterable[object]) -> tuple[str, ...]:
    """Return one sentence for each loaded part that this process could not follow."""
    return tuple(part.trouble for part in parts if isinstance(part, Part) and part.trouble)


def reseed_after_fork() -> None:
    """Give a freshly forked process random generators of its own, as a newly started one would have.

    Python reseeds `random` itself and torch starts from a fixed seed in every process; numpy is left.
    """
    reseed_numpy()
