"""A package of somebody else's brings what captures know of a library."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel import loaders
from replkernel.cli.doctor import Finding, check_libraries
from replkernel.state.capture import reducer_table
from replkernel.state.libraries import index
from replkernel.state.process.library_generators import CountersPart
from replkernel.state.process.parts import built_in_parts
from replkernel.state.process.seldom_settings import SeldomPart
from tests.support.notebook import pair

LIBRARY = """
class Table:
    def __init__(self, rows):
        self.rows = rows

    def __reduce__(self):
        raise TypeError("cannot pickle 'Table' object")  # As classes in C say.

style = "plain"
drawn = made = 0
"""

RECORD = """
import sys
from replkernel.state.library import Counter, Library, Setting
from replkernel.state.process.part import Part

def read():
    library = sys.modules.get("tables_of_acme")
    return library and library.style

def put(value):
    import tables_of_acme
    tables_of_acme.style = value

LIBRARY = Library(
    name="acme",
    reducers={"tables_of_acme": "acme_replkernel.reducers"},
    loaders={"acme": ("acme_replkernel.reducers",)},
    settings={"style of acme": Setting(("style",), read, put)},
    counters=(Counter("tables_of_acme", "", "drawn"),),
)
NOT_ONE = {"name": "acme"}

def with_setting(name, *fields):
    return Library(name="acme", settings={name: Setting(*fields)})

PLAIN = Library(name="acme", settings={"style of acme": (("style",), read, put)})
LETTERS = with_setting("style of acme", "style", read, put)
NAMELESS = with_setting("umask", ("style",), read, put)
PYTHONS = Library(name="regex", loaders={"regex": ("acme_replkernel.reducers",)})
TORCHS = Library(name="acme", reducers={"torch": "acme_replkernel.reducers"})

class Half(Part):
    cid = "@acme"
    def look(self): return 1

HALF = Library(name="acme", parts=(Half,))

class Broken(Half):
    def __init__(self): raise OSError("no licence")
    def pack(self, seen): return b""
    def apply(self, data): pass

BROKEN = Library(name="acme", parts=(Broken,))
UNREADABLE = with_setting("style of acme", ("style",), lambda: 1 / 0, put)
COUNTED = [Counter("tables_of_acme", "", name) for name in ("drawn", "made")]
TWO = Library(name="acme", counters=tuple(COUNTED))
ASTRAY = Library(name="acme", reducers={"tables_of_acme": "acme_replkernel.no"})
TAKEN = Library(name="numpy", loaders={"numpy": ("acme_replkernel.reducers",)})
"""

REDUCERS = """
import tables_of_acme
from replkernel.state.library import CannotTravel, ReducerContext, loader

def reduce_table(context: ReducerContext, table):
    if table.rows is None:
        raise CannotTravel("A table of acme that is being filled stays here: finish it first.")
    context.module_needed("tables_of_acme")
    return make_table, (table.rows,)

@loader("acme:make_table")
def make_table(rows):
    return tables_of_acme.Table(rows)

EXACT = {tables_of_acme.Table: reduce_table}
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install a library, and a package with its record; the function writes other entry points."""
    (tmp_path / "tables_of_acme.py").write_text(LIBRARY)
    package = tmp_path / "acme_replkernel"
    package.mkdir()
    (package / "__init__.py").write_text(RECORD)
    (package / "reducers.py").write_text(REDUCERS)
    about = tmp_path / "acme_replkernel-1.0.dist-info"

    def install(value: str) -> None:
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-replkernel\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{index.GROUP}]\nacme = {value}\n")
        index.look()

    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        patch.setattr(index, "_installed", ())
        patch.setattr(index, "reducers", index.reducers.copy())
        patch.setattr(index, "_looked_at", ())
        patch.setattr(reducer_table, "_ready", set(reducer_table._ready))
        for name, held in vars(reducer_table).items():
            if name in ("_exact", "_families", "_tests", "_natural", "_unfit"):
                patch.setattr(reducer_table, name, held.copy())
        index.look()
        yield SimpleNamespace(install=install, reducers=package / "reducers.py")
    for name in ("tables_of_acme", "acme_replkernel", "acme_replkernel.reducers"):
        sys.modules.pop(name, None)
    vars(loaders).pop("acme:make_table", None)


def test_an_installed_package_teaches_captures_a_library(acme: Any) -> None:
    acme.install("acme_replkernel:LIBRARY")
    one, two = pair()
    two.take(one.run("import tables_of_acme as t\na = t.Table([1, 2]); both = [a, a]", 1))
    assert two["a"].rows == [1, 2]
    assert two["both"][0] is two["both"][1] is two["a"]


TESTED = REDUCERS.replace("EXACT = {tables_of_acme.Table: reduce_table}", "TESTS = [({test}, reduce_table)]")


@pytest.mark.parametrize("named", ["", "\nTESTED_MODULES = ('tables_of_acme',)"])
def test_a_test_of_an_installed_package_is_asked_of_the_notebooks_children_of_its_classes(
    acme: Any, named: str
) -> None:
    test = "lambda cls: issubclass(cls, tables_of_acme.Table)"
    acme.reducers.write_text(TESTED.replace("{test}", test) + named)
    acme.install("acme_replkernel:LIBRARY")
    one, _ = pair()
    delta = one.run("import tables_of_acme as t\nclass Own(t.Table): pass\na = Own(None)", 1)
    (pin,) = [pin for record in delta.components for pin in record.pins]
    assert pin.reason.startswith("A table of acme that is being filled stays here")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise ValueError('no such release')", "ValueError: no such release"),
        ("import tables_of_acme as t\nFAMILIES = [t.Table]", "TypeError: "),
        (
            "import tables_of_acme as t\nEXACT = {t.Table: 'reduce'}",
            "TypeError: acme_replkernel.reducers has no",
        ),
        ("EXACT = {tuple: print}", "TypeError: acme_replkernel.reducers has reducers for tuple"),
        ("TESTS = [(lambda cls: cls.__acme__, print)]", "AttributeError: "),
        ("TESTED_MODULES = 'tables_of_acme'\nTESTS = [(callable, print)]", "TypeError: the TESTED_MODULES"),
    ],
)
def test_a_fault_in_reducers_is_told_for_the_objects_of_their_library_alone(
    acme: Any, text: str, why: str
) -> None:
    acme.reducers.write_text(text)
    acme.install("acme_replkernel:LIBRARY")
    one, two = pair()
    delta = one.run("import tables_of_acme as t\nclass Own: pass\nb = Own(); b.x = 1\na = t.Table([1, 2])", 1)
    (pin,) = [pin for record in delta.components for pin in record.pins]
    assert pin.name == "a"
    assert why in pin.reason
    two.take(delta)
    assert two["b"].x == 1


def test_a_records_refusal_is_told_in_its_words(acme: Any) -> None:
    acme.install("acme_replkernel:LIBRARY")
    one, _ = pair()
    delta = one.run("import tables_of_acme as t\na = t.Table(None)", 1)
    (pin,) = [pin for record in delta.components for pin in record.pins]
    assert (pin.name, pin.reason) == (
        "a",
        "A table of acme that is being filled stays here: finish it first.",
    )


def test_settings_and_counters_of_a_record_travel(acme: Any) -> None:
    acme.install("acme_replkernel:LIBRARY")
    seldom = SeldomPart({})
    seldom.expect("import tables_of_acme as t; t.style = 'bold'")
    library: Any = importlib.import_module("tables_of_acme")
    library.style, library.drawn = "bold", 7
    told = seldom.dump()
    counters = CountersPart()
    library.drawn = 8
    counted = counters.dump()
    library.style, library.drawn = "plain", 0
    assert told is not None and counted is not None
    other = SeldomPart({})
    other.load(told)
    other.settle()
    CountersPart().load(counted)
    assert (library.style, library.drawn) == ("bold", 8)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("NOT_ONE", "it is no Library, but a dict"),
        ("TAKEN", "its loaders have the topic 'numpy', which is taken: choose another one"),
        ("PYTHONS", "its loaders have the topic 'regex', which is taken: choose another one"),
        ("TORCHS", "its reducers are for torch, which has some already"),
        ("PLAIN", "its settings have a tuple for 'style of acme', which is to be a Setting"),
        (
            "LETTERS",
            "the words of its setting 'style of acme' are to be a tuple of texts of 3 letters or more",
        ),
        ("NAMELESS", "its setting 'umask' is to have acme in its name"),
        ("HALF", "Half lacks apply, pack"),
        ("ASTRAY", "it names acme_replkernel.no, and there is no such module"),
        ("GONE", "AttributeError: module 'acme_replkernel' has no attribute 'GONE'"),
    ],
)
def test_a_record_that_cannot_be_used_is_ignored_and_the_doctor_says_why(
    acme: Any, caplog: pytest.LogCaptureFixture, value: str, why: str
) -> None:
    with caplog.at_level(logging.WARNING):
        acme.install(f"acme_replkernel:{value}")
    ignored = f"The record 'acme' of a library (acme_replkernel:{value}) is ignored: {why}."
    assert caplog.messages == [ignored]
    assert check_libraries({}) == Finding("wrong", caplog.messages[0])
    assert index.libraries() == index.BUILT_IN


def test_records_are_not_read_anew_for_a_place_without_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.look()
    looks: list[index.Installed] = []

    def read() -> index.Installed:
        looks.append(index.Installed({}, []))
        return looks[-1]

    monkeypatch.setattr(index, "installed", read)
    monkeypatch.setattr(index, "_looked_at", index._looked_at)
    bare, full = tmp_path / "bare", tmp_path / "full"
    bare.mkdir()
    (full / "acme-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(bare), *sys.path])
    index.look()
    assert looks == []
    monkeypatch.setattr(sys, "path", [*sys.path, str(full)])
    index.look()
    assert len(looks) == 1


def test_the_doctor_names_the_records_of_installed_packages(acme: Any) -> None:
    acme.install("acme_replkernel:LIBRARY")
    assert check_libraries({}) == Finding("ok", "those built in; by other packages: acme")


def test_no_two_built_in_records_have_a_topic_or_a_module_in_common() -> None:
    topics = [topic for record in index.BUILT_IN for topic in record.loaders]
    modules = [module for record in index.BUILT_IN for module in record.reducers]
    assert len(topics) == len(set(topics))
    assert len(modules) == len(set(modules))


def test_state_that_a_record_cannot_make_or_read_leaves_the_rest_alone(
    acme: Any, caplog: pytest.LogCaptureFixture
) -> None:
    acme.install("acme_replkernel:BROKEN")
    with caplog.at_level(logging.ERROR):
        assert "@acme" not in [part.cid for part in built_in_parts()]
    assert "no licence" in caplog.text


def test_a_setting_that_cannot_be_read_is_told_and_the_others_travel(acme: Any) -> None:
    acme.install("acme_replkernel:UNREADABLE")
    seldom = SeldomPart({})
    before = os.umask(0o022)
    try:
        seldom.expect("t.style = 1; os.umask(0o077)")
        os.umask(0o077)
        told = seldom.dump()
        assert told is not None and b"umask" in told
        assert [why for why in seldom.stuck if "acme" in why] == [
            "The notebook's style of acme cannot be read (ZeroDivisionError: division by zero)."
        ]
    finally:
        os.umask(before)


def test_two_counters_of_one_module_go_on_each_by_itself(acme: Any) -> None:
    acme.install("acme_replkernel:TWO")
    library: Any = importlib.import_module("tables_of_acme")
    counters = CountersPart()
    library.drawn, library.made = 100, 3
    counted = counters.dump()
    library.drawn, library.made = 0, 5
    assert counted is not None
    CountersPart().load(counted)
    assert (library.drawn, library.made) == (100, 5)
