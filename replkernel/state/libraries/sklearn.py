"""scikit-learn: ``@sklearn_options``, what was set, and ``@sklearn_ids``, which estimators take."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.library import Library
from replkernel.state.process.part import OptionsPart, Part
from replkernel.state.process.plain import decode_plain, encode_plain


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


# ``@sklearn_ids``: the numbers that scikit-learn gave to the estimators it has displayed.


COUNTERS = ("_CONTAINER_ID_COUNTER", "_ESTIMATOR_ID_COUNTER")


class SklearnIdsPart(Part[list[int]]):
    """The counters behind the ids in estimators' HTML, which must not repeat on one page."""

    cid = ComponentId("@sklearn_ids")
    library = "sklearn.utils._repr_html.estimator"

    def ready(self) -> bool:
        """Tell whether the counters are there."""
        return all(hasattr(sys.modules.get(self.library), name) for name in COUNTERS)

    def look(self) -> list[int]:
        """Return the counters' numbers."""
        return [counter.count for counter in self._counters()]

    def pack(self, seen: list[int]) -> bytes | None:
        """Write the numbers once something has been displayed."""
        return encode_plain(seen) if any(seen) else None

    def apply(self, data: bytes) -> None:
        """Go on counting where another process was."""
        for counter, count in zip(self._counters(), decode_plain(data), strict=True):
            counter.count = count

    def _counters(self) -> list[Any]:
        module = sys.modules[self.library]
        return [getattr(module, name) for name in COUNTERS]


LIBRARY = Library(name="scikit-learn", parts=(SklearnOptionsPart, SklearnIdsPart))
