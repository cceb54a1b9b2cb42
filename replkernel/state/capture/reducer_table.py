"""The table of reducers: by exact type, by family, by hook, and what is left to pickle itself.

A reducer gets the pickler and an object and returns what `__reduce_ex__` may return; NotImplemented leaves
the object to pickle itself. It changes nothing, reads no property and consumes no iterator.
Law: optional libraries are looked at only once they are imported; a user's type is held for one capture.
"""

from __future__ import annotations

import copyreg
import importlib
import logging
import sys
from collections.abc import Callable
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from replkernel.state.capture import library_instances, refusals, registered, sentinels
from replkernel.state.capture.outcomes import Reducer
from replkernel.state.capture.registered import load_by_class, load_child, load_registered  # noqa: F401 - checkpoints of older releases name them here
from replkernel.state.format import roots, stand_ins
from replkernel.state.libraries import index
from replkernel.state.process import library_generators
from replkernel.state.python import (
    classes,
    codes,
    contexts,
    copied_contexts,
    dict_iterators,
    enums,
    exceptions,
    functions,
    generators,
    hidden_parts,
    instances,
    iterator_adapters,
    left_out,
    lru_caches,
    methods,
    mmap,
    modules,
    namespaces,
    own_weakrefs,
    regex,
    small_values,
    threading,
    typing,
    views,
    weakrefs,
    whole_states,
)
from replkernel.state.python.asyncio import finished as finished_work
from replkernel.state.python.ctypes import functions as c_functions
from replkernel.state.python.ctypes import structs as c_structs
from replkernel.state.python.files import closed as closed_owners
from replkernel.state.python.files import compressors as finished_streams
from replkernel.state.python.files import directories
from replkernel.state.python.files import opened as files
from replkernel.state.python.files import packed as packed_files
from replkernel.state.python.finalizers import has_finalizer
from replkernel.state.python.kinds import Odd, entry_of, key_of, lineage, module_of
from replkernel.state.python.logging import loggers
from replkernel.state.python.sqlite3 import connections as databases
from replkernel.state.python.sqlite3 import cursors as database_cursors
from replkernel.state.python.sqlite3 import images as database_images

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.world import World

log = logging.getLogger(__name__)

_PARTS = (
    iterator_adapters,
    c_functions,
    c_structs,
    classes,
    closed_owners,
    codes,
    contexts,
    copied_contexts,
    database_cursors,
    database_images,
    databases,
    dict_iterators,
    directories,
    enums,
    exceptions,
    files,
    finished_streams,
    finished_work,
    functions,
    hidden_parts,
    generators,
    left_out,
    library_generators,
    loggers,
    lru_caches,
    mmap,
    regex,
    methods,
    modules,
    namespaces,
    own_weakrefs,
    packed_files,
    refusals,
    sentinels,
    small_values,
    stand_ins,
    threading,
    typing,
    views,
    weakrefs,
)
"""What is of several families has the reducer of the first."""

_OF_PYTHON = {
    "csv": "replkernel.state.python.csv",
    "decimal": "replkernel.state.python.decimal",
    "unittest.mock": "replkernel.state.python.mock",
    "multiprocessing.context": "replkernel.state.python.multiprocessing.contexts",
    "multiprocessing.pool": "replkernel.state.python.multiprocessing.pools",
    "multiprocessing.process": "replkernel.state.python.multiprocessing.processes",
    "multiprocessing.shared_memory": "replkernel.state.python.multiprocessing.shared_memory",
    "tarfile": "replkernel.state.python.files.tar_members",
}
"""Modules of Python's library, and where the reducers for their classes are, once they are imported."""

_exact: dict[type, Reducer] = {**roots.EXACT, roots.ClassBody: classes.reduce_body}
_families: dict[type, tuple[int, Reducer]] = {}
"""Reducers of children of a class; of several the one that came first, by its number, is asked."""
_tests: list[tuple[frozenset[str], Callable[[type], bool], Reducer]] = []
"""Reducers of classes for which a test holds.

Where modules are named, it is asked only of what is, or derives from, a class of one of them.
"""
_natural: list[tuple[Callable[[type], bool], Reducer]] = []
"""Reducers of classes of libraries that do not say themselves how they pickle."""
_ready: set[str] = set()
_unfit: dict[str, str] = {}
"""Libraries whose release is built otherwise than their reducers know, and how that showed."""


def _take(part: object) -> None:
    _exact.update(getattr(part, "EXACT", {}))
    for family, reducer in getattr(part, "FAMILIES", ()):
        if key_of(family) is not Odd:
            _families.setdefault(family, (len(_families), reducer))
    modules = frozenset(getattr(part, "TESTED_MODULES", ()))
    _tests.extend((modules, test, reducer) for test, reducer in getattr(part, "TESTS", ()))
    _natural.extend(getattr(part, "NATURAL", ()))


def _take_foreign(part: Any, library: str) -> None:
    """Take what another package's module has, once all of it has its shape; a test that fails says no."""

    def guarded(test: Any) -> Callable[[type], bool]:
        def answer(cls: type) -> bool:
            try:
                return bool(test(cls))
            except Exception as error:
                _unfit[library] = f"{type(error).__name__}: {error}"
                return False

        return answer

    exact = dict(getattr(part, "EXACT", {}))
    families = [(cls, reducer) for cls, reducer in getattr(part, "FAMILIES", ())]
    tests = [(guarded(test), reducer) for test, reducer in getattr(part, "TESTS", ())]
    natural = [(guarded(test), reducer) for test, reducer in getattr(part, "NATURAL", ())]
    kinds = (*exact, *(cls for cls, _ in families))
    reducers = (*exact.values(), *(reducer for _, reducer in (*families, *tests, *natural)))
    modules = getattr(part, "TESTED_MODULES", ())
    if isinstance(modules, str) or not all(isinstance(module, str) for module in modules):
        raise TypeError(f"the TESTED_MODULES of {part.__name__} are to be a tuple of modules' names")
    if not all(isinstance(cls, type) for cls in kinds) or not all(map(callable, reducers)):
        raise TypeError(f"{part.__name__} has no classes or no functions where its tables are to have such")
    if taken := [cls.__name__ for cls in kinds if cls in _exact or module_of(cls) == "builtins"]:
        raise TypeError(f"{part.__name__} has reducers for {', '.join(taken)}, which have some already")
    _take(
        SimpleNamespace(
            EXACT=exact,
            FAMILIES=families,
            TESTED_MODULES=modules,
            TESTS=tests,
            NATURAL=natural,
        )
    )


for _part in _PARTS:
    _take(_part)
_take(SimpleNamespace(FAMILIES=finished_work.OF_LOOPS))  # Last: a queue may be a thread as well, which runs.


def take_optional() -> None:
    """Take the reducers of the libraries that are imported by now."""
    for library, place in (*_OF_PYTHON.items(), *index.reducers.items()):
        if library in _ready or library not in sys.modules:
            continue
        spec = getattr(sys.modules[library], "__spec__", None)
        if spec is not None and getattr(spec, "_initializing", False):
            continue
        _ready.add(library)
        try:
            module = importlib.import_module(place)
            if place.startswith("replkernel."):
                _take(module)
            else:
                _take_foreign(module, library)
        except Exception as error:
            log.warning("The reducers for %s do not fit its release.", library, exc_info=True)
            _unfit[library] = f"{type(error).__name__}: {error}"


def plans(world: World) -> dict[type, Reducer]:
    """Return the reducers by exact type, for one capture."""
    take_optional()
    found = dict(_exact)
    tokens: dict[int, str] = {}
    singletons = [(token, value) for token, value in world.seeds.singletons() if value is not None]
    for token, value in singletons:
        tokens.setdefault(id(value), token)
    by_token = _by_token(tokens)
    for _, value in singletons:
        found.setdefault(type(value), by_token)
    return found


def _by_token(tokens: dict[int, str]) -> Reducer:
    def reduce_singleton(pickler: UnitContext, value: object) -> Any:
        token = tokens.get(id(value))
        if token is not None:
            pickler.unlinked.add(id(value))
            return sentinels.seed, (token,)
        return _plan_of_type(pickler, type(value))(pickler, value)

    return reduce_singleton


def plan(pickler: UnitContext, cls: type) -> Reducer:
    """Return the reducer for instances of a type that the table does not list."""
    return _plan_of_type(pickler, cls)


def _plan_of_type(pickler: UnitContext, cls: type) -> Reducer:
    users_way = registered.plan(cls)
    if users_way is not None:
        return users_way
    mro = lineage(cls)
    if type in mro:
        return classes.reduce_class
    exact: Reducer | None = entry_of(_exact, cls)
    if exact is not None:
        return exact
    if unfit := _unfit_library(mro):
        return refusals.of_unknown_release(unfit, _unfit[unfit])
    homes = set(map(module_of, mro))
    for tested, test, reducer in _tests:
        if (not tested or not tested.isdisjoint(homes)) and test(cls):
            return reducer
    families = [_families[one] for one in mro if one in _families]
    if families:
        return min(families, key=itemgetter(0))[1]
    if classes.must_stay(pickler, cls):
        return classes.refuse_instance
    if module_of(cls) == "__main__" or module_of(cls) not in sys.modules:
        own_way = instances.plan(cls) or whole_states.plan(cls) or left_out.plan(cls)
        return own_way or library_instances.plan(cls) or natural
    imported = _plan_of_own_modules(cls) or _plan_of_libraries(cls)
    return refusals.as_a_whole(imported, cls) if has_finalizer(cls) else imported


def _unfit_library(mro: tuple[type, ...]) -> str:
    """Return the library of an unknown release that a class or one of its bases is from; or nothing."""
    if not _unfit:
        return ""
    homes = [f"{module_of(one)}." for one in mro]
    return next((name for name in _unfit if any(home.startswith(f"{name}.") for home in homes)), "")


def _plan_of_libraries(cls: type) -> Reducer:
    natural = next((reducer for test, reducer in _natural if test(cls)), None)
    natural = natural or instances.plan_for_shared_dict(cls) or library_instances.plan(cls)
    return sentinels.plan_for_library(cls, natural)


def _plan_of_own_modules(cls: type) -> Reducer | None:
    """Return the reducer for a class of a file of the user's that says how it is copied: it is not asked.

    Only what its module holds under a name, as of this capture, has its way, which may be that name.
    """
    if not instances.is_notebooks(cls) or not instances.says_how_it_pickles(cls):
        return None
    past_its_methods = instances.plan(cls) or whole_states.plan(cls)
    if past_its_methods is None:
        return None
    as_it_says, past = sentinels.plan_for_library(cls), past_its_methods
    named = set(map(id, list(vars(sys.modules[module_of(cls)]).values())))

    def reduce_own(pickler: UnitContext, value: object) -> Any:
        return (as_it_says if id(value) in named else past)(pickler, value)

    return reduce_own


def natural(pickler: UnitContext, value: object) -> Any:
    """Leave an object to pickle itself."""
    return NotImplemented


# What the C pickler does for an object without a reducer, done here: it would look the object's type up.
#
# Law: a type whose metaclass says how it is hashed, or to what it is equal, is found by its identity.

PROTOCOL = 5


def reduction(value: object) -> Any:
    """Return the reduction of an object as pickle asks for it; NotImplemented for what it finds by name."""
    # By type: a proxy, as of wrapt, calls itself an instance of what it stands for.
    kind = type(value)
    reduce = entry_of(copyreg.dispatch_table, kind)
    if reduce is None and issubclass(kind, type):
        return NotImplemented
    return reduce(value) if reduce is not None else value.__reduce_ex__(PROTOCOL)


def unasked(kind: type, plan: Reducer) -> Reducer:
    """Return a reducer that leaves no instance to the C pickler where the metaclass would be asked."""
    if key_of(kind) is not Odd:
        return plan

    def reduce_unasked(pickler: UnitContext, value: object) -> Any:
        reduced = plan(pickler, value)
        return reduction(value) if reduced is NotImplemented else reduced

    return reduce_unasked
