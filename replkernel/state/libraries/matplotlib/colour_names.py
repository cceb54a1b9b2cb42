"""``@colours``: which colours matplotlib's names stand for; themes of seaborn change those of single letters.

Law: what is compared with is made from matplotlib's own tables, and looking takes microseconds.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.libraries.matplotlib.settings import plain_setting, setting_of
from replkernel.state.process.part import OptionsPart

_NAMES = "_colors_full_map"


class ColourNamesPart(OptionsPart):
    """The colours of matplotlib's names, the notebook's own among them."""

    cid = ComponentId("@colours")
    library = "matplotlib.colors"

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        super().__init__()

    def ready(self) -> bool:
        """Tell whether matplotlib's colours are imported to their end."""
        return "get_named_colors_mapping" in vars(sys.modules.get(self.library, object))

    def look(self) -> dict[str, Any]:
        """Return the colours by name: the same dictionary while nothing has changed."""
        names = _names()
        if names != self._known:
            self._known = dict(names)
        return self._known

    def reference(self) -> Mapping[str, Any]:
        """Return the colours that matplotlib gives its names."""
        return _own_colours()

    def to_plain(self, name: str, value: Any) -> Any:
        """Return a colour as matplotlib's settings are told."""
        return plain_setting(value)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Have the names stand for these colours."""
        names = _names()
        for name, value in changed.items():
            names[name] = setting_of(value)
        for name in removed:
            if name in names:
                del names[name]


def _names() -> Any:
    return vars(sys.modules["matplotlib.colors"])[_NAMES]


@functools.cache
def _own_colours() -> dict[str, Any]:
    """Return what matplotlib has at its import, made as it makes it."""
    tables = vars(sys.modules["matplotlib.colors"])
    known, tableau = tables["XKCD_COLORS"], tables["TABLEAU_COLORS"]
    return {
        **known,
        **{name.replace("grey", "gray"): colour for name, colour in known.items()},
        **tables["CSS4_COLORS"],
        **tableau,
        **{name.replace("gray", "grey"): colour for name, colour in tableau.items()},
        **tables["BASE_COLORS"],
    }
