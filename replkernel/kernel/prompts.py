"""The prompt variables In, Out, ``_``, ``__``, ``_i`` … as a process part: the same on every replica.

The cells themselves travel in `@cells/…`; `@history` says which of them are in In and Out. The values of Out
travel with the namespace, where they are named ``_1``, ``_2``, …, so that they stay the user's own objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from replkernel.hosts.disk_path import DiskPath
from replkernel.kernel.cells import source_of
from replkernel.kernel.history import ReplicatedHistory
from replkernel.kernel.own_names import OwnNames
from replkernel.records import ComponentId
from replkernel.state.names import Names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


UNDERS = ("_", "__", "___")
DIRECTORIES_MAX = 200
"""So many of the newest entries of ``_dh`` travel."""

OUT_PREFIX = "_replkernel_out_"
"""While state is captured or rebuilt, a value of Out that its ``_N`` name no longer reaches has this name."""

OWN_OUT = f"{OUT_PREFIX}own"
"""So are those named meanwhile, as one dictionary, that cells have put into Out under keys of their own."""

_ABSENT = object()


class Prompts(msgspec.Struct, array_like=True):
    """What `@history` carries.

    In is `parsed`/`raw` followed by the listed cells from index `first` on. Out holds the cells that set
    it, from number `oldest` on, without `gone`, with `extra`; the value of those `apart` is not that of
    their ``_N`` name. `automatic` tells which of ``_ __ ___`` hold what IPython has in them, `behind` which
    others it still updates. `hidden` are names of start-up code, or pushed, that ``%who`` hides. The session
    that began at `started` is that of `kernel_id`; earlier releases did not say.
    """

    started: str = ""
    first: int = 0
    parsed: tuple[str, ...] = ("",)
    raw: tuple[str, ...] = ("",)
    oldest: int = 0
    gone: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()
    automatic: tuple[bool, ...] = (True, True, True)
    hidden: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    behind: tuple[bool, ...] = (False, False, False)
    kernel_id: str = ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Prompts)


class Taken(NamedTuple):
    """What of the log of cells is in In: as `told`, its first `cells`, up to `last`, gave the first `listed`
    of `length` entries; the cells behind them may still change.
    """

    told: object = None
    cells: int = 0
    listed: int = 0
    length: int = 0
    last: object = None


class _NamesOfOut(dict[int, str]):
    """The names ``_N`` of the entries of Out, made once."""

    def __missing__(self, number: int) -> str:
        name = self[number] = f"_{number}"
        return name


class PromptsPart:
    """The process part `@history` of one shell."""

    cid = ComponentId("@history")

    def __init__(
        self, shell: InteractiveShell, history: ReplicatedHistory, names: Names | None = None
    ) -> None:
        self._shell = shell
        self._history = history
        self.own_names = OwnNames(names or Names(shell.user_ns), history)
        self._parsed: tuple[str, ...] = ("",)
        self._raw: tuple[str, ...] = ("",)
        self._current = Prompts()
        self._loaded: bytes | None = None
        self._names_of_out = _NamesOfOut()
        self.startup_names: tuple[str, ...] = ()
        self._pushed: dict[str, None] = {}
        """The names that were pushed for ``%who`` to hide, whether it does now or not."""
        self._newest_hidden = next(reversed(shell.user_ns_hidden), None)
        self.awaits: Callable[[str], bool] = lambda name: False
        """Tells whether a name has no value only because that is still to be rebuilt."""
        self._own_out: dict[Any, Any] = {}
        """What Out holds beside what cells have shown, by keys that are no numbers."""
        self._taken = Taken()
        """What `settle` has taken of the log of cells."""
        self._awaited: dict[int, bool] = {}
        """The entries of Out whose values are still to come, and whether they are `apart`."""
        self._unders_awaited: dict[str, tuple[bool, bool]] = {}
        """Those of ``_ __ ___`` that are still to come, and whether they are automatic, and behind."""

    @contextmanager
    def unders_followed(self) -> Iterator[None]:
        """Have IPython go on with the ``_ __ ___`` that are there afterwards, where it keeps them."""
        shell = self._shell
        kept = [n for n in UNDERS if shell.user_ns.get(n, "") is getattr(shell.displayhook, n)]
        yield
        for name in kept:
            value = shell.user_ns.get(name, "")
            setattr(shell.displayhook, name, value)
            if name in shell.user_ns:
                shell.user_ns_hidden[name] = value

    def dump(self) -> bytes | None:
        """Return what In, Out and the underscores are, beyond the cells; until `settle`, what was loaded."""
        if self._loaded is not None:
            return self._loaded
        history, hook = self._history, self._shell.displayhook
        namespace, out = self._shell.user_ns, history.out
        history.cells.finish(history.cells.blocks[-1].cells)
        held = {key for key in list(out) if type(key) is int} | self._awaited.keys()
        oldest = min(held, default=0)
        listed, marked, newest = history.cells.marks_since(history.first, oldest)
        if len(history.input_hist_raw) != len(self._raw) + listed:
            self._take_inputs()
            listed, marked, newest = history.cells.marks_since(history.first, oldest)
        if not held:
            oldest, marked = newest + 1, set()
        self._current = Prompts(
            started=history.started,
            first=history.first,
            parsed=self._parsed,
            raw=self._raw,
            oldest=oldest if newest >= 0 else 0,
            gone=tuple(sorted(marked - held)),
            extra=tuple(sorted(held - marked)),
            apart=tuple(sorted([*(number for number, _ in self._apart()), *self._awaited_apart()])),
            automatic=tuple(
                namespace.get(name, _ABSENT) is getattr(hook, name)
                or (name not in namespace and self._unders_awaited.get(name, (False, False))[0])
                for name in UNDERS
            ),
            hidden=tuple([name for name in self._hideable() if self._is_hidden(name)]),
            behind=tuple(self._is_behind(name) for name in UNDERS),
            directories=tuple([str(path) for path in history.dir_hist[-DIRECTORIES_MAX:]]),
            kernel_id=history.kernel_id,
        )
        return _encoder.encode(self._current)

    def _hideable(self) -> tuple[str, ...]:
        """Return the names that may be hidden, with those pushed since this was asked last."""
        hidden = self._shell.user_ns_hidden
        for name in reversed(hidden):
            if name == self._newest_hidden:
                break
            if not name.startswith("_") and name not in self.startup_names:
                self._pushed[name] = None
        self._newest_hidden = next(reversed(hidden), None)
        return (*self.startup_names, *self._pushed)

    def _is_hidden(self, name: str) -> bool:
        hidden = self._shell.user_ns_hidden
        return name in hidden and self._shell.user_ns.get(name, _ABSENT) is hidden[name]

    def _settle_hidden(self, received: Prompts) -> None:
        """Hide what is hidden elsewhere, and nothing else that was ever pushed."""
        namespace, hidden = self._shell.user_ns, self._shell.user_ns_hidden
        for name in set(self._hideable()).difference(received.hidden, self.startup_names):
            hidden.pop(name, None)
        self._pushed.update(dict.fromkeys(set(received.hidden).difference(self.startup_names)))
        hidden.update({name: namespace[name] for name in received.hidden if name in namespace})
        self._newest_hidden = next(reversed(hidden), None)

    def _is_behind(self, name: str) -> bool:
        """Tell whether IPython will update an underscore that does not hold its newest: it was deleted, or
        not updated while another one was the user's.
        """
        held, hidden = self._shell.user_ns.get(name, _ABSENT), self._shell.user_ns_hidden
        if held is _ABSENT:
            return self._unders_awaited.get(name, (False, True))[1]
        return held is not getattr(self._shell.displayhook, name) and hidden.get(name, _ABSENT) is held

    def load(self, data: bytes) -> None:
        """Take what another replica dumped; it takes effect in `settle`."""
        self._current = _decoder.decode(data)
        self._loaded = data

    def settle(self, execution_count: int) -> None:
        """Bring In, Out and the underscores up to date, after the namespace has been rebuilt."""
        received, self._loaded = self._current, None
        history = self._history
        history.first, self._parsed, self._raw = received.first, received.parsed, received.raw
        history.adopt(received.started, received.kernel_id, execution_count)
        history.dir_hist[:] = [DiskPath(text) for text in received.directories]
        start = self._settle_inputs(received)
        self._settle_outputs(received, start)
        self._settle_hidden(received)

    @contextmanager
    def exposed(self, *, incoming: bool = False) -> Iterator[None]:
        """Name the values of Out that no ``_N`` name reaches, while the namespace is captured.

        With `incoming` it is being rebuilt: values with such names may arrive, and go to Out.
        """
        namespace, out = self._shell.user_ns, self._history.out
        self.own_names.refresh()
        exposed = {f"{OUT_PREFIX}{number}": value for number, value in self._apart()}
        if not self.awaits(OWN_OUT):
            own = {key: value for key, value in list(out.items()) if type(key) is not int}
            self._own_out.clear()
            self._own_out.update(own)
        if self._own_out:
            exposed[OWN_OUT] = self._own_out
        namespace.update(exposed)
        try:
            yield
        finally:
            own = namespace.pop(OWN_OUT, {})
            if incoming and not self.awaits(OWN_OUT):
                self._own_out = own if type(own) is dict else {}
                out.update(self._own_out)
            names = [name for name in list(namespace) if name.startswith(OUT_PREFIX)] if incoming else exposed
            for name in names:
                if name != OWN_OUT:
                    out[int(name.removeprefix(OUT_PREFIX))] = namespace.pop(name)

    def _apart(self) -> list[tuple[int, Any]]:
        """Return the entries of Out whose value is not that of their ``_N`` name."""
        namespace = self._shell.user_ns
        out = self._history.out
        get, names = namespace.get, self._names_of_out
        return [
            item
            for item in list(out.items())
            if type(item[0]) is int and get(names[item[0]], _ABSENT) is not item[1]
        ]

    def _awaited_apart(self) -> Iterator[int]:
        return (number for number, apart in self._awaited.items() if apart)

    def admit(self) -> None:
        """Take into Out and the underscores what `settle` found still to come, if it is here now."""
        out, namespace = self._history.out, self._shell.user_ns
        come = [n for n, apart in self._awaited.items() if not self.awaits(_name_of(n, apart=apart))]
        for number in come:
            if not self._awaited.pop(number) and f"_{number}" in namespace:
                out[number] = self._shell.user_ns_hidden[f"_{number}"] = namespace[f"_{number}"]
        if come:
            ordered = sorted(item for item in out.items() if type(item[0]) is int)
            out.clear()
            out.update([*ordered, *self._own_out.items()])
        for name in [name for name in self._unders_awaited if not self.awaits(name)]:
            automatic, behind = self._unders_awaited.pop(name)
            if (automatic or behind) and name in namespace:
                self._shell.user_ns_hidden[name] = namespace[name]
            if automatic and name in namespace:
                setattr(self._shell.displayhook, name, namespace[name])

    def _take_inputs(self) -> None:
        """Take In as it is, for it is not what the cells say (``%reset in``)."""
        history = self._history
        self._parsed, self._raw = tuple(history.input_hist_parsed), tuple(history.input_hist_raw)
        history.first = len(history.cells)

    def _settle_inputs(self, received: Prompts) -> int:
        """Bring In up to date; return from which cell of the log on it was taken: those before it stay."""
        history = self._history
        before, recent = history.input_names, history.recent_inputs()
        start = self._go_back(received)
        parsed, raw, fresh = history.input_hist_parsed, history.input_hist_raw, {}
        closed, listed = max(history.cells.closed_cells(), start), len(raw)
        for place, cell in enumerate(history.cells.since(start), start):
            if not cell.listed:
                continue
            name, text = f"_i{cell.number}", cell.raw.rstrip("\n")
            parsed.append(cell.parsed().rstrip("\n"))
            raw.append(before[name] if before.get(name) == text else text)
            fresh[name] = raw[-1]
            listed += place < closed
        told = (received.first, received.parsed, received.raw)
        self._taken = Taken(told, closed, listed, len(raw), self._source_before(closed))
        newest = [*raw[:-5:-1], "", "", "", ""]
        history._i00, history._i, history._ii, history._iii = newest[:4]
        namespace = self._shell.user_ns
        now = {**fresh, **history.recent_inputs()}.items()
        given = {**recent, **{name: before[name] for name in fresh if name in before}}
        ours = {n: text for n, text in now if n not in namespace or namespace[n] is given.get(n, _ABSENT)}
        history.input_names.update(fresh)
        self._shell.push(ours, interactive=False)
        return start

    def _go_back(self, received: Prompts) -> int:
        """Leave in In what is known to stay; return from which cell of the log on it is to be taken."""
        history, taken = self._history, self._taken
        told = (received.first, received.parsed, received.raw)
        as_before = told == taken.told and self._source_before(taken.cells) == taken.last
        if as_before and len(history.input_hist_raw) == taken.length:
            del history.input_hist_parsed[taken.listed :], history.input_hist_raw[taken.listed :]
            return taken.cells
        history.input_hist_parsed[:], history.input_hist_raw[:] = received.parsed, received.raw
        history.input_names = {}
        return max(received.first, 0)

    def _source_before(self, cells: int) -> object:
        """Return the source that stands last among the log's first cells: a large block may come late."""
        cell = next(self._history.cells.since(cells - 1), None) if cells else None
        return None if cell is None else source_of(cell)

    def _settle_outputs(self, received: Prompts, start: int) -> None:
        history, shell = self._history, self._shell
        namespace = shell.user_ns
        out = history.out
        marked = history.cells.marks_since(received.first, received.oldest)[1]
        numbers = marked - set(received.gone) | set(received.extra)
        kept = {}
        self._awaited = {}
        for number in sorted(number for number in numbers if number >= received.oldest):
            apart = number in received.apart
            if self.awaits(_name_of(number, apart=apart)):
                self._awaited[number] = apart
                continue
            named = _ABSENT if number in received.apart else namespace.get(f"_{number}", _ABSENT)
            value = out.get(number, _ABSENT) if named is _ABSENT else named
            if value is not _ABSENT:
                kept[number] = value
        out.clear()
        out.update(kept | self._own_out)
        history.output_hist_reprs.update(history.cells.texts_since(start))
        own = {f"_{number}": value for number, value in kept.items() if namespace.get(f"_{number}") is value}
        shell.user_ns_hidden.update(own)
        self._unders_awaited = {}
        newest = [*list(kept.values())[:-4:-1], "", "", ""]
        told = zip(UNDERS, received.automatic, received.behind, newest, strict=False)
        for name, automatic, behind, value in told:
            if self.awaits(name):
                self._unders_awaited[name] = automatic, behind
                value = value if behind else ""
            elif behind:
                shell.user_ns_hidden[name] = namespace.get(name, value)
            elif automatic:
                value = namespace.get(name, value)
                shell.user_ns_hidden[name] = value
            setattr(shell.displayhook, name, value)


def _name_of(number: int, *, apart: bool) -> str:
    """Return the name under which an entry of Out is captured and rebuilt."""
    return f"{OUT_PREFIX}{number}" if apart else f"_{number}"
