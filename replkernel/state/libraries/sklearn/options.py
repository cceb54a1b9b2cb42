"""``@sklearn_options``: what ``sklearn.set_config`` changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart


class SklearnOptionsPart(OptionsPart):
    """scikit-learn's configuration of the main thread."""

    cid = ComponentId("@sklearn_options")
    library = "sklearn._config"

    def look(self) -> dict[str, Any]:
        """Return the configuration."""
        return dict(sys.modules["sklearn._config"].get_config())

    def reference(self) -> Mapping[str, Any]:
        """Return the configuration of a fresh process."""
        return dict(sys.modules["sklearn._config"]._global_config)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set the configuration."""
        sys.modules["sklearn._config"].set_config(**changed)
