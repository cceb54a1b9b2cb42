"""Loggers are the process's own: a variable refers to them by name, and `@logging` carries their settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.patches.own_modules import is_own
from replkernel.state.python.kinds import lineage, module_of, name_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.library import ReducerContext


_EVERY_LOGGERS = frozenset({*vars(logging.root), "_cache", "manager"})


def reduce_logger(pickler: UnitContext, logger: logging.Logger) -> object:
    """Reduce a logger to its name, if it is the process's logger of that name."""
    if isinstance(logger, logging.RootLogger):
        return logging.getLogger, ()
    if logging.root.manager.loggerDict.get(logger.name) is logger:
        pickler.unlinked.add(id(logger))
        pickler.touched = True
        own = {name: value for name, value in vars(logger).items() if name not in _EVERY_LOGGERS}
        if not own and module_of(type(logger)) != pickler.world.seeds.main_name:
            return logging.getLogger, (logger.name,)
        return named_logger, (type(logger), logger.name), own, None, None, fill_logger
    return make_logger, (type(logger), logger.name), dict(vars(logger)), None, None, fill_logger


@loader("loggers:named_logger")
def named_logger(cls: type[Any], name: str) -> object:
    """Return the process's logger of a name, which is of the notebook's class (called by payloads)."""
    logger = logging.getLogger(name)
    if type(logger) is not cls:
        logger.__class__ = cls
    return logger


@loader("loggers:make_logger")
def make_logger(cls: type[Any], name: str) -> object:
    """Return a logger that no registry holds (called by payloads)."""
    return type.__call__(cls, name)  # A metaclass may have its own way of calling a class.


@loader("loggers:fill_logger")
def fill_logger(logger: logging.Logger, state: dict[str, Any]) -> None:
    """Give such a logger its attributes (called by payloads)."""
    vars(logger).update(state)


# Handlers of loggers: with their stream, formatter and filters, so that a variable and a logger hold one.
#
# Those of the standard library and of classes of the user's travel; a library's own are its import's.

_HANDLER = logging.Handler

_LIVE = frozenset({"SocketHandler", "DatagramHandler", "SysLogHandler"})
"""Handlers that talk to another process. A queue says itself whether it can be copied."""

_MODULES = frozenset({"logging", "logging.handlers", "__main__"})


def reduce_handler(context: ReducerContext, handler: logging.Handler) -> object:
    """Reduce a handler of a logger."""
    kind = type(handler)
    if "__reduce__" in vars(kind) or "__getstate__" in vars(kind):
        return NotImplemented
    if handler is logging.lastResort and module_of(kind) == "logging":
        return last_resort, ()
    for base in kind.__mro__:
        if not _is_handler(base):
            continue
        module = module_of(base)
        if (module not in _MODULES and not is_own(module)) or base.__name__ in _LIVE:
            raise CannotTravel(f"The handler is a {kind.__qualname__}, which cannot be copied.")
    return make_handler, (kind,), dict(vars(handler)), None, None, fill_handler


@loader("loggers:last_resort")
def last_resort() -> object:
    """Return what handles messages when nothing else does (called by payloads)."""
    return logging.lastResort


@loader("loggers:make_handler")
def make_handler(kind: type[logging.Handler]) -> object:
    """Return an empty handler (called by payloads)."""
    return kind.__new__(kind)


@loader("loggers:fill_handler")
def fill_handler(handler: logging.Handler, state: dict[str, Any]) -> None:
    """Give a handler its attributes, and enter it where ``logging`` looks for it (called by payloads)."""
    vars(handler).update(state)
    registry: Any = logging
    registry._addHandlerRef(handler)
    if state.get("_name"):
        registry._handlers[state["_name"]] = handler


def _is_handler(cls: type) -> bool:
    """Tell whether a class is one of handlers, by name: `importlib.reload(logging)` makes them anew."""
    return any(name_of(base) == "logging.Handler" for base in lineage(cls))


def _is_handler_anew(cls: type) -> bool:
    """Tell whether it is one of a `logging` that was reloaded: the family has those of the first one."""
    return _HANDLER not in lineage(cls) and _is_handler(cls)


FAMILIES = [(_HANDLER, reduce_handler), (logging.Logger, reduce_logger)]
TESTED_MODULES = ("logging",)
TESTS = [(_is_handler_anew, reduce_handler)]
