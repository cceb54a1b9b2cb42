"""Stops a process at its first use of CUDA, before the driver has looked which GPUs it may have.

CUDA reads `CUDA_VISIBLE_DEVICES` once, when it starts: started without a lease, it has no GPU for good. Law:
nothing is imported and CUDA never started from here; a library that is imported later is met at the end of
its import, and its loader is the stock one again by then; a forked child asks nobody.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple


class EntryPoint(NamedTuple):
    """The one function that a library calls before all others of CUDA: `name` of what is at `path`.

    `argument`: only with one of these as its first argument does it lead to CUDA; `leads`: only then at all.
    """

    path: tuple[str, ...]
    name: str
    argument: frozenset[str] = frozenset()
    leads: Callable[[], bool] = lambda: True


def _tensorflow_has_cuda() -> bool:
    """Tell whether TensorFlow was built for GPUs; it tells nothing else of it before it looks for them."""
    built = sys.modules.get("tensorflow.python.platform.build_info")
    return bool(getattr(built, "build_info", {}).get("is_cuda_build", True))


ENTRY_POINTS = {
    "torch.cuda": EntryPoint(("torch", "_C"), "_cuda_init"),
    "jax._src.xla_bridge": EntryPoint(("jax._src.xla_bridge",), "_init_backend", frozenset({"cuda", "gpu"})),
    "numba.cuda.cudadrv.driver": EntryPoint(("numba.cuda.cudadrv.driver", "Driver"), "ensure_initialized"),
    "pycuda.driver": EntryPoint(("pycuda.driver",), "init"),
    "tensorflow.python.eager.context": EntryPoint(
        ("tensorflow.python.eager.context", "Context"),
        "_initialize_physical_devices",
        leads=_tensorflow_has_cuda,
    ),
}
"""By the module whose import makes the door. CuPy and cuDF call the driver from compiled code alone: nothing
can stand before them, so cells that use them get a lease before they begin."""

_watched: list[Callable[[], None]] = []
_imported: list[Callable[[], None]] = []
_process = [0]


def watch(asked: Callable[[], None], imported: Callable[[], None] = lambda: None) -> None:
    """Have `asked` called before each first use in this process: it returns with the GPUs there, or raises.

    `imported` is called when one of the libraries has been imported.
    """
    _watched[:], _imported[:], _process[0] = [asked], [imported], os.getpid()
    for module in ENTRY_POINTS:
        if module in sys.modules:
            _guard(module)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def rest() -> None:
    """Look at no imports while no cell runs; doors that were found stay guarded."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def reached() -> None:
    """Say that CUDA is about to be used: pretended GPUs call this, real ones by their doors."""
    if _watched and os.getpid() == _process[0]:
        _watched[0]()


def _guard(module: str) -> None:
    """Stand before a library's door, once."""
    entry_point = ENTRY_POINTS[module]
    owner: object = sys.modules.get(entry_point.path[0])
    for name in entry_point.path[1:]:
        owner = getattr(owner, name, None)
    found = getattr(owner, entry_point.name, None)
    if found is None or getattr(found, "_replkernel_asks", False):
        return

    @functools.wraps(found)
    def guarded(*args: Any, **kwargs: object) -> object:
        if (not entry_point.argument or (args and args[0] in entry_point.argument)) and entry_point.leads():
            reached()
        return found(*args, **kwargs)

    guarded._replkernel_asks = True  # type: ignore[attr-defined]
    setattr(owner, entry_point.name, guarded)


class _Finder:
    """Finds nothing by itself: has the doors of libraries guarded as soon as these are imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders make of a library's module, and look at it when it is run."""
        if name not in ENTRY_POINTS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _look_when_run(name, spec)
                return spec
        return None


def _look_when_run(name: str, spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    run = getattr(loader, "exec_module", None)
    if run is None or not hasattr(loader, "__dict__"):
        return

    def run_and_look(module: ModuleType) -> None:
        del loader.exec_module
        run(module)
        _guard(name)
        for told in _imported:
            told()

    loader.exec_module = run_and_look


_finder = _Finder()
