"""Options of libraries: what a notebook set shows elsewhere, defaults are not told, functions are stuck."""

from __future__ import annotations

import copy
import decimal
import functools
import logging
import logging.handlers
import signal
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import MagicMock

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from replkernel.errors import StateLostError
from replkernel.state.libraries.matplotlib import open_figures as pyplot
from replkernel.state.libraries.matplotlib.settings import ColourNamesPart, MatplotlibPart
from replkernel.state.libraries.numpy.options import NumpyOptionsPart
from replkernel.state.libraries.pandas.options import PandasOptionsPart
from replkernel.state.libraries.seaborn import SeabornPart
from replkernel.state.libraries.torch import TorchOptionsPart
from replkernel.state.patches import given
from replkernel.state.patches.registries import changed_places
from replkernel.state.process.decimal_context import DecimalPart
from replkernel.state.process.interpreter import SignalsPart
from replkernel.state.process.library_generators import CountersPart
from replkernel.state.process.part import Part
from replkernel.state.process.warnings import WarningsPart
from replkernel.state.python.logging import places as loggers
from replkernel.state.python.logging.config import LoggingPart
from tests.support.notebook import Notebook, pair


@pytest.fixture(autouse=True)
def _options_as_before() -> Iterator[None]:
    settings = dict.copy(mpl.rcParams)
    with np.printoptions(), np.errstate(), decimal.localcontext():
        yield
    pd.reset_option("^display")
    dict.update(mpl.rcParams, settings)


def _told(part: Part[object]) -> bytes:
    data = part.dump()
    assert data is not None
    return data


def test_pandas_options_travel_and_defaults_do_not() -> None:
    here, there = PandasOptionsPart(), PandasOptionsPart()
    assert here.dump() is None
    pd.set_option("display.max_rows", 7)
    data = _told(here)
    assert b"max_columns" not in data
    pd.reset_option("display.max_rows")
    there.load(data)
    assert pd.get_option("display.max_rows") == 7


@pytest.mark.parametrize(("first", "second"), [(1, True), (0, False), (0.0, -0.0), (7, 7.0)])
def test_a_setting_that_becomes_an_equal_number_of_another_kind_travels(
    first: object, second: object
) -> None:
    here, there = PandasOptionsPart(), PandasOptionsPart()
    pd.set_option("display.chop_threshold", first)
    there.load(_told(here))
    pd.set_option("display.chop_threshold", second)
    data = _told(here)
    pd.set_option("display.chop_threshold", first)
    there.load(data)
    assert repr(pd.get_option("display.chop_threshold")) == repr(second)


def test_a_formatter_function_of_pandas_is_a_place_and_the_rest_travels() -> None:
    part = PandasOptionsPart()
    pd.set_option("display.float_format", lambda value: f"{value:.1f}")
    pd.set_option("display.max_rows", 9)
    assert b"max_rows" in _told(part)
    assert part.stuck == ()
    places = {place.root(): first for place, first in changed_places()}
    assert places == {'library pandas._config.config:_global_config.display["float_format"]': None}
    pd.reset_option("display.float_format")
    assert not list(changed_places())


def test_a_formatter_of_pandas_that_is_no_function_is_stuck() -> None:
    part = PandasOptionsPart()
    pd.set_option("display.float_format", functools.partial(round, ndigits=1))
    part.dump()
    assert len(part.stuck) == 1
    assert "display.float_format" in part.stuck[0]
    pd.reset_option("display.float_format")
    part.dump()
    assert part.stuck == ()


def test_a_texts_own_format_travels_as_a_formatter_of_pandas() -> None:
    here, there = PandasOptionsPart(), PandasOptionsPart()
    pd.set_option("display.float_format", "{:.1f}".format)
    data = _told(here)
    assert here.stuck == ()
    pd.reset_option("display.float_format")
    there.load(data)
    assert pd.get_option("display.float_format")(2.25) == "2.2"
    pd.reset_option("display.float_format")


def test_a_function_by_which_numpy_prints_is_a_place_and_stays_when_the_rest_is_set() -> None:
    part = NumpyOptionsPart()
    shown = {"float": lambda value: f"<{value:.1f}>"}
    np.set_printoptions(formatter=shown)
    part.dump()
    assert part.stuck == ()
    given = [place.root() for place, _ in changed_places()]
    assert given == ["library numpy:set_printoptions[given formatter]"]
    part.put({"print.linewidth": 60}, ())
    assert np.get_printoptions()["formatter"] is shown
    np.set_printoptions(formatter=None, linewidth=75)
    assert not list(changed_places())


def test_a_process_counts_on_where_another_was() -> None:
    symbols = pytest.importorskip("sympy.core.symbol", reason="the counter is sympy's")
    here, there = CountersPart(), CountersPart()
    before = symbols.Dummy._count
    last = symbols.Dummy("d").dummy_index
    data = _told(here)
    symbols.Dummy._count = before
    there.load(data)
    assert symbols.Dummy("d").dummy_index > last


def test_the_buffer_size_of_numpy_travels() -> None:
    here, there = NumpyOptionsPart(), NumpyOptionsPart()
    before = np.setbufsize(16 * 1024)
    data = _told(here)
    np.setbufsize(before)
    there.load(data)
    assert np.setbufsize(before) == 16 * 1024


def test_enumerated_settings_of_matplotlib_travel() -> None:
    here, there = MatplotlibPart(), MatplotlibPart()
    mpl.rcParams["lines.solid_capstyle"] = "round"
    data = _told(here)
    assert here.stuck == ()
    mpl.rcParams["lines.solid_capstyle"] = "butt"
    there.load(data)
    assert mpl.rcParams["lines.solid_capstyle"] == "round"


def test_names_of_colours_that_a_notebook_defined_travel() -> None:
    colors = pytest.importorskip("matplotlib.colors", reason="the names are matplotlib's")
    names = colors.get_named_colors_mapping()
    before = dict(names)
    here, there = ColourNamesPart(), ColourNamesPart()
    assert here.dump() is None
    try:
        names["k"], names["mine"] = (0.1, 0.1, 0.1), "#abcdef"
        del names["rebeccapurple"]
        data = _told(here)
        names.update(before)
        del names["mine"]
        there.load(data)
        assert colors.to_rgb("k") == names["k"] == (0.1, 0.1, 0.1)
        assert colors.to_hex("mine") == "#abcdef"
        assert "rebeccapurple" not in names
    finally:
        names.clear()
        names.update(before)
        names.cache.clear()


def test_autocast_that_was_entered_is_entered_elsewhere_and_can_be_left_there() -> None:
    torch = pytest.importorskip("torch", reason="autocast is torch's")
    here, there = TorchOptionsPart(), TorchOptionsPart()
    entered = torch.autocast("cpu", dtype=torch.bfloat16)
    entered.__enter__()
    data = _told(here)
    entered.__exit__(None, None, None)
    there.load(data)
    assert torch.is_autocast_enabled("cpu")
    entered.__exit__(None, None, None)
    assert not torch.is_autocast_enabled("cpu")
    assert torch.autocast_increment_nesting() == 1
    torch.autocast_decrement_nesting()


def test_how_torch_looks_for_nans_treats_tiny_numbers_and_attends_travels() -> None:
    torch = pytest.importorskip("torch", reason="the switches are torch's")
    here, there = TorchOptionsPart(), TorchOptionsPart()
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    flushes = torch.set_flush_denormal(True)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cuda.enable_flash_sdp(False)
    data = _told(here)
    torch.autograd.set_detect_anomaly(False)
    torch.set_flush_denormal(False)
    torch.backends.mha.set_fastpath_enabled(True)
    torch.backends.cuda.enable_flash_sdp(True)
    there.load(data)
    try:
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
        assert (torch.tensor(1e-310, dtype=torch.float64) * 0.5 == 0) == flushes
        assert not torch.backends.mha.get_fastpath_enabled()
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.autograd.set_detect_anomaly(False)
        torch.set_flush_denormal(False)
        torch.backends.mha.set_fastpath_enabled(True)
        torch.backends.cuda.enable_flash_sdp(True)


@pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy")  # The test's own copies of itertools.
def test_open_figures_are_put_under_their_numbers_without_using_up_callbacks() -> None:
    plt = pytest.importorskip("matplotlib.pyplot", reason="figures are open in pyplot")
    plt.close("all")
    figures = plt._pylab_helpers.Gcf.figs
    first, second = plt.figure(3), plt.figure(7)
    plt.figure(3)
    seen = pyplot.read_figures(figures)
    assert seen == [(7, second), (3, first)]
    plt.close("all")
    numbers = [next(copy.copy(figure._canvas_callbacks._cid_gen)) for figure in (first, second)]
    pyplot.put_figures(figures, seen)
    assert plt.get_fignums() == [3, 7]
    assert plt.gcf() is first
    assert [next(copy.copy(figure._canvas_callbacks._cid_gen)) for figure in (first, second)] == numbers
    pyplot.put_figures(figures, [(1, second)])
    assert plt.get_fignums() == [1]
    plt.close("all")


def test_numpy_print_and_error_options_travel() -> None:
    here, there = NumpyOptionsPart(), NumpyOptionsPart()
    np.set_printoptions(precision=3, suppress=True)
    np.seterr(divide="raise")
    data = _told(here)
    np.set_printoptions(precision=8, suppress=False)
    np.seterr(divide="warn")
    there.load(data)
    assert np.get_printoptions()["precision"] == 3
    assert np.get_printoptions()["suppress"] is True
    assert np.geterr()["divide"] == "raise"


def test_matplotlib_settings_travel_with_cycles() -> None:
    here, there = MatplotlibPart(), MatplotlibPart()
    before = mpl.rcParams["axes.prop_cycle"]
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=["r", "b"]) + mpl.cycler(lw=[1, 2])
    mpl.rcParams["figure.figsize"] = (3, 2)
    wanted = mpl.rcParams["axes.prop_cycle"]
    data = _told(here)
    mpl.rcParams["axes.prop_cycle"] = before
    mpl.rcParams["figure.figsize"] = (6.4, 4.8)
    there.load(data)
    assert mpl.rcParams["axes.prop_cycle"] == wanted
    assert list(mpl.rcParams["figure.figsize"]) == [3, 2]


def test_settings_that_seaborn_found_at_its_import_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "seaborn", raising=False)
    here, there = SeabornPart(), SeabornPart()
    assert here.dump() is None
    found = mpl.rcParamsDefault.copy()
    found["lines.linewidth"] = 7.0
    monkeypatch.setitem(sys.modules, "seaborn", SimpleNamespace(_orig_rc_params=found))  # type: ignore[arg-type]
    data = here.dump()
    assert data is not None
    monkeypatch.delitem(sys.modules, "seaborn")
    there.load(data)
    assert there.dump() == data
    late = mpl.rcParamsDefault.copy()
    late["axes.grid"], late["lines.linewidth"] = True, 8.0
    monkeypatch.setitem(sys.modules, "seaborn", SimpleNamespace(_orig_rc_params=late))  # type: ignore[arg-type]
    assert there.settle()
    assert not there.trouble
    assert dict(late) == dict(found)


def test_the_backend_of_pyplot_travels_unless_it_opens_windows() -> None:
    plots = pytest.importorskip("matplotlib.pyplot")
    here, there = MatplotlibPart(), MatplotlibPart()
    before = mpl.rcParams["backend"]
    try:
        plots.switch_backend("svg")
        data = _told(here)
        plots.switch_backend("agg")
        there.load(data)
        assert mpl.get_backend() == "svg"
        dict.__setitem__(mpl.rcParams, "backend", "tkagg")
        data = _told(here)
        dict.__setitem__(mpl.rcParams, "backend", "svg")
        there.load(data)
        assert mpl.get_backend() == "svg"
    finally:
        plots.switch_backend(before)


@pytest.mark.parametrize("name", ["notebook", "nbagg"])
def test_a_backend_that_draws_into_the_page_travels_under_its_name(name: str) -> None:
    plots = pytest.importorskip("matplotlib.pyplot")
    here, there = MatplotlibPart(), MatplotlibPart()
    before = mpl.rcParams["backend"]
    try:
        plots.switch_backend(name)
        data = _told(here)
        plots.switch_backend("agg")
        there.load(data)
        assert mpl.get_backend() == name
    finally:
        plots.switch_backend(before)


def test_inline_figures_stay_beside_a_backend_that_draws_into_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`switch_backend` leaves what `%matplotlib inline` has set up, other than `%matplotlib notebook`."""
    plots = pytest.importorskip("matplotlib.pyplot")
    from replkernel.state.libraries.matplotlib import settings

    asked: list[str] = []
    monkeypatch.setattr(settings, "_shows_inline", lambda: True)
    monkeypatch.setattr(
        "matplotlib_inline.backend_inline.configure_inline_support", lambda _, name: asked.append(name)
    )
    monkeypatch.setattr("IPython.get_ipython", MagicMock)
    monkeypatch.setattr(plots, "install_repl_displayhook", lambda: None)
    before = mpl.rcParams["backend"]
    try:
        settings._set_backend("nbagg", shows_inline=True)
        assert (mpl.get_backend(), asked) == ("nbagg", [])
        settings._set_backend("nbagg", shows_inline=False)
        assert asked == ["nbagg"]
    finally:
        plots.switch_backend(before)


def test_a_figure_that_draws_into_the_page_is_put_back_without_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plt = pytest.importorskip("matplotlib.pyplot", reason="figures are open in pyplot")
    from matplotlib.backends.backend_nbagg import FigureManagerNbAgg

    def show(manager: object) -> None:
        raise AssertionError("a figure came up under a cell that did not ask for it")

    before = mpl.rcParams["backend"]
    monkeypatch.setattr(FigureManagerNbAgg, "show", show)
    figures = plt._pylab_helpers.Gcf.figs
    try:
        plt.switch_backend("nbagg")
        plt.ioff()
        figure = plt.figure(3)
        del figures[3]
        plt.ion()
        pyplot.put_figures(figures, [(3, figure)])
        assert plt.isinteractive()
        assert plt.gcf() is figure
    finally:
        plt.ioff()
        figures.clear()
        plt.switch_backend(before)


def test_a_list_changed_in_place_is_seen() -> None:
    part = MatplotlibPart()
    fonts = list(mpl.rcParams["font.sans-serif"])
    assert part.dump() is None
    try:
        mpl.rcParams["font.sans-serif"].append("A Font Of Mine")
        assert b"A Font Of Mine" in _told(part)
    finally:
        mpl.rcParams["font.sans-serif"][:] = fonts


def test_the_decimal_context_travels_with_its_traps() -> None:
    here, there = DecimalPart(), DecimalPart()
    context = decimal.getcontext()
    context.prec = 50
    context.traps[decimal.Inexact] = True
    data = _told(here)
    decimal.setcontext(decimal.Context())
    there.load(data)
    assert decimal.getcontext().prec == 50
    assert decimal.getcontext().traps[decimal.Inexact]


def test_warning_filters_travel_in_their_order() -> None:
    here, there = WarningsPart(), WarningsPart()
    warnings.simplefilter("always")
    warnings.filterwarnings("error", message="careful.*", category=UserWarning, module="mine")
    data = _told(here)
    wanted = list(warnings.filters)
    warnings.resetwarnings()
    there.load(data)
    assert list(warnings.filters) == wanted


def test_a_filter_of_an_unknown_category_waits_until_its_module_is_there() -> None:
    category = type("HouseWarning", (Warning,), {"__module__": "house"})
    here, there = WarningsPart(), WarningsPart()
    warnings.simplefilter("ignore", category)
    data = _told(here)
    warnings.resetwarnings()
    there.load(data)
    assert not any(entry[2] is category for entry in warnings.filters)
    house = type(sys)("house")
    house.__dict__["HouseWarning"] = category
    sys.modules["house"] = house
    try:
        there.settle()
        assert any(entry[2] is category for entry in warnings.filters)
    finally:
        del sys.modules["house"]


def test_logging_levels_and_stream_handlers_travel() -> None:
    logging.root.handlers[:] = []
    here, there = LoggingPart(), LoggingPart()
    logging.basicConfig(level=logging.DEBUG, format="%(name)s says %(message)s", stream=sys.stderr)
    logging.getLogger("notebook.part").setLevel(logging.ERROR)
    data, handlers, chunks = _told(here), loggers.read(loggers.ROOT), dict[str, bytes]()
    assert handlers is not None
    one, two = (Notebook(name, chunks) for name in ("r1", "r2"))
    one.namespace["held"] = handlers[1]
    delta = one.run("import logging; logger = logging.getLogger('notebook.part')", 1)
    assert here.stuck == ()
    assert not any(component.pins for component in delta.components)
    logging.root.handlers[:] = []
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("notebook.part").setLevel(logging.NOTSET)
    there.load(data)
    there.load(data)
    assert two.take(delta).failed == ()
    assert logging.root.level == logging.DEBUG
    assert [handler.format(_record()) for handler in logging.root.handlers] == ["x says hello"]
    assert logging.root.handlers[0] is two["held"] is not handlers[1]
    assert logging.getLogger("notebook.part").level == logging.ERROR
    logging.getLogger("notebook.part").setLevel(logging.NOTSET)
    logging.root.handlers[:] = []


def test_handlers_that_a_process_had_at_its_start_stay_its_own() -> None:
    own, mine = logging.NullHandler(), logging.NullHandler()
    logging.root.handlers[:] = [own]
    LoggingPart()
    logging.root.addHandler(mine)
    assert loggers.read(loggers.ROOT) == (1, mine)
    loggers.put(loggers.ROOT, (0,))
    assert logging.root.handlers == [own]
    logging.root.handlers[:] = []


def test_a_logger_that_another_thread_makes_meanwhile_does_not_upset_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part, manager = LoggingPart(), logging.root.manager

    class Met(logging.Logger):
        """One of a library that another thread imports: while it is looked at, the next one is made."""

        @property
        def level(self) -> int:
            logging.getLogger("after_it")
            return logging.DEBUG

        @level.setter
        def level(self, value: int) -> None:
            pass

    monkeypatch.setattr(manager, "loggerDict", {"met": Met("met")})
    assert part.look()["met"][0] == logging.DEBUG
    assert "after_it" in part.look()


def test_warnings_go_to_a_logger_on_every_replica() -> None:
    here, there = LoggingPart(), LoggingPart()
    shows = warnings.showwarning
    logging.captureWarnings(True)
    data = _told(here)
    logging.captureWarnings(False)
    there.load(data)
    assert warnings.showwarning is not shows
    logging.captureWarnings(False)
    assert warnings.showwarning is shows


def _record() -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "f", 1, "hello", None, None)


def test_a_handler_that_talks_to_somebody_is_named() -> None:
    handler = logging.handlers.SocketHandler("localhost", 1)
    LoggingPart()
    logging.root.addHandler(handler)
    try:
        delta = Notebook("r1").run("pass", 1)
        (pin,) = [pin for component in delta.components for pin in component.pins]
        assert "SocketHandler" in pin.reason
    finally:
        logging.root.removeHandler(handler)


def test_one_that_talks_to_somebody_is_named_also_once_logging_was_reloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = Notebook("r1")
    executor.namespace["h"] = logging.handlers.SocketHandler("localhost", 1)
    with monkeypatch.context() as reloaded:
        reloaded.setattr(logging, "Handler", type("Handler", (logging.Filterer,), {"__module__": "logging"}))
        delta = executor.run("pass", 1)
    (pin,) = [pin for component in delta.components for pin in component.pins]
    assert "SocketHandler" in pin.reason


def test_a_handler_that_puts_records_into_a_queue_travels_with_the_queue() -> None:
    one, two = pair()
    make = "import logging, logging.handlers, queue\nq = queue.Queue(); h = logging.handlers.QueueHandler(q)"
    two.take(one.run(make, 1))
    record = "logging.LogRecord('x', logging.INFO, 'f', 1, 'hello %s', ('you',), None)"
    one.take(two.run(f"h.handle({record})", 2))
    assert one["h"].queue is one["q"]
    assert one["q"].get_nowait().getMessage() == "hello you"
    two.take(one.run("q = (n for n in range(3)); next(q); h = logging.handlers.QueueHandler(q)", 3))
    with pytest.raises(StateLostError, match="generator"):
        next(two["h"].queue)


def test_a_signal_that_is_first_ignored_is_not_when_that_is_undone() -> None:
    here = SignalsPart()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert here.dump()
        here.revert()
        assert signal.getsignal(signal.SIGUSR1) == before
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_ignored_signal_travels_and_a_python_handler_is_a_place() -> None:
    here, there = SignalsPart(), SignalsPart()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        data = _told(here)
        signal.signal(signal.SIGUSR1, before)
        there.load(data)
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN

        def handler(_number: int, _frame: object) -> None:
            pass

        signal.signal(signal.SIGUSR1, handler)
        there.load(_told(here))
        assert signal.getsignal(signal.SIGUSR1) is handler
        assert list(given.changed_entries()) == [(*given.SIGNALS, "SIGUSR1")]
    finally:
        signal.signal(signal.SIGUSR1, before)
