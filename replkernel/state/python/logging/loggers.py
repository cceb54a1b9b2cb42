"""Loggers are the process's own: a variable refers to them by name, and `@logging` carries their settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.kinds import module_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

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


FAMILIES = [(logging.Logger, reduce_logger)]
