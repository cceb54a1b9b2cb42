"""Objects of a type for which a user has said how it is dumped: in that way, or refused for what went wrong.

Law: what a user's function raises is a loss with its reason, never a fault; none of them ends a process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state import hooks
from replkernel.state.capture.outcomes import CannotTravel, Endless, Reducer
from replkernel.state.python.kinds import name_of, qualname_of, type_name
from replkernel.state.restore import loading
from replkernel.state.tombstone import is_tombstone

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


ERROR_CHARS_MAX = 120
ASKED_MAX = 2
"""So often an object is asked for before its first answer is dumped; another time, there is no end."""

_ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""What a user's function may raise that would end a cell or a process. No interrupt arrives meanwhile."""

_MRO = type.__dict__["__mro__"]
_DICT = type.__dict__["__dict__"]


def plan(cls: type) -> Reducer | None:
    """Return the reducer for a type for which a user has said how it is dumped; None for others."""
    mro: tuple[type, ...] = _MRO.__get__(cls)
    if hooks.registered:
        for base in mro:
            found = hooks.registration_of(base)
            if found is not None:
                return _registered(base, cls is base, *found[1:])
    if any(hooks.DUMP_METHOD in _DICT.__get__(base) for base in mro):
        of_class = (*mro, *_MRO.__get__(type(cls)))
        return _own(cls) if any(hooks.LOAD_METHOD in _DICT.__get__(one) for one in of_class) else _half(cls)
    return None


def _registered(base: type, itself: bool, dump: Any, load: object) -> Reducer:
    whose = f"The registered dump of {qualname_of(base)}"

    def reduce_registered(pickler: UnitContext, value: Any) -> Any:
        pickler.touched = True
        pickler.unlinked.add(id(load))
        state = _dumped(pickler, dump, value, whose, "Mend it and register it again.")
        return (load_registered, (load, state, base)) if itself else (load_child, (type(value), load, state))

    return reduce_registered


def _half(cls: type) -> Reducer:
    name = qualname_of(cls)

    def refuse(pickler: UnitContext, value: object) -> Any:
        raise CannotTravel(
            f"{name} has a `{hooks.DUMP_METHOD}`, and no `{hooks.LOAD_METHOD}` that makes an object of what "
            "that returns: give it one as well, a static method."
        )

    return refuse


def _own(cls: type) -> Reducer:
    whose = f"{qualname_of(cls)}.{hooks.DUMP_METHOD}"
    mend = "Mend it, and make the object again with the class as it is then."

    def reduce_own(pickler: UnitContext, value: object) -> Any:
        dump: Any = getattr(cls, hooks.DUMP_METHOD)
        return load_by_class, (cls, _dumped(pickler, dump, value, whose, mend))

    return reduce_own


def _dumped(pickler: UnitContext, dump: Callable[[Any], Any], value: object, whose: str, mend: str) -> Any:
    """Return what a user's dump returns for an object; raise CannotTravel where that is of no use.

    An object that is asked for once more, before the first answer is dumped, is in that answer: below a
    container of its own that is met only once, or without end. A first RuntimeError is left as it is: another
    thread may have changed what was dumped, and it is tried again.
    """
    asked = pickler.dumped_by_hooks.get(id(value), ())
    if len(asked) >= ASKED_MAX:
        raise _without_end(pickler, value, whose)
    try:
        state = dump(value)
    except RecursionError:
        raise
    except (Exception, *_ENDS) as error:
        if type(error) is RuntimeError and not pickler.careful:
            raise
        raise CannotTravel(f"{whose} failed ({in_short(error)}). {mend}") from None
    if state is value:
        raise CannotTravel(f"{whose} returned the object itself. {_SIMPLER}")
    if id(state) in asked:
        raise _without_end(pickler, value, whose)
    pickler.dumped_by_hooks[id(value)] = (*asked, id(state))
    if whose in pickler.endless and pickler.leads_back(value, state):
        raise CannotTravel(_holds_itself(whose))
    return state


_SIMPLER = "It must return something simpler, from which load makes one: its values in a tuple or dictionary."


def _without_end(pickler: UnitContext, value: object, whose: str) -> Exception:
    """Return what ends the dump of an object that is in its own answer: the first time, it is tried again."""
    return CannotTravel(_holds_itself(whose)) if whose in pickler.endless else Endless(value, whose)


def _holds_itself(whose: str) -> str:
    return f"What {whose.replace('The r', 'the r', 1)} returned holds the object itself. {_SIMPLER}"


def in_short(error: BaseException) -> str:
    """Return what an error is and says, in one line of bounded length."""
    text = " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())
    return text if len(text) <= ERROR_CHARS_MAX else text[: ERROR_CHARS_MAX - 1] + "…"


def _loaded(load: Any, state: object) -> Any:
    """Call what a user wrote for loading; what would end a cell or a process is its failure."""
    try:
        return load(state)
    except _ENDS as error:
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise RuntimeError(f"it raised {what}") from None


@loader("registered:load_registered")
def load_registered(load: Any, state: Any, cls: Any = None) -> Any:
    """Rebuild an object by what was registered for its class (called by payloads, older ones without it)."""
    return loaded(partial(_loaded, load, state), cls, registered=True)


@loader("registered:load_child")
def load_child(cls: Any, load: Any, state: Any) -> Any:
    """Rebuild an object by what was registered for a class that it inherits from (called by payloads).

    Its dump would look the same whichever of the classes was made, so no proof could tell.
    """
    made = loaded(partial(_loaded, load, state), cls, registered=True, inherited=True)
    if type(made) is not cls and not is_tombstone(made):
        name = type_name(made)
        raise TypeError(
            f"what was registered loads a {name}, not a {qualname_of(cls)}: register that as well"
        )
    return made


@loader("registered:load_by_class")
def load_by_class(cls: Any, state: Any) -> Any:
    """Rebuild an object by its class's own hook (called by payloads)."""
    return loaded(lambda: _loaded(getattr(cls, hooks.LOAD_METHOD), state), cls, registered=False)


# What a user's own way to load an object makes, and what stands for the object where that is of no use.
#
# Law: a load fails as the user's code does, until it is tried leniently: then a tombstone says how it failed.


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
        what = f"{_named(cls, registered, inherited)} makes a {type_name(made)}, no {qualname_of(cls)}"
        what += ": register that as well." if registered else "."
    return loading.absent("", name_of(cls), "", what)


def _named(cls: type, registered: bool, inherited: bool) -> str:
    name = qualname_of(cls)
    if inherited:
        return f"The load function that `{name}` inherits (`replkernel.register`)"
    if registered:
        return f"The load function that is registered for `{name}` (`replkernel.register`)"
    return f"`{name}.{hooks.LOAD_METHOD}`"


# The last resort before a tombstone: what somebody registered with dill for a type says of an object.
#
# Only the way is that function's: what it leads to is dumped by our own reducers, so that what is shared
# stays so, and verified like everything else.
# Law: dill is not imported for it, which would change pickle's own tables; and dill's own ways are not taken:
# some make another thing of an object (a list of an iterator, a second owner of a capsule's memory).

Reduction = tuple[Any, ...]


class _Recorder:
    """Stands for the pickler that a function registered with dill is given, and keeps what that says."""

    def __init__(self) -> None:
        self.said: list[Reduction] = []

    def save_reduce(
        self,
        func: object,
        args: tuple[Any, ...],
        state: object = None,
        listitems: object = None,
        dictitems: object = None,
        state_setter: object = None,
        *,
        obj: object = None,
    ) -> None:
        """Keep a reduction, as `object.__reduce__` would return it."""
        self.said.append((func, args, state, listitems, dictitems, state_setter))


def reduction_registered(value: object) -> Reduction | None:
    """Return the reduction by a function that somebody registered for the type with `dill.register`, or None.

    Raises CannotTravel where that function fails.
    """
    dill: Any = sys.modules.get("dill._dill")
    save = None if dill is None else dict.get(dill.Pickler.dispatch, type(value))
    if save is None or str(getattr(save, "__module__", "")).partition(".")[0] in ("dill", "pickle"):
        return None
    recorder = _Recorder()
    try:
        save(recorder, value)
    except Exception as error:
        name = qualname_of(type(value))
        told = in_short(error)
        raise CannotTravel(f"What was registered with dill for a {name} failed ({told}).") from error
    return recorder.said[0] if len(recorder.said) == 1 else None
