"""``@logging``: levels, propagation and plain handlers of the loggers that the notebook configured.

Handlers to the standard streams and to files travel with their level and format; others are stuck.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.namespace.process_parts.part import OptionsPart
from replkernel.records import ComponentId

OWN_ROOTS = ("replkernel", "IPKernelApp", "traitlets", "tornado", "asyncio", "zmq")
ROOT = ""
DISABLED = "\0disabled"
OPAQUE = "opaque"


class LoggingPart(OptionsPart):
    """The configuration of the ``logging`` module, as far as it differs from birth."""

    cid = ComponentId("@logging")

    def look(self) -> dict[str, Any]:
        """Return a description of each logger that has a configuration of its own."""
        manager = logging.root.manager
        found: dict[str, Any] = {ROOT: _described(logging.root), DISABLED: manager.disable}
        for name, logger in manager.loggerDict.items():
            if not isinstance(logger, logging.Logger):
                continue
            if (logger.level or logger.handlers or not logger.propagate or logger.disabled) and not _is_own(
                name
            ):
                found[name] = _described(logger)
        return found

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the descriptions, and note the handlers that stay behind."""
        data = super().pack(seen)
        opaque = [
            f"The logger {name or 'root'} has a {handler[1]}, which cannot be copied."
            for name, told in seen.items()
            if name != DISABLED and told != self._birth.get(name) and not _is_librarys(name)
            for handler in told[3]
            if handler[0] == OPAQUE
        ]
        self.stuck = (*self.stuck, *opaque)
        return data

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Configure the loggers; a logger that is told as removed gets no configuration of its own."""
        for name, told in changed.items():
            if name == DISABLED:
                logging.disable(told)
            elif not _is_own(name):
                _configure(logging.getLogger(name) if name else logging.root, told)
        for name in removed:
            if name and not _is_own(name):
                _configure(logging.getLogger(name), [logging.NOTSET, True, False, []])


def _is_own(name: str) -> bool:
    return name.partition(".")[0] in OWN_ROOTS


def _is_librarys(name: str) -> bool:
    """Tell whether a logger is named for an imported library, whose import brings its handlers along."""
    root = name.partition(".")[0]
    return root in sys.modules and root not in (ROOT, "__main__")


def _described(logger: logging.Logger) -> list[Any]:
    handlers = [_described_handler(handler) for handler in logger.handlers]
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
