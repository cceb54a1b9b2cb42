"""What a user's own way to load an object makes, and what stands for the object where that is of no use.

Law: a load fails as the user's code does, until it is tried leniently: then a tombstone says how it failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replkernel.namespace import hooks, loading, paths
from replkernel.namespace.class_registry import qualname_of


def loaded(load: Callable[[], Any], cls: type | None, *, registered: bool) -> Any:
    """Return what `load` makes; in a lenient load, a tombstone where that is no instance of `cls`."""
    if cls is None or not loading.is_lenient():
        return load()
    try:
        made = load()
    except loading.NotInHand:
        raise
    except Exception as error:
        what = _failed(error, cls, registered=registered)
    else:
        if type(made) is cls:
            return made
        what = f"{_named(cls, registered=registered)} makes a {paths.type_name(made)}, no {qualname_of(cls)}"
        what += ": register that as well." if registered else "."
    return loading.absent("", paths.name_of(cls), "", what)


def _failed(error: Exception, cls: type, *, registered: bool) -> str:
    said = f"{type(error).__name__}: {error}".rstrip(".: ")
    return f"{_named(cls, registered=registered)} failed: {said}. Mend it and run the cell again."


def _named(cls: type, *, registered: bool) -> str:
    name = qualname_of(cls)
    if registered:
        return f"The load function that is registered for `{name}` (`replkernel.register`)"
    return f"`{name}.{hooks.LOAD_METHOD}`"
