"""What a user reads of an object that cannot travel: what it is, why it stays, and what to do about it."""

# ruff: noqa: E501 (a cell is one string)

from __future__ import annotations

import asyncio
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.errors import StateLostError
from replkernel.state.capture import reducer_table
from replkernel.state.hooks import registered
from replkernel.state.libraries import index
from replkernel.state.python.asyncio.finished import waits
from tests.support.notebook import Notebook, pair

CALLBACK = "import ctypes\nCB = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)\n"
NODE = "import ctypes\nclass Node(ctypes.Structure):\n    _fields_ = [('v', ctypes.c_int), ('link', ctypes.POINTER(ctypes.c_int))]\n"
LOCATION = "import replkernel\nclass Location:\n    def __init__(self, at): self.at = at\n"
REGISTER = "replkernel.register(Location, {}, Location)\n"


@pytest.fixture(autouse=True)
def no_registrations() -> Iterator[None]:
    """Leave no registration behind."""
    yield
    registered.clear()


def said(source: str) -> dict[str, str]:
    """Return what is said of the objects that a cell makes and that cannot travel, by where they are."""
    delta = Notebook("r1").run(source, 1)
    pins = [pin for component in delta.components for pin in component.pins]
    return {pin.path or pin.name: pin.reason for pin in pins}


POINTER_STAYS = (
    "It is the address of a function in the memory of this process, which leads nowhere in another one. Keep "
    "the Python function in a variable, or the library's name, and make the pointer in the cell that uses it."
)
NODE_STAYS = (
    "A Node holds addresses in the memory of this process (in `{}`), which lead nowhere in another one. Keep the "
    "values in a variable and make it from them, or say how: `__replkernel_dump__` in its class, or "
    "`replkernel.register`."
)
ADDRESS_STAYS = (
    "A {} holds an address in the memory of this process, which leads nowhere in another one. Keep what is "
    "there in a variable, and make the address from that in the cell that uses it."
)
SIMPLER = "It must return something simpler, from which load makes one: its values in a tuple or dictionary."


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        (CALLBACK + "cb = CB(lambda x: x + 1)", {"cb": POINTER_STAYS}),
        (CALLBACK + "acts = {'one': [CB(lambda x: x + 1)]}", {"acts['one'][0]": POINTER_STAYS}),
        (
            "import ctypes\nlength = ctypes.CFUNCTYPE(ctypes.c_size_t)(('strlen', ctypes.CDLL(None)))",
            {"length": POINTER_STAYS},
        ),
        (
            "import ctypes\nlibrary = ctypes.CDLL(None)\nlength = library.strlen",
            {
                "library": "What ctypes has loaded lies in the memory of this process. Keep its name, and load it "
                "where it is needed: `ctypes.CDLL(None)` in the cell that calls it.",
                "length": POINTER_STAYS,
            },
        ),
        (
            "import ctypes\nGet = ctypes.PYFUNCTYPE(ctypes.c_int)",
            {
                "Get": "It is a type of pointers to functions of a kind that ctypes makes anew at each call, so that "
                "another process cannot find it. Make it in the cell that uses it, or take one of CFUNCTYPE."
            },
        ),
        (NODE + "node = Node(1, ctypes.pointer(ctypes.c_int(5)))", {"node": NODE_STAYS.format("link")}),
        (
            NODE.replace("Node", "Part") + "class Node(ctypes.Structure):\n    _fields_ = [('parts', Part * 2)]\nnode = Node()",
            {"node": NODE_STAYS.format("parts[0].link")},
        ),
        (CALLBACK + "class Node(ctypes.Union):\n    _fields_ = [('v', ctypes.c_int), ('act', CB)]\nnode = Node(1)", {"node": NODE_STAYS.format("act")}),
        ("import ctypes\ntext = ctypes.c_char_p(b'text')", {"text": ADDRESS_STAYS.format("c_char_p")}),
        ("import ctypes\nholds = ctypes.py_object([1])", {"holds": ADDRESS_STAYS.format("py_object")}),
        (
            "import ctypes\nseen = ctypes.cast(ctypes.pointer(ctypes.c_int(3)), ctypes.POINTER(ctypes.c_char))",
            {
                "seen": "It points at memory of which nobody knows what object it is. Keep that object in a "
                "variable, and make the pointer from it in the cell that uses it."
            },
        ),
    ],
)  # fmt: skip
def test_an_object_that_holds_an_address_says_so_and_how_to_do_without(
    source: str, reasons: dict[str, str]
) -> None:
    assert said(source) == reasons


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        (CALLBACK + "none = CB()", "not none and type(none) is CB is ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)"),
        (
            "import ctypes\nBy = ctypes.CFUNCTYPE(None, ctypes.c_int, use_errno=True)",
            "By is ctypes.CFUNCTYPE(None, ctypes.c_int, use_errno=True)",
        ),
        ("import ctypes\nown = ctypes.pythonapi", "own is ctypes.pythonapi"),
        (
            NODE + "    def __replkernel_dump__(self): return self.v\n    @staticmethod\n"
            "    def __replkernel_load__(v): return Node(v)\nnode = Node(5)",
            "node.v == 5 and not node.link",
        ),
        ("import replkernel\n" + NODE + "replkernel.register(Node, lambda n: n.v, Node)\nnode = Node(5)", "node.v == 5"),
    ],
)  # fmt: skip
def test_the_advice_about_an_address_helps(source: str, holds: str) -> None:
    one, two = pair()
    assert two.take(one.run(source, 1)).failed == ()
    assert eval(holds, two.namespace)
    assert one.take(two.run("x = 1", 2)).failed == ()
    assert one.state.unfaithful == two.state.unfaithful == ()


@pytest.mark.parametrize(
    ("dump", "reason"),
    [
        ("lambda at: at", f"The registered dump of Location returned the object itself. {SIMPLER}"),
        ("lambda at: [at]", f"What the registered dump of Location returned holds the object itself. {SIMPLER}"),
        (
            "lambda at: at.missing",
            ("The registered dump of Location failed (AttributeError: 'Location' object has no attribute 'missing'). "
            "Mend it and register it again."),
        ),
        (
            "lambda at: exec('raise RuntimeError(\"no\\\\nroom\")')",
            "The registered dump of Location failed (RuntimeError: no room). Mend it and register it again.",
        ),
        (
            "lambda at: __import__('pickle').dumps(lambda: 0)",
            "The registered dump of Location failed (",
        ),
        (
            "lambda at: exit_()",
            "The registered dump of Location failed (SystemExit: 3). Mend it and register it again.",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("made", "where"), [("it = Location(1)", "it"), ("it = [Location(1), 'text']", "it[0]")]
)
def test_a_registered_dump_that_is_of_no_use_says_what_is_wrong(
    dump: str, reason: str, made: str, where: str
) -> None:
    found = said(f"{LOCATION}def exit_(): raise SystemExit(3)\n{REGISTER.format(dump)}{made}")
    assert list(found) == [where]
    assert found[where].startswith(reason)


@pytest.mark.parametrize(
    ("dump", "reason"),
    [
        ("self", f"Location.__replkernel_dump__ returned the object itself. {SIMPLER}"),
        ("vars(self)", f"What Location.__replkernel_dump__ returned holds the object itself. {SIMPLER}"),
        (
            "1 / 0",
            (
                "Location.__replkernel_dump__ failed (ZeroDivisionError: division by zero). Mend it, and make the object "
                "again with the class as it is then."
            ),
        ),
    ],
)
def test_a_class_whose_own_dump_is_of_no_use_says_what_is_wrong(dump: str, reason: str) -> None:
    own = f"    def __replkernel_dump__(self): return {dump}\n    __replkernel_load__ = None\n"
    assert said(f"{LOCATION}{own}it = Location(1); it.at = {{'up': it}}") == {"it": reason}


def test_every_object_that_is_in_its_own_dump_is_named_and_no_other() -> None:
    some = "Location.up = None\nats = [Location(number) for number in range(40)]\nfor at in ats[1::2]: at.up = at\n"
    source = LOCATION + REGISTER.format("lambda at: (at.at, at.up)") + some
    assert set(said(source)) == {f"ats[{number}]" for number in range(1, 40, 2)}


def test_an_object_may_be_in_the_dump_of_another_of_its_class() -> None:
    one, two = pair()
    source = (
        LOCATION
        + REGISTER.format("lambda at: at.at")
        + "it = Location(Location(Location(1))); again = [it, it]"
    )
    assert two.take(one.run(source, 1)).failed == ()
    assert two["it"].at.at.at == 1
    assert two["again"][0] is two["again"][1] is two["it"]


def test_a_dump_without_end_says_so() -> None:
    source = LOCATION + REGISTER.format("lambda at: Location(at.at)") + "it = Location(1)"
    assert said(source) == {
        "it": "It is nested too deeply (a chain of more than some 100,000 objects: keep them in a list), or "
        "what says how it is copied calls itself without end."
    }


@pytest.mark.parametrize(
    "source",
    [
        ("import select\nclass Own:\n    __slots__ = ('on',)\n"
        "    def __getstate__(self): raise TypeError(\"cannot pickle 'Own' object\")\n"
        "own = Own(); own.on = select.poll()"),
        "import queue\nclass Own(queue.SimpleQueue): pass\nown = Own()",
        "import ssl\nclass Own(ssl.SSLContext): pass\nown = Own(ssl.PROTOCOL_TLS_CLIENT)",
        "import mmap\nclass Own(mmap.mmap): pass\nown = Own(-1, 10)",
    ],
)  # fmt: skip
def test_a_class_of_the_users_is_no_librarys(source: str) -> None:
    assert said(source) == {
        "own": "Python cannot copy a Own to another process, and its class does not say how. "
        "Give it a `__replkernel_dump__` and a `__replkernel_load__`."
    }


def test_the_refusal_of_a_compiled_class_is_put_in_words() -> None:
    pytest.importorskip("pyarrow")
    source = (
        "import pyarrow as pa\nw = pa.ipc.new_stream(pa.BufferOutputStream(), pa.schema([('a', pa.int64())]))"
    )
    reason = "Its library has no way to copy a RecordBatchStreamWriter to another process."
    assert said(source) == {"w": reason}


def test_a_class_that_says_how_it_is_dumped_alone_is_refused_by_the_cell_that_makes_an_object() -> None:
    one, _ = pair()
    delta = one.run("class Half:\n    def __replkernel_dump__(self): return 1\nh = Half()", 1)
    (pin,) = [pin for record in delta.components for pin in record.pins]
    assert (pin.name, pin.cell) == ("h", 1)
    assert pin.reason.startswith("Half has a `__replkernel_dump__`, and no `__replkernel_load__` that makes")


def test_objects_of_a_release_that_is_built_otherwise_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("rebuilt_library")
    library.__version__ = "9.1"  # type: ignore[attr-defined]
    exec("class Table: pass", vars(library))
    monkeypatch.setitem(sys.modules, "rebuilt_library", library)
    monkeypatch.setitem(index.reducers, "rebuilt_library", "replkernel.state.libraries.no_such_part")
    monkeypatch.setattr(reducer_table, "_ready", set(reducer_table._ready))
    monkeypatch.setattr(reducer_table, "_unfit", {})
    one, _ = pair()
    delta = one.run("import rebuilt_library\nt = rebuilt_library.Table(); kind = rebuilt_library.Table", 1)
    (pin,) = [pin for record in delta.components for pin in record.pins]
    assert pin.name == "t"
    assert "this release of rebuilt_library 9.1 is built (ModuleNotFoundError" in pin.reason


COMPUTED = "Its result is still being computed by this process."


def test_a_future_that_has_not_ended_stays_and_ends_as_what_it_was() -> None:
    made = "import concurrent.futures as cf\nfu = cf.Future(); beside = [fu, 'fine']"
    one, two = pair()
    delta = one.run(made, 1)
    assert {pin.reason for component in delta.components for pin in component.pins} == {COMPUTED}
    two.take(delta)
    with pytest.raises(StateLostError, match=COMPUTED):
        two["fu"].result
    assert two["beside"][1] == "fine"
    two.take(one.run("fu.set_result([1])", 2))
    assert two["fu"].result(0) == [1]
    assert two["beside"][0] is two["fu"]


@pytest.mark.parametrize("end", ["fu.set_exception(ValueError('x'))", "fu.cancel()", "fu.set_result(2)"])
def test_a_future_that_has_ended_travels(end: str) -> None:
    one, two = pair()
    two.take(one.run(f"import concurrent.futures as cf\nfu = cf.Future(); {end}", 1))
    assert two["fu"].done()
    assert two["fu"].cancelled() is one["fu"].cancelled()


HANDLE = "A callback that waits on an event loop belongs to its process."


async def test_a_handle_stays_while_its_callback_waits() -> None:
    made = "import asyncio\nloop = asyncio.get_running_loop()\n"
    made += "late, soon = loop.call_later(60, print), loop.call_soon(int)\ndel loop"
    one, two = pair()
    delta = one.run(made, 1)
    assert {pin.name: pin.reason for component in delta.components for pin in component.pins} == {
        "late": HANDLE,
        "soon": HANDLE,
    }
    two.take(delta)
    with pytest.raises(StateLostError, match=HANDLE):
        two["late"].cancel
    one["late"].cancel()
    assert waits(one["soon"])
    await asyncio.sleep(0)
    assert not waits(one["soon"])


PANICS = """
class Panic(BaseException): pass
class Dumped:
    def __init__(self): self.x = 1
    def __getstate__(self): raise Panic('at index 3')
class Reduced:
    def __reduce_ex__(self, protocol): raise SystemExit(3)
class Loaded:
    def __init__(self): self.x = 1
    def __setstate__(self, state): raise Panic('at index 4')
"""


@pytest.fixture
def panicking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """Install a library whose ways to copy raise what is no Exception."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "panicking.py").write_text(PANICS)
    monkeypatch.syspath_prepend(place)
    yield importlib.import_module("panicking")
    del sys.modules["panicking"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import panicking\na = panicking.Dumped()", "Copying it failed (Panic: at index 3)."),
        ("import panicking\na = panicking.Reduced()", "Copying it failed (SystemExit: 3)."),
        (("class Own:\n    def __init__(self): self.going = (i for i in [1]); next(self.going)\n"
          "    def __reduce__(self): raise SystemExit(4)\na = Own()"), ""),
    ],
)  # fmt: skip
def test_a_way_to_copy_that_raises_no_exception_costs_its_object_alone(
    source: str, reason: str, panicking: types.ModuleType
) -> None:
    one, two = pair()
    delta = one.run(source + "; b = [1]; held = [a, 2]", 1)
    pins = [pin for component in delta.components for pin in component.pins]
    assert pins and all(reason in pin.reason for pin in pins)
    two.take(delta)
    assert two["b"] == [1] and two["held"][1] == 2


def test_a_way_to_load_that_raises_no_exception_costs_its_component_alone(
    panicking: types.ModuleType,
) -> None:
    one, two = pair()
    (failure,) = two.take(one.run("import panicking\na = panicking.Loaded(); b = [1]", 1)).failed
    assert failure.names == ("a",) and "Panic: at index 4" in failure.reason
    assert two["b"] == [1]


def test_an_interrupt_while_an_object_is_copied_ends_the_capture(panicking: types.ModuleType) -> None:
    panicking.Panic = KeyboardInterrupt  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        Notebook("r1").run("import panicking\na = panicking.Dumped()", 1)
