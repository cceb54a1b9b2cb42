"""A package of somebody else's brings what captures know of a library."""

from __future__ import annotations

import importlib
import logging
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
from replkernel.state.process.library_counters import CountersPart
from replkernel.state.process.seldom_settings import SeldomPart
from tests.support.notebook import pair

LIBRARY = """
class Table:
    def __init__(self, rows):
        self.rows = rows

    def __reduce__(self):
        raise TypeError("cannot pickle 'Table' object")  # As classes in C say.

style = "plain"
drawn = 0
"""

RECORD = """
import sys
from replkernel.state.library import Counter, Library, Setting

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
        patch.setattr(index, "_looked_at", ())
        patch.setattr(reducer_table, "_ready", set(reducer_table._ready))
        patch.setattr(reducer_table, "_exact", dict(reducer_table._exact))
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


def test_a_fault_in_reducers_is_told_for_the_objects_of_their_library_alone(acme: Any) -> None:
    acme.reducers.write_text("raise ValueError('no such release')")
    acme.install("acme_replkernel:LIBRARY")
    one, two = pair()
    delta = one.run("import tables_of_acme as t\na = t.Table([1, 2]); b = 1", 1)
    (pin,) = [pin for record in delta.components for pin in record.pins]
    assert pin.name == "a"
    assert "ValueError: no such release" in pin.reason
    two.take(delta)
    assert two["b"] == 1


def test_what_a_record_refuses_is_told_in_its_words(acme: Any) -> None:
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
        ("acme_replkernel:NOT_ONE", "acme_replkernel:NOT_ONE is no Library, but a dict"),
        ("acme_replkernel:TAKEN", "acme_replkernel:TAKEN has loaders of numpy, as replkernel has"),
        (
            "acme_replkernel:ASTRAY",
            "acme_replkernel:ASTRAY names acme_replkernel.no, and there is no such module",
        ),
        ("acme_replkernel:GONE", "module 'acme_replkernel' has no attribute 'GONE'"),
    ],
)
def test_a_record_that_cannot_be_used_is_ignored_and_the_doctor_says_why(
    acme: Any, caplog: pytest.LogCaptureFixture, value: str, why: str
) -> None:
    with caplog.at_level(logging.WARNING):
        acme.install(value)
    assert caplog.messages == [f"The record 'acme' of a library is ignored: {why}."]
    assert check_libraries({}) == Finding("wrong", caplog.messages[0])
    assert index.libraries() == index.BUILT_IN


def test_the_doctor_names_the_records_of_installed_packages(acme: Any) -> None:
    acme.install("acme_replkernel:LIBRARY")
    assert check_libraries({}) == Finding("ok", "those built in; by other packages: acme")


def test_no_two_built_in_records_have_a_topic_or_a_module_in_common() -> None:
    topics = [topic for record in index.BUILT_IN for topic in record.loaders]
    modules = [module for record in index.BUILT_IN for module in record.reducers]
    assert len(topics) == len(set(topics))
    assert len(modules) == len(set(modules))
