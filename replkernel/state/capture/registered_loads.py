"""What a user's own way to load an object makes, and what stands for the object where that is of no use.

Law: a load fails as the user's code does, until it is tried leniently: then a tombstone says how it failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replkernel.state import hooks
from replkernel.state.python import paths
from replkernel.state.python.class_registry import qualname_of
from replkernel.state.restore import loading


def loaded(load: Callable[[], Any], cls: type | None, *, registered: bool, inherited: bool = False) -> Any:
    """Return what `load` makes; in a lenient load, a tombstone where that is no instance of `cls`.

    `registered` tells that it was given to `replkernel.register`, `inherited` that it was for a parent.
    """
    if cls is None or not loading.is_lenient():
        return load()
    try:
        made = load()
    except loading.NotInHand:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}".rstrip(".: ")
        what = f"{_named(cls, registered, inherited)} failed: {said}. Mend it and run the cell again."
    else:
        if type(made) is cls:
            return made
        what = f"{_named(cls, registered, inherited)} makes a {paths.type_name(made)}, no {qualname_of(cls)}"
        what += ": register that as well." if registered else "."
    return loading.absent("", paths.name_of(cls), "", what)


def _named(cls: type, registered: bool, inherited: bool) -> str:
    name = qualname_of(cls)
    if inherited:
        return f"The load function that `{name}` inherits (`replkernel.register`)"
    if registered:
        return f"The load function that is registered for `{name}` (`replkernel.register`)"
    return f"`{name}.{hooks.LOAD_METHOD}`"
