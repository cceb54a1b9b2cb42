"""``@seaborn``: what seaborn found of matplotlib's settings at its import; ``reset_orig`` goes back to that.

Another process imports seaborn when it has the notebook's settings already, themes of seaborn included.
Law: told whole, as what differs from matplotlib's defaults: what is not told is as there.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.libraries.matplotlib.settings import (
    LEFT_ALONE,
    default_settings,
    plain_setting,
    setting_of,
)
from replkernel.state.library import Library
from replkernel.state.process.part import OptionsPart

_FOUND = "_orig_rc_params"
_TOLD = "\0told"


class SeabornPart(OptionsPart):
    """``seaborn._orig_rc_params``."""

    cid = ComponentId("@seaborn")
    library = "seaborn"

    def ready(self) -> bool:
        """Tell whether seaborn is imported to its end."""
        return _FOUND in vars(sys.modules.get(self.library, object))

    def look(self) -> dict[str, Any]:
        """Return what seaborn found."""
        found = getattr(sys.modules[self.library], _FOUND)
        settings = {name: value for name, value in dict.items(found) if name not in LEFT_ALONE}
        settings[_TOLD] = True
        return settings

    def reference(self) -> Mapping[str, Any]:
        """Return matplotlib's own defaults."""
        return {name: value for name, value in default_settings().items() if name not in LEFT_ALONE}

    def to_plain(self, name: str, value: object) -> object:
        """Return the value as matplotlib's own settings are told."""
        return plain_setting(value)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Have seaborn know what it found elsewhere."""
        found = getattr(sys.modules[self.library], _FOUND)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, value in self.reference().items():
                dict.__setitem__(found, name, value)
            for name, value in changed.items():
                if name in found and name not in LEFT_ALONE:
                    found[name] = setting_of(value)


LIBRARY = Library(name="seaborn", parts=(SeabornPart,))
