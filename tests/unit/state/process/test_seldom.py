"""Settings that few notebooks touch, and which warnings were shown."""

from __future__ import annotations

import atexit
import decimal
import gc
import socket
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Iterator

import pytest

from replkernel.state.libraries.torch import WarnedOncePart
from replkernel.state.process.seldom_settings import SeldomPart
from replkernel.state.process.warnings import WarningsShownPart


@pytest.fixture(autouse=True)
def _settings_as_before() -> Iterator[None]:
    thresholds, timeout, show = gc.get_threshold(), socket.getdefaulttimeout(), vars(warnings)["_showwarnmsg"]
    yield
    gc.set_threshold(*thresholds)
    gc.enable()
    socket.setdefaulttimeout(timeout)
    threading.stack_size(0)
    vars(warnings)["_showwarnmsg"] = show


def _moved(source: str) -> bytes:
    """Run a cell under a part and return what the part says after it."""
    part = SeldomPart({})
    part.expect(source)
    exec(source, {})
    data = part.dump()
    assert data is not None
    return data


def test_settings_reach_the_other_process_and_come_back() -> None:
    source = (
        "import gc, socket, threading; gc.disable(); gc.set_threshold(901); socket.setdefaulttimeout(5.5)"
    )
    data = _moved(source + "; threading.stack_size(1 << 20)")
    gc.enable()
    gc.set_threshold(700)
    socket.setdefaulttimeout(None)
    threading.stack_size(0)
    there = SeldomPart({})
    there.load(data)
    there.settle()
    assert (gc.isenabled(), gc.get_threshold()[0], socket.getdefaulttimeout()) == (False, 901, 5.5)
    assert threading.stack_size() == 1 << 20
    socket.setdefaulttimeout(None)
    back = there.dump()
    assert back is not None
    assert back != data


def test_nothing_is_said_of_what_no_cell_named() -> None:
    part = SeldomPart({})
    part.expect("x = 1")
    gc.set_threshold(901)
    assert part.dump() is None
    part.expect("import gc")
    assert part.dump() is None


def test_a_setting_is_looked_at_when_a_cell_elsewhere_named_it() -> None:
    part = SeldomPart({})
    part.learn("def calm(): socket.setdefaulttimeout(3)")
    socket.setdefaulttimeout(3)
    assert part.dump() is not None


def test_looking_changes_nothing() -> None:
    threading.stack_size(1 << 20)
    part = SeldomPart({})
    part.expect("threading.stack_size(1 << 20)")
    part.dump()
    assert threading.stack_size() == 1 << 20


def test_a_function_for_the_exit_ties_the_notebook_here() -> None:
    part = SeldomPart({})
    part.expect("import atexit; atexit.register(print)")
    part.dump()
    assert part.stuck == ()
    atexit.register(_nothing)
    try:
        part.dump()
        assert "atexit" in part.stuck[0]
    finally:
        atexit.unregister(_nothing)


def test_a_finalizer_is_no_function_for_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weakref.finalize, "_registered_with_atexit", False)
    part = SeldomPart({})
    part.expect("import atexit, weakref; f = weakref.finalize(t, print)")
    held = _Target()
    finalizer = weakref.finalize(held, _nothing)
    try:
        part.dump()
        assert part.stuck == ()
    finally:
        finalizer.detach()
        atexit.unregister(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
        atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]


class _Target:
    """What a finalizer waits for."""


def _nothing() -> None:
    """Do nothing at the exit."""


@pytest.fixture
def library() -> Iterator[types.ModuleType]:
    """A library that warns."""
    module = types.ModuleType("a_warning_library")
    exec("import warnings\ndef warn(): warnings.warn('careful')", vars(module))
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_a_warning_shown_here_is_not_shown_there(
    library: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    warnings.resetwarnings()
    vars(warnings)["_showwarnmsg_impl"] = lambda message: print("shown", message.message)
    here = WarningsShownPart()
    assert here.dump() is None
    library.warn()
    data = here.dump()
    assert data is not None
    assert here.dump() == data
    vars(library)["__warningregistry__"].clear()
    there = WarningsShownPart()
    there.load(data)
    there.settle()
    assert there.dump() == data
    library.warn()
    assert capsys.readouterr().out == "shown careful\n"
    warnings.simplefilter("default")
    library.warn()
    assert capsys.readouterr().out == "shown careful\n"


def test_a_setting_neither_seen_nor_copied_ties_the_notebook_here() -> None:
    here, there = SeldomPart({}), SeldomPart({})
    source = "import codecs; codecs.register(find)"
    here.expect(source)
    there.learn(source)
    here.dump()
    there.dump()
    assert "codecs" in here.stuck[0]
    assert there.stuck == ()


def test_the_contexts_that_decimal_begins_with_reach_the_other_process() -> None:
    before = decimal.DefaultContext.prec
    try:
        data = _moved("import decimal; decimal.DefaultContext.prec = 33")
        decimal.DefaultContext.prec = before
        there = SeldomPart({})
        there.load(data)
        there.settle()
        assert decimal.DefaultContext.prec == 33
        assert there.dump() == data
    finally:
        decimal.DefaultContext.prec = before


def test_a_function_for_the_errors_of_codecs_ties_the_notebook() -> None:
    part = SeldomPart({})
    part.expect("import codecs; codecs.register_error('mine', print)")
    part.dump()
    assert "errors of codecs" in part.stuck[0]


def test_a_warning_that_torch_gives_once_is_shown_once_for_all_replicas(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warnings.resetwarnings()
    vars(warnings)["_showwarnmsg_impl"] = lambda message: print("shown", str(message.message).split(".")[0])
    beta = "This is in beta. (Triggered internally at /src/Beta.cpp:7.)"
    leaf = "The .grad of what is not a leaf Tensor is being accessed. (Triggered internally at /src/G.cpp:1.)"

    def warn(text: str, line: int) -> str:
        warnings.warn_explicit(text, UserWarning, "cell", line)
        return capsys.readouterr().out

    shown = vars(warnings)["_showwarnmsg"]
    here = WarnedOncePart()
    assert here.dump() is None
    assert warn(beta, 1) == "shown This is in beta\n"
    assert warn("of the notebook", 1) == "shown of the notebook\n"
    assert warn(leaf, 1) != ""
    data = here.dump()
    assert data is not None
    vars(warnings)["_showwarnmsg"] = shown
    there = WarnedOncePart()
    there.load(data)
    assert warn(beta, 2) == ""
    assert warn("of the notebook", 2) != ""
    assert warn(leaf, 2) != ""
    assert there.dump() == data
    assert warn(beta, 3) != "", "what comes again in one process comes each time"
    vars(warnings)["_showwarnmsg"] = shown
    third = WarnedOncePart()
    third.load(there.dump() or b"")
    assert warn(beta, 4) != ""
