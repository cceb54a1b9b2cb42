"""What a notebook changes in libraries: found in its text, told as its own, put into another process."""

from __future__ import annotations

import collections.abc
import copyreg
import gc
import random
import sys
import textwrap
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from replkernel.state.patches.book import UNKNOWN, Book
from replkernel.state.patches.places import (
    ATTRIBUTE,
    CONTENT,
    DISPATCH,
    ENTRY,
    GIVEN,
    ITEM,
    SETTING,
    VIRTUAL,
    Place,
    place_of,
)
from replkernel.state.patches.sources import NOTHING, may_patch, plan_of, plan_of_module
from replkernel.state.patches.watch import Watch


@pytest.fixture
def library() -> Iterator[types.ModuleType]:
    """A library whose state a test may change."""
    source = """
    import functools
    class Thing:
        def size(self): return 1
    @functools.singledispatch
    def show(value): return 'any'
    def helper(): return "helper"
    limit = 10
    options = {'a': 1}
    names = ['x']
    cache = None
    def fill(): global cache; cache = object()
    tree = {'inner': {}}
    class configure:
        def __init__(self, **given): options.update(given); tree['inner'].update(given)
    class Themes:
        def __init__(self): self._known = {}; self._active = ''
        def enable(self, name): self._active = name
        table = property(lambda self: self._known)
        @property
        def default(self): return self._active
        @default.setter
        def default(self, name): self._known[name]; self._active = name
    themes = Themes()
    def use(name): themes.enable(name)
    registry = Themes()
    def register_name(name, value): registry._known[name] = value
    """
    module = types.ModuleType("a_library")
    module.__spec__ = types.SimpleNamespace(name="a_library")  # type: ignore[assignment]
    exec(textwrap.dedent(source), vars(module))
    sys.modules["a_library"] = module
    yield module
    del sys.modules["a_library"]


class Notebook:
    """A namespace with a watch."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.book = Book()
        self.watch = Watch(self.namespace, self.book)
        self.book.look = self.watch.compare

    def run(self, source: str) -> dict[str, Any]:
        """Run a cell; return the places that it, or a cell before it, changed."""
        self.watch.expect(source)
        exec(source, self.namespace)
        return self.book.values()


@pytest.fixture
def notebook(library: types.ModuleType) -> Iterator[Notebook]:
    made = Notebook()
    made.run("import a_library as lib")
    yield made
    made.book.clear()


@pytest.mark.parametrize(
    "source",
    [
        "pass",
        "x = 1",
        "df = f(x)\nprint(df.a == 1)",
        "y = df.groupby('a').sum()",
        "f(x, k=1)",
        "xs.append(1)",
    ],
)
def test_a_plain_cell_is_not_looked_at(source: str) -> None:
    assert not may_patch(source)


@pytest.mark.parametrize(
    ("source", "root"),
    [
        ("lib.limit = 20", "library a_library:limit"),
        ("lib.limit += 1", "library a_library:limit"),
        ("lib.new, y = 1, 2", "library a_library:new"),
        ("for lib.new in [1]: pass", "library a_library:new"),
        ("del lib.helper", "library a_library:helper"),
        ("setattr(lib, 'n' + 'ew', [1])", "library a_library:new"),
        ("vars(lib)['new'] = 1", "library a_library:new"),
        ("lib.__dict__['new'] = 1", "library a_library:new"),
        ("exec('lib.new = 1')", "library a_library:new"),
        ("lib.Thing.my = lambda self: 2", "library a_library:Thing.my"),
        ("type(lib.Thing()).my = 3", "library a_library:Thing.my"),
        ("for c in [lib.Thing]: c.my = lambda self: 2", "library a_library:Thing.my"),
        ("lib.options['b'] = 2", 'library a_library:options["b"]'),
        ("lib.options.update(a=5)", 'library a_library:options["a"]'),
        ("lib.names.append('y')", "library a_library:names[:]"),
        ("lib.configure(a=3)", 'library a_library:options["a"]'),
        ("lib.configure(b=3)", 'library a_library:tree.inner["b"]'),
        ("lib.themes.enable('dark')", "library a_library:themes._active"),
        ("lib.use('dark')", "library a_library:themes._active"),
        ("lib.themes.table['dark'] = 1", 'library a_library:themes._known["dark"]'),
        ("lib.show.register(int)(lambda value: 'int')", "library a_library:show.register(int@builtins)"),
        ("import sys; sys.modules['mine'] = 5", 'library sys:modules["mine"]'),
        ("from unittest import mock; mock.patch('a_library.limit', 3).start()", "library a_library:limit"),
    ],
)
def test_a_change_is_found(notebook: Notebook, source: str, root: str) -> None:
    assert root in notebook.run(source)


def test_a_call_of_a_local_variable_sets_no_library_up() -> None:
    plan = plan_of("import a\ndef f(axes):\n    fig = g()\n    axes.set(x=1); fig.set(y=2); a.set(z=3)")
    assert plan.settings == {("a", "set")}
    assert plan.inner


def test_a_dependency_of_a_place_may_come_after_it(library: types.ModuleType) -> None:
    book = Book()
    book.bind("library a_library:themes.default=", "dark")
    book.bind('library a_library:themes._known["dark"]', 1)
    assert library.themes.default == ""
    book.settle()
    assert library.themes.default == "dark"
    assert book.troubles == {}


def test_a_change_that_a_library_makes_by_itself_is_its_own(notebook: Notebook) -> None:
    assert notebook.run("lib.fill(); x = lib.helper; del x") == {}


@pytest.mark.parametrize(
    ("home", "is_notebooks"),
    [("pydevd", False), ("debugpy._vendored.force_pydevd", False), ("another_library", True)],
)
def test_a_debugger_that_comes_during_a_cell_is_no_doing_of_the_cells(
    notebook: Notebook, home: str, is_notebooks: bool
) -> None:
    came = {"__name__": home}
    exec("def hook(): pass", came)
    notebook.watch.expect("setattr(lib, 'limit', 10); import x")
    sys.modules["a_library"].hook = came["hook"]  # type: ignore[attr-defined]
    assert ("library a_library:hook" in notebook.book.values()) == is_notebooks


def test_a_function_of_the_notebook_is_watched_in_later_cells(notebook: Notebook) -> None:
    notebook.run("def change(module, value): module.added = value\ndef more(m, n, v): setattr(m, n, v)")
    assert notebook.run("change(lib, [1])") == {"library a_library:added": [1]}
    assert "library a_library:other" in notebook.run("more(lib, 'other', 5)")


def test_a_function_defined_on_another_replica_is_watched_too(notebook: Notebook) -> None:
    source = "def change(module, value): module.added = value"
    exec(source, notebook.namespace)
    notebook.watch.learn(source)
    assert notebook.run("change(lib, [1])") == {"library a_library:added": [1]}


def test_the_values_are_the_objects_themselves_and_live(notebook: Notebook) -> None:
    notebook.run("mine = [1]; lib.mine = mine")
    assert notebook.run("mine.append(2)")["library a_library:mine"] is notebook.namespace["mine"]


def test_a_change_taken_back_leaves_the_book(notebook: Notebook) -> None:
    notebook.run("old = lib.helper; lib.helper = lambda: old() + '!'")
    assert notebook.book.token_of(notebook.namespace["old"]) == "library a_library:helper"
    assert notebook.run("lib.helper = old") == {}
    assert notebook.book.token_of(notebook.namespace["old"]) is None


def test_another_process_puts_changes_in_and_takes_them_back(library: types.ModuleType) -> None:
    book, helper = Book(), library.helper
    roots = ["library a_library:helper", "library a_library:limit", 'library a_library:options["b"]']
    for root, value in zip(roots, [len, 99, 2], strict=True):
        book.bind(root, value)
    assert (library.helper, library.limit, library.options) == (len, 99, {"a": 1, "b": 2})
    assert book.original(roots[0]) is helper
    for root in roots:
        book.restore(root)
    assert (library.helper, library.limit, library.options) == (helper, 10, {"a": 1})
    assert len(book) == 0


@pytest.mark.parametrize("name", ["bound", "compiled", "wrapper"])
def test_a_function_that_is_none_of_pythons_is_given_back_when_another_replica_did(
    notebook: Notebook, library: types.ModuleType, name: str
) -> None:
    """As numpy's are: `np.random.rand` is a method, `np.exp` a ufunc."""
    vars(library).update(bound=random.Random(0).choice, compiled=numpy.exp, wrapper=str.__add__)
    first = getattr(library, name)
    notebook.run(f"lib.{name} = lambda *given: 'mine'")
    notebook.book.restore(f"library a_library:{name}")
    assert getattr(library, name) is first


def test_a_method_of_the_notebook_in_a_library_is_not_kept(
    notebook: Notebook, library: types.ModuleType
) -> None:
    notebook.namespace["lib"].hook = None
    notebook.run("class Mine:\n    def hook(self): ...\nmine = Mine(); vars(lib)['hook'] = mine.hook")
    gone = weakref.ref(notebook.namespace["mine"])
    notebook.book.clear()
    vars(library)["hook"] = notebook.namespace.pop("mine").hook
    notebook.run("lib.hook = None")
    gc.collect()
    assert gone() is None


def test_another_list_that_holds_the_same_is_a_change(library: types.ModuleType) -> None:
    book, root = Book(), "library a_library:names"
    book.bind(root, ["x", "y"])
    library.names.pop()
    assert book.values() == {root: ["x"]}


def test_a_users_module_is_told_also_where_it_is_as_imported(library: types.ModuleType) -> None:
    book, root = Book(), "library a_library:limit"
    book.is_users = lambda name: name == "a_library"
    book.bind(root, 11)
    library.limit = 10
    assert book.values() == {root: 10}
    del library.limit
    assert set(book.values()) == {root}


def test_a_value_that_the_notebook_put_there_is_no_librarys_own(library: types.ModuleType) -> None:
    book, root = Book(), "library a_library:limit"
    book.enter(place_of(root), UNKNOWN)
    book.bind(root, 12)
    library.limit = 10
    assert book.values() == {root: 10}


def test_a_deletion_is_a_change_as_well(notebook: Notebook, library: types.ModuleType) -> None:
    helper = library.helper
    found = notebook.run("del lib.helper")
    library.helper = helper
    there = Book()
    there.bind("library a_library:helper", found["library a_library:helper"])
    assert not hasattr(library, "helper")
    there.clear()
    assert library.helper is helper


def test_changes_wait_until_the_notebooks_modules_are_imported(library: types.ModuleType) -> None:
    book = Book()
    waiting = [True]
    book.waits = lambda: waiting[0]
    book.bind("library a_library:limit", 99)
    assert (library.limit, book.present()) == (10, {"library a_library:limit": 99})
    waiting.clear()
    book.waits = lambda: False
    book.settle()
    assert library.limit == 99
    book.clear()
    assert library.limit == 10


def test_a_newer_value_that_waits_does_not_hide_the_one_that_is_put(library: types.ModuleType) -> None:
    book, helper, root = Book(), library.helper, "library a_library:helper"
    waits = [False]
    book.waits = lambda: waits[0]
    library.helper = len
    book.enter(place_of(root), helper)
    waits[0] = True
    book.bind(root, sum)
    book.restore(root)
    assert library.helper is helper
    assert len(book) == 0


def test_a_change_that_cannot_be_put_is_told(library: types.ModuleType) -> None:
    book = Book()
    book.bind("library a_library:Gone.attribute", 1)
    (sentence,) = book.troubles.values()
    assert "library a_library:Gone.attribute" in sentence


def test_registrations_are_taken_back(library: types.ModuleType) -> None:
    book = Book()
    book.bind("library a_library:show.register(int@builtins)", (int, lambda value: "int"))
    assert library.show(1) == "int"
    book.clear()
    assert library.show(1) == "any"


def test_a_virtual_subclass_and_a_reducer_are_registered_again() -> None:
    class Mine:
        pass

    book = Book()
    label = "Mine@" + Mine.__module__
    book.bind(f"library collections.abc:Sequence.register(<{label}>)", Mine)
    book.bind(f"library copyreg:dispatch_table[<{label}>]", (Mine, repr))
    assert issubclass(Mine, collections.abc.Sequence)
    assert copyreg.dispatch_table.pop(Mine) is repr  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "place",
    [
        Place(ATTRIBUTE, "json", "", "dumps"),
        Place(ATTRIBUTE, "pandas", "DataFrame", "my"),
        Place(SETTING, "torch.backends.cudnn", "", "benchmark"),
        Place(SETTING, "a.b", "C.d", "e"),
        Place(ITEM, "a", "b.c", '"x]:.="'),
        Place(ENTRY, "copyreg", "dispatch_table", "P.<locals>.Q@__main__"),
        Place(ENTRY, "a", "formatters.text/plain.b", "P@__main__"),
        Place(CONTENT, "sys", "argv", ""),
        Place(DISPATCH, "a", "show", "int@builtins"),
        Place(GIVEN, "numpy", "seterrcall", "function"),
        Place(VIRTUAL, "collections.abc", "Sequence", "P@__main__"),
    ],
)
def test_a_places_name_leads_back_to_it(place: Place) -> None:
    assert place_of(place.root()) == place


def test_a_variables_name_is_no_place() -> None:
    with pytest.raises(ValueError, match="names no place"):
        place_of("string")


def test_a_source_that_is_no_python_names_nothing() -> None:
    assert plan_of("lib.x = = 1").stores == frozenset()


@pytest.mark.parametrize("waits", [False, True])
def test_a_change_that_rebuilding_put_there_stays_a_change(library: types.ModuleType, waits: bool) -> None:
    book = Book()
    book.waits = lambda: waits
    value = [1]
    library.options["mine"] = value
    book.bind('library a_library:options["mine"]', value)
    book.settle()
    assert book.values() == {'library a_library:options["mine"]': value}
    book.restore('library a_library:options["mine"]')
    assert library.options == {"a": 1}


def test_a_function_imported_by_its_name_is_a_librarys_too(notebook: Notebook) -> None:
    found = notebook.run("from a_library import show\n@show.register(float)\ndef _(value): return 'float'")
    assert "library a_library:show.register(float@builtins)" in found


def test_a_function_that_registers_is_known_by_its_own_name_too(notebook: Notebook) -> None:
    found = notebook.run("from a_library import register_name\nregister_name('mine', [1])")
    assert 'library a_library:registry._known["mine"]' in found
    found = notebook.run("def enter(): register_name('later', [2])")
    assert 'library a_library:registry._known["later"]' in notebook.run("enter()")


def test_a_change_that_waited_for_an_import_gives_way_to_a_newer_one() -> None:
    book, root = Book(), "library a_late_library:L"
    book.bind(root, [1])
    sys.modules["a_late_library"] = module = types.ModuleType("a_late_library")
    try:
        vars(module)["L"] = [1]
        newer = [1, 2]
        book.bind(root, newer)
        assert book.present()[root] is newer
        book.settle()
        assert vars(module)["L"] is newer
    finally:
        del sys.modules["a_late_library"]


def test_a_change_for_a_module_that_travels_by_value_is_not_put_there() -> None:
    book = Book()
    book.bind("library a_late_library:L", [1])
    book.let_go("a_late_library")
    sys.modules["a_late_library"] = module = types.ModuleType("a_late_library")
    try:
        vars(module)["L"] = ["by value"]
        book.settle()
        assert vars(module)["L"] == ["by value"]
    finally:
        del sys.modules["a_late_library"]


MODULE_OF_THE_USERS = """
import a_library as theirs

def patch(options):
    theirs.limit = 20
    theirs.options["b"] = 2
    options.level = 3

class Own:
    def __init__(self): self.theirs = theirs
"""


def test_a_users_module_may_change_what_it_imports() -> None:
    plan = plan_of_module(MODULE_OF_THE_USERS)
    assert {".".join((*chain, name)) for chain, name in plan.stores} == {"theirs.limit"}
    assert plan.filled == {("theirs", "options")}
    assert plan_of_module("import a_library\nlimit = a_library.limit\n") is NOTHING
    assert plan_of_module("class Own:\n    def __init__(self): self.limit = 1\n") is NOTHING


@pytest.mark.parametrize("now", [False, True])
def test_a_function_of_a_module_of_the_users_changes_a_library(notebook: Notebook, now: bool) -> None:
    module = types.ModuleType("users")
    exec(MODULE_OF_THE_USERS, vars(module))
    notebook.namespace.update(users=module, own=types.SimpleNamespace())
    if now:
        notebook.watch.expect("import users\nusers.patch(own)")
    notebook.watch.meet(MODULE_OF_THE_USERS, now)
    if not now:
        notebook.watch.expect("users.patch(own)")
    module.patch(notebook.namespace["own"])
    assert set(notebook.book.values()) == {
        "library a_library:limit",
        'library a_library:options["b"]',
    }
