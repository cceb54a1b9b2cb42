"""Loggers are the process's own: a variable refers to them by name, and `@logging` carries their settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_logger(pickler: CapturePickler, logger: logging.Logger) -> Any:
    """Reduce a logger to its name, if it is the process's logger of that name."""
    if isinstance(logger, logging.RootLogger):
        return logging.getLogger, ()
    if logging.root.manager.loggerDict.get(logger.name) is logger:
        pickler.unlinked.add(id(logger))
        pickler.touched = True
        return logging.getLogger, (logger.name,)
    return make_logger, (type(logger), logger.name), dict(vars(logger)), None, None, fill_logger


def make_logger(cls: Any, name: str) -> Any:
    """Return a logger that no registry holds (called by payloads)."""
    return cls(name)


def fill_logger(logger: logging.Logger, state: dict[str, Any]) -> None:
    """Give such a logger its attributes (called by payloads)."""
    vars(logger).update(state)


FAMILIES = [(logging.Logger, reduce_logger)]
