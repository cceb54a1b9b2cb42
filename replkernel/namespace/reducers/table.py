"""The table of reducers: by exact type, by family, by hook, and what is left to pickle itself.

Law: optional libraries are looked at only once they are imported; a user's type is held for one capture.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replkernel.namespace.class_registry import module_of
from replkernel.namespace.finalizers import has_finalizer
from replkernel.namespace.kinds import entry_of, lineage
from replkernel.namespace.reducers import (
    adapters,
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
    enum_members,
    exceptions,
    files,
    finished_streams,
    finished_work,
    functions,
    hidden_parts,
    instances,
    iterators,
    left_out,
    library_generators,
    locks,
    log_handlers,
    loggers,
    lru_caches,
    mapped_memory,
    matches,
    message_structs,
    methods,
    modules,
    namespaces,
    own_weakrefs,
    packed_files,
    refusals,
    roots,
    scanners,
    sentinels,
    small_values,
    stand_ins,
    threads,
    told_instances,
    typevars,
    users_ways,
    views,
    weakrefs,
    whole_states,
)
from replkernel.namespace.reducers.outcome import Reducer
from replkernel.namespace.reducers.users_ways import (  # noqa: F401 - checkpoints of older releases name them here
    load_by_class,
    load_child,
    load_registered,
)

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler
    from replkernel.namespace.world import World

log = logging.getLogger(__name__)

_PARTS = (
    adapters,
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
    enum_members,
    exceptions,
    files,
    finished_streams,
    finished_work,
    functions,
    hidden_parts,
    iterators,
    library_generators,
    locks,
    log_handlers,
    loggers,
    lru_caches,
    mapped_memory,
    matches,
    message_structs,
    methods,
    modules,
    namespaces,
    own_weakrefs,
    packed_files,
    refusals,
    scanners,
    sentinels,
    small_values,
    stand_ins,
    threads,
    typevars,
    views,
    weakrefs,
)

OPTIONAL = {
    "csv": "replkernel.namespace.reducers.csv_objects",
    "numpy": "replkernel.namespace.reducers.arrays",
    "pandas": "replkernel.namespace.reducers.frames",
    "pandas.io.parsers.readers": "replkernel.namespace.reducers.table_readers",
    "torch": "replkernel.gpu.tensors",
    "matplotlib.cbook": "replkernel.namespace.reducers.callbacks",
    "matplotlib.figure": "replkernel.namespace.reducers.figures",
    "matplotlib.transforms": "replkernel.namespace.reducers.transforms",
    "tqdm.std": "replkernel.namespace.reducers.progress_bars",
    "scipy.spatial.transform": "replkernel.namespace.reducers.rotations",
    "scipy.spatial._ckdtree": "replkernel.namespace.reducers.search_trees",
    "polars": "replkernel.namespace.reducers.polars_frames",
    "pyarrow": "replkernel.namespace.reducers.arrow_buffers",
    "pyarrow.lib": "replkernel.namespace.reducers.arrow_streams",
    "pyarrow.compute": "replkernel.namespace.reducers.arrow_options",
    "pyarrow.fs": "replkernel.namespace.reducers.arrow_file_info",
    "pyarrow.dataset": "replkernel.namespace.reducers.arrow_data_sets",
    "numba.core.registry": "replkernel.namespace.reducers.compiled_functions",
    "PIL.Image": "replkernel.namespace.reducers.pixels",
    "PIL.ImageFont": "replkernel.namespace.reducers.fonts",
    "PIL.ImageFile": "replkernel.namespace.reducers.picture_files",
    "PIL.ImageDraw": "replkernel.namespace.reducers.drawings",
    "jinja2.environment": "replkernel.namespace.reducers.templates",
    "decimal": "replkernel.namespace.reducers.decimal_contexts",
    "numpy.random": "replkernel.namespace.reducers.bit_generators",
    "pydantic._internal._validate_call": "replkernel.namespace.reducers.validated_calls",
    "sympy.core": "replkernel.namespace.reducers.expressions",
    "patsy.design_info": "replkernel.namespace.reducers.formulas",
    "pandas.io.pytables": "replkernel.namespace.reducers.table_writers",
    "pyarrow.parquet.core": "replkernel.namespace.reducers.arrow_files",
    "dask._expr": "replkernel.namespace.reducers.query_plans",
    "duckdb": "replkernel.namespace.reducers.duckdb_connections",
    "h5py": "replkernel.namespace.reducers.hdf_files",
    "bokeh.core.property.wrappers": "replkernel.namespace.reducers.notifying_containers",
    "plotly.basedatatypes": "replkernel.namespace.reducers.plotly_figures",
    "statsmodels.base.data": "replkernel.namespace.reducers.model_data",
    "mpmath": "replkernel.namespace.reducers.number_contexts",
    "traitlets.traitlets": "replkernel.namespace.reducers.observed_traits",
    "asyncio.mixins": "replkernel.namespace.reducers.loop_bound",
    "asyncio.events": "replkernel.namespace.reducers.loop_handles",
    "attr._make": "replkernel.namespace.reducers.kept_hashes",
    "bs4": "replkernel.namespace.reducers.parse_trees",
    "rpds": "replkernel.namespace.reducers.persistent_maps",
    "wrapt": "replkernel.namespace.reducers.wrapped_proxies",
    "unittest.mock": "replkernel.namespace.reducers.mocks",
    "sqlalchemy.event": "replkernel.namespace.reducers.engine_events",
    "multiprocessing.context": "replkernel.namespace.reducers.start_contexts",
    "multiprocessing.shared_memory": "replkernel.namespace.reducers.shared_blocks",
}
"""Libraries, and where their reducers are; a library counts as imported when `is_imported` says so."""

_exact: dict[type, Reducer] = {**roots.EXACT, roots.ClassBody: classes.reduce_body}
_families: list[tuple[type, Reducer]] = []
_tests: list[tuple[Callable[[type], bool], Reducer]] = []
_natural: list[tuple[Callable[[type], bool], Reducer]] = []
"""Reducers of classes of libraries that do not say themselves how they pickle."""
_ready: set[str] = set()
_unfit: dict[str, str] = {}
"""Libraries whose release is built otherwise than their reducers know, and how that showed."""


def _take(part: Any) -> None:
    _exact.update(getattr(part, "EXACT", {}))
    _families.extend(getattr(part, "FAMILIES", ()))
    _tests.extend(getattr(part, "TESTS", ()))
    _natural.extend(getattr(part, "NATURAL", ()))


for _part in _PARTS:
    _take(_part)


def _take_optional() -> None:
    for library, place in OPTIONAL.items():
        if library in _ready or library not in sys.modules:
            continue
        spec = getattr(sys.modules[library], "__spec__", None)
        if spec is not None and getattr(spec, "_initializing", False):
            continue
        _ready.add(library)
        try:
            _take(importlib.import_module(place))
        except (ImportError, AttributeError) as error:
            log.warning("The reducers for %s do not fit its release.", library, exc_info=True)
            _unfit[library] = f"{type(error).__name__}: {error}"


def plans(world: World) -> dict[type, Reducer]:
    """Return the reducers by exact type, for one capture."""
    _take_optional()
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
    def reduce_singleton(pickler: CapturePickler, value: Any) -> Any:
        token = tokens.get(id(value))
        if token is not None:
            pickler.unlinked.add(id(value))
            return sentinels.seed, (token,)
        return _plan_of_type(pickler, type(value))(pickler, value)

    return reduce_singleton


def plan(pickler: CapturePickler, cls: type) -> Reducer:
    """Return the reducer for instances of a type that the table does not list."""
    return _plan_of_type(pickler, cls)


def _plan_of_type(pickler: CapturePickler, cls: type) -> Reducer:
    users_way = users_ways.plan(cls)
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
    for test, reducer in _tests:
        if test(cls):
            return reducer
    for family, reducer in _families:
        if family in mro:
            return reducer
    if classes.must_stay(pickler, cls):
        return classes.refuse_instance
    if module_of(cls) == "__main__" or module_of(cls) not in sys.modules:
        own_way = instances.plan(cls) or whole_states.plan(cls) or left_out.plan(cls)
        return own_way or told_instances.plan(cls) or natural
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
    natural = natural or instances.plan_for_shared_dict(cls) or told_instances.plan(cls)
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

    def reduce_own(pickler: CapturePickler, value: Any) -> Any:
        return (as_it_says if id(value) in named else past)(pickler, value)

    return reduce_own


def natural(pickler: CapturePickler, value: Any) -> Any:
    """Leave an object to pickle itself."""
    return NotImplemented
