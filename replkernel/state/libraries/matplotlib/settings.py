"""``@matplotlib``: rcParams that differ from matplotlib's defaults, and which backend pyplot draws with.

A backend with windows is left alone: another process may have no screen.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart, are_equal

if TYPE_CHECKING:
    from matplotlib import RcParams


LEFT_ALONE = ("backend", "backend_fallback", "interactive", "toolbar", "webagg.port")
CYCLE, TUPLE, ARRAY = "\0cycle", "\0tuple", "\0array"
INTERACTIVE = "\0interactive"
BACKEND = "\0backend"
PYPLOT = "matplotlib.pyplot"
INLINE = "matplotlib_inline.backend_inline"
IN_PAGES = ("nbagg", "ipympl")
"""What draws into the page as it goes on, and so not at the end of a cell."""
WITHOUT_WINDOWS = ("inline", *IN_PAGES, "agg", "cairo", "pdf", "pgf", "ps", "svg", "template")
MODULES = {"inline": f"module://{INLINE}", "ipympl": "module://ipympl.backend_nbagg"}
SHORT = {"notebook": "nbagg", "widget": "ipympl", **{module: name for name, module in MODULES.items()}}


class MatplotlibPart(OptionsPart):
    """``matplotlib.rcParams``, styles and themes included."""

    cid = ComponentId("@matplotlib")
    library = "matplotlib"

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._stamp: list[Any] = []
        super().__init__()

    def ready(self) -> bool:
        """Tell whether matplotlib is imported to its end."""
        return "rcParams" in vars(sys.modules.get("matplotlib", object))

    def look(self) -> dict[str, Any]:
        """Return the settings; lists are copied, because they can be changed in place."""
        settings = sys.modules["matplotlib"].rcParams
        values = list(dict.values(settings))
        drawing = [bool(dict.get(settings, "interactive")), INLINE in sys.modules]
        backend = [_backend(settings), _shows_inline()] if PYPLOT in sys.modules else None
        stamp: list[Any] = [
            drawing if PYPLOT in sys.modules else None,
            backend,
            values,
            list(dict.keys(settings)),
            [value[:] for value in values if type(value) is list],
        ]
        if not are_equal(stamp, self._stamp):
            self._stamp = stamp
            self._settings = {
                name: value[:] if type(value) is list else value
                for name, value in dict.items(settings)
                if name not in LEFT_ALONE
            }
            if PYPLOT in sys.modules:
                self._settings[INTERACTIVE] = drawing
                self._settings[BACKEND] = backend
        return self._settings

    def reference(self) -> Mapping[str, Any]:
        """Return matplotlib's own defaults; not its lists, which are changed in place together with ours."""
        return default_settings()

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the settings; what is left alone counts as neither changed nor removed."""
        reference = self.reference()
        return super().pack({**{name: reference[name] for name in LEFT_ALONE if name in reference}, **seen})

    def to_plain(self, name: str, value: object) -> object:
        """Return the value, a property cycle as what it is put together from."""
        return plain_setting(value)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set what this version of matplotlib knows."""
        matplotlib = sys.modules["matplotlib"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if BACKEND in changed and PYPLOT in sys.modules:
                _set_backend(*changed[BACKEND])
            if INTERACTIVE in changed and PYPLOT in sys.modules:
                _set_interactive(*changed[INTERACTIVE])
            for name, value in changed.items():
                if name in matplotlib.rcParamsDefault and name not in LEFT_ALONE:
                    matplotlib.rcParams[name] = setting_of(value)


def default_settings() -> dict[str, Any]:
    """Return matplotlib's own defaults without its lists."""
    defaults = dict.items(sys.modules["matplotlib"].rcParamsDefault)
    return {name: value for name, value in defaults if type(value) is not list}


def plain_setting(value: Any) -> object:
    """Return a setting in a form that travels: plain values would come back without tuples."""
    kind = type(value)
    if kind.__name__ == "Cycler":
        return [CYCLE, *_steps(value)]
    if kind is tuple or kind is list:
        return [*([TUPLE] if kind is tuple else ()), *map(plain_setting, value)]
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return [ARRAY, value.dtype.str, value.tolist(), kind.__name__ == "ndarray"]
    return value.value if isinstance(value, enum.Enum) else value


def setting_of(plain: Any) -> Any:
    """Return the setting of a form that travelled."""
    if type(plain) is not list:
        return plain
    first = plain[0] if plain and type(plain[0]) is str else ""
    if first == CYCLE:
        return _cycle(plain[1:])
    if first == TUPLE:
        return tuple(map(setting_of, plain[1:]))
    if first == ARRAY:
        _, kind, values, is_array = plain
        return sys.modules["numpy"].array(values, kind)[... if is_array else ()]
    return [setting_of(part) for part in plain]


def _backend(settings: RcParams) -> str:
    """Return the backend that pyplot draws with; nothing for one with windows, or that is not chosen yet."""
    chosen = dict.get(settings, "backend")
    return chosen if isinstance(chosen, str) and _plain(chosen) in WITHOUT_WINDOWS else ""


def _plain(backend: str) -> str:
    """Return a backend's short name."""
    return SHORT.get(backend, backend).lower()


def _shows_inline() -> bool:
    """Tell whether the shell shows the figures of a cell at its end."""
    flush = vars(sys.modules.get(INLINE, object)).get("flush_figures")
    shell = sys.modules["IPython"].get_ipython() if flush is not None else None
    return shell is not None and flush in shell.events.callbacks["post_execute"]


def _set_backend(backend: str, shows_inline: bool) -> None:
    """Have pyplot draw with a backend, and the shell show its figures where it did."""
    pyplot = sys.modules[PYPLOT]
    settings = sys.modules["matplotlib"].rcParams
    with contextlib.suppress(ImportError):
        if backend and _plain(_backend(settings)) != _plain(backend):
            pyplot.switch_backend(MODULES.get(_plain(backend), backend))
        if backend:
            dict.__setitem__(settings, "backend", backend)  # It may have two names.
        in_page = _plain(backend) in IN_PAGES and not shows_inline
        if in_page or (shows_inline and not _shows_inline()):
            inline = importlib.import_module(INLINE)
            shell = sys.modules["IPython"].get_ipython()
            if shell is not None:  # As `%matplotlib` does, which installs printers of figures, too.
                inline.configure_inline_support(shell, _plain(backend) if in_page else "inline")


def _set_interactive(interactive: bool, inline: bool) -> None:
    """Turn pyplot's interactive mode on or off, after the inline backend: it turns it on when it begins."""
    if inline and INLINE not in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(INLINE)
    if sys.modules["matplotlib"].is_interactive() != interactive:
        pyplot = sys.modules[PYPLOT]
        (pyplot.ion if interactive else pyplot.ioff)()


def _steps(cycle: Any) -> Iterator[Any]:
    """Yield how a property cycle is put together: a property and its values, or what joins the last two."""
    if cycle._right is not None:
        yield from _steps(cycle._left)
        yield from _steps(cycle._right)
        yield "+" if cycle._op is zip else "*"
    elif type(cycle._left) is not list:
        yield from _steps(cycle._left)
    else:
        for key in cycle.keys or ():
            yield [key, plain_setting([entry[key] for entry in cycle._left])]


def _cycle(steps: list[Any]) -> object:
    made: list[Any] = []
    for step in steps:
        if type(step) is list:
            made.append(sys.modules["cycler"].cycler(step[0], setting_of(step[1])))
        else:
            right, left = made.pop(), made.pop()
            made.append(left + right if step == "+" else left * right)
    return made[0]


# ``@colours``: which colours matplotlib's names stand for; themes of seaborn change those of single letters.
#
# Law: what is compared with is made from matplotlib's own tables, and looking takes microseconds.


_NAMES = "_colors_full_map"


class ColourNamesPart(OptionsPart):
    """The colours of matplotlib's names, the notebook's own among them."""

    cid = ComponentId("@colours")
    library = "matplotlib.colors"

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        super().__init__()

    def ready(self) -> bool:
        """Tell whether matplotlib's colours are imported to their end."""
        return "get_named_colors_mapping" in vars(sys.modules.get(self.library, object))

    def look(self) -> dict[str, Any]:
        """Return the colours by name: the same dictionary while nothing has changed."""
        names = _names()
        if names != self._known:
            self._known = dict(names)
        return self._known

    def reference(self) -> Mapping[str, Any]:
        """Return the colours that matplotlib gives its names."""
        return _own_colours()

    def to_plain(self, name: str, value: object) -> object:
        """Return a colour as matplotlib's settings are told."""
        return plain_setting(value)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Have the names stand for these colours."""
        names = _names()
        for name, value in changed.items():
            names[name] = setting_of(value)
        for name in removed:
            if name in names:
                del names[name]


def _names() -> Any:
    return vars(sys.modules["matplotlib.colors"])[_NAMES]


@functools.cache
def _own_colours() -> dict[str, Any]:
    """Return what matplotlib has at its import, made as it makes it."""
    tables = vars(sys.modules["matplotlib.colors"])
    known, tableau = tables["XKCD_COLORS"], tables["TABLEAU_COLORS"]
    return {
        **known,
        **{name.replace("grey", "gray"): colour for name, colour in known.items()},
        **tables["CSS4_COLORS"],
        **tableau,
        **{name.replace("gray", "grey"): colour for name, colour in tableau.items()},
        **tables["BASE_COLORS"],
    }
