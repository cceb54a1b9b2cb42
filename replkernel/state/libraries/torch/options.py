"""``@torch_options``: torch's default dtype and device, gradients, determinism, threads, how it prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.gpu import torch_state
from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart


class TorchOptionsPart(OptionsPart):
    """The options of torch that a notebook sets for the whole process."""

    cid = ComponentId("@torch_options")
    library = "torch"

    def ready(self) -> bool:
        """Tell whether torch is imported to its end."""
        return torch_state.is_loaded()

    def look(self) -> dict[str, Any]:
        """Return the options by name."""
        return torch_state.options()

    def reference(self) -> Mapping[str, Any]:
        """Return what torch starts with on this host."""
        return torch_state.default_options()

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set options; torch has none that could be removed."""
        torch_state.set_options(changed)
