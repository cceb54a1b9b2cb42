"""``@figure_formats``: the formats in which the shell shows matplotlib's figures, as IPython installed them.

They may be others than the inline backend's settings say: `set_matplotlib_formats` installs them only.
Law: loaded after what chooses a backend, which installs formats of its own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain, is_plain

LIBRARY, PRINTERS = "matplotlib.figure", "IPython.core.pylabtools"
DEFAULT = {"image/png": ["print_figure", [["fmt", "png"], ["base64", True], ["bbox_inches", "tight"]]]}
"""What choosing the inline backend installs."""

Formats = dict[str, Any]
"""By type of content: the name of IPython's function, and its keyword arguments in their order."""


class FigureFormatsPart(Part[Formats]):
    """IPython's printers of figures among the shell's formatters."""

    cid = ComponentId("@figure_formats")
    library = LIBRARY

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        super().__init__()

    def look(self) -> Formats:
        """Return the printers of figures that are IPython's own."""
        return {
            name: [held.func.__name__, [[key, value] for key, value in held.keywords.items()]]
            for name, _, held in self._printers()
            if held is not None
        }

    def pack(self, seen: Formats) -> bytes | None:
        """Write them, once they are not what every backend installs."""
        return None if self._data is None and seen in ({}, DEFAULT) else encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Install them, and no others of IPython's."""
        told, figure = decode_plain(data), _figure()
        functions: object = sys.modules[PRINTERS]
        for name, table, held in list(self._printers()):
            if held is not None:
                del table[figure]
            if name in told:
                function, arguments = told[name]
                table[figure] = functools.partial(getattr(functions, function), **dict(arguments))

    def _printers(self) -> Iterator[tuple[str, dict[Any, Any], Any]]:
        """Return each formatter's name, its table of printers, and IPython's printer of figures there."""
        figure = _figure()
        for name, formatter in self._shell.display_formatter.formatters.items():
            held = formatter.type_printers.get(figure)
            yield name, formatter.type_printers, held if is_figure_format(figure, held) else None


def _figure() -> object:
    return vars(sys.modules.get(LIBRARY, object)).get("Figure")


def is_figure_format(cls: object, printer: object) -> bool:
    """Tell whether a printer of a class is one of figures by IPython, with arguments that are plain."""
    if type(printer) is not functools.partial or cls is not _figure():
        return False
    function: object = printer.func
    of_ipython = getattr(function, "__module__", None) == PRINTERS
    return of_ipython and not printer.args and is_plain(printer.keywords)
