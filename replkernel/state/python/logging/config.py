"""``@logging``: which loggers the notebook made, levels and propagation of those it set up, what all obey.

Handlers are places of the book (`patches.loggers`), but for plain ones of loggers named for a library.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart
from replkernel.state.python.logging.places import ROOT, is_kernels, is_librarys, of_libraries, remember_birth

DISABLED, CAPTURED = "\0disabled", "\0captured"
OPAQUE = "opaque"


class LoggingPart(OptionsPart):
    """The configuration of the ``logging`` module, as far as it differs from birth."""

    cid = ComponentId("@logging")

    def __init__(self) -> None:
        remember_birth()
        self._born = frozenset(logging.root.manager.loggerDict)
        super().__init__()

    def look(self) -> dict[str, Any]:
        """Return a description of each logger that the notebook made, or that has its own configuration."""
        manager, is_of_library = logging.root.manager, of_libraries()
        found: dict[str, Any] = {ROOT: _described(logging.root), DISABLED: manager.disable}
        found[CAPTURED] = vars(logging)["_warnings_showwarning"] is not None
        for name, logger in list(manager.loggerDict.items()):
            if not isinstance(logger, logging.Logger):
                continue
            configured = logger.level or logger.handlers or not logger.propagate or logger.disabled
            if not configured and name in self._born:
                continue
            # One of a class of the notebook is a variable's, if anybody's.
            made = type(logger) is logging.Logger and name not in self._born
            if not is_kernels(name) and (configured or (made and not is_of_library(name))):
                found[name] = _described(logger)
        return found

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Configure the loggers; a logger that is told as removed gets no configuration of its own."""
        for name, told in changed.items():
            if name == DISABLED:
                logging.disable(told)
            elif name == CAPTURED:
                logging.captureWarnings(told)
            elif not is_kernels(name):
                _configure(_logger(name) if name else logging.root, told)
        for name in removed:
            if name and not is_kernels(name):
                _configure(logging.getLogger(name), [logging.NOTSET, True, False, []])


def _logger(name: str) -> logging.Logger:
    """Return the logger of a name, made as a plain one: the class for new ones may be from another cell."""
    manager = logging.root.manager
    before, manager.loggerClass = manager.loggerClass, manager.loggerClass or logging.Logger
    try:
        return logging.getLogger(name)
    finally:
        manager.loggerClass = before


def _described(logger: logging.Logger) -> list[Any]:
    described = [_described_handler(handler) for handler in logger.handlers]
    handlers = described if described and is_librarys(logger.name) else []
    return [logger.level, logger.propagate, bool(logger.disabled), handlers]


def _described_handler(handler: logging.Handler) -> list[Any]:
    """Return kind, target, level, format, date format and style of a handler, or its type if opaque."""
    kind: type = type(handler)
    formatter = handler.formatter
    opaque = [OPAQUE, kind.__qualname__]
    if handler.filters or (formatter is not None and type(formatter) is not logging.Formatter):
        return opaque
    look: list[Any] = [handler.level, None, None, "%"]
    if formatter is not None:
        style = type(formatter._style).__name__
        mark = {"PercentStyle": "%", "StrFormatStyle": "{", "StringTemplateStyle": "$"}.get(style, "%")
        look = [handler.level, formatter._fmt, formatter.datefmt, mark]
    if isinstance(handler, logging.StreamHandler) and kind is logging.StreamHandler:
        stream = handler.stream
        target = "stdout" if stream is sys.stdout else "stderr" if stream is sys.stderr else ""
        return ["stream", target, *look] if target else opaque
    if isinstance(handler, logging.FileHandler) and kind is logging.FileHandler:
        return ["file", handler.baseFilename, *look, handler.encoding]
    return ["null", "", *look] if kind is logging.NullHandler else opaque


def _configure(logger: logging.Logger, told: list[Any]) -> None:
    level, propagate, disabled, handlers = told
    logger.setLevel(level)
    logger.propagate, logger.disabled = propagate, disabled
    if not is_librarys(logger.name):
        return
    wanted = [handler for handler in handlers if handler[0] != OPAQUE]
    present = [_described_handler(handler) for handler in logger.handlers]
    if [handler for handler in present if handler[0] != OPAQUE] == wanted:
        return
    for handler, described in zip(list(logger.handlers), present, strict=True):
        if described[0] != OPAQUE:
            logger.removeHandler(handler)
            handler.close()
    for described in wanted:
        logger.addHandler(_made(described))


def _made(described: list[Any]) -> logging.Handler:
    kind, target, level, pattern, date_pattern, style, *rest = described
    handler: logging.Handler
    if kind == "stream":
        handler = logging.StreamHandler(sys.stdout if target == "stdout" else sys.stderr)
    elif kind == "file":
        handler = logging.FileHandler(target, mode="a", encoding=rest[0], delay=True)
    else:
        handler = logging.NullHandler()
    handler.setLevel(level)
    if pattern is not None or date_pattern is not None:
        handler.setFormatter(logging.Formatter(pattern, date_pattern, style))
    return handler
