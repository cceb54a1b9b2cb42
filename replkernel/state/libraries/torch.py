"""``@torch_options``: torch's default dtype and device, gradients, determinism, threads, how it prints."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.gpu import torch_state
from replkernel.records import ComponentId
from replkernel.state.library import Counter, Library
from replkernel.state.process.part import OptionsPart, Part
from replkernel.state.process.plain import decode_plain, encode_plain


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


# ``@torch_random`` and ``@torch_cuda_random``: the state of torch's global generators.
#
# Law: torch is never imported and never starts CUDA from here; what touches torch is in `replkernel.gpu`.


class TorchRandomPart(Part[bytes]):
    """torch's generator for the CPU."""

    cid = ComponentId("@torch_random")
    library = "torch"

    def ready(self) -> bool:
        """Tell whether torch is imported to its end."""
        return torch_state.is_loaded()

    def look(self) -> bytes:
        """Return the generator's state."""
        return torch_state.cpu_random()

    def pack(self, seen: bytes) -> bytes:
        """Write the state as it is."""
        return seen

    def apply(self, data: bytes) -> None:
        """Set the generator to a state."""
        torch_state.set_cpu_random(data)


class TorchCudaRandomPart(Part[tuple[bytes, ...]]):
    """torch's generators for the GPUs, once CUDA is in use; `apply` waits for CUDA inside torch."""

    cid = ComponentId("@torch_cuda_random")
    library = "torch"

    def ready(self) -> bool:
        """Tell whether torch is imported to its end."""
        return torch_state.is_loaded()

    def look(self) -> tuple[bytes, ...] | None:
        """Return the generators' states; the last ones while CUDA has not been started here."""
        return torch_state.cuda_random() or self._seen_before()

    def pack(self, seen: tuple[bytes, ...]) -> bytes | None:
        """Write the states in the order of the devices."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Set the generators now, or as soon as CUDA starts in this process."""
        torch_state.set_cuda_random(tuple(decode_plain(data)))

    def _seen_before(self) -> tuple[bytes, ...] | None:
        return getattr(self, "_seen", None)


# ``@warned_once``: what torch's compiled code has warned of, once in a process: not once a replica.
#
# Whether it has is kept where nobody reaches it, so each process would warn anew after a move.
# Law: what is held back was shown to the notebook; a warning that one process gave twice is never held back.


COMPILED = "(Triggered internally at "
"""Stands in each warning of torch's compiled code, with the line that gave it."""

AT_EACH_USE = ("not a leaf Tensor is being accessed",)
"""Stands in the warnings that are given each time, and often."""

TEXTS_MAX = 500

Given = dict[str, bool]
"""The warnings that were shown, and whether a process gave it more than once."""


class WarnedOncePart(Part[Given]):
    """The warnings of torch's compiled code that any process of the notebook has shown."""

    cid = ComponentId("@warned_once")

    def __init__(self) -> None:
        self._given: Given = {}
        self._here: set[str] = set()
        """What this process itself has given, whether it was shown or held back."""
        self._show = vars(warnings)["_showwarnmsg"]
        vars(warnings)["_showwarnmsg"] = self._hear
        super().__init__()

    def _hear(self, message: warnings.WarningMessage) -> None:
        text = str(message.message)
        if COMPILED not in text or self._is_to_be_shown(text):
            self._show(message)

    def _is_to_be_shown(self, text: str) -> bool:
        again = text in self._here
        shown = again or self._given.get(text, True) or any(words in text for words in AT_EACH_USE)
        if len(self._given) < TEXTS_MAX or text in self._given:
            self._here.add(text)
            self._given[text] = again or self._given.get(text, False)
        return shown

    def look(self) -> Given:
        """Return what was given so far."""
        return self._given.copy()

    def pack(self, seen: Given) -> bytes | None:
        """Write it."""
        return encode_plain(sorted(seen.items())) if seen else None

    def apply(self, data: bytes) -> None:
        """Remember what other processes gave."""
        for text, again in decode_plain(data):
            self._given[str(text)] = bool(again) or self._given.get(str(text), False)


LIBRARY = Library(
    name="torch",
    reducers={"torch": "replkernel.gpu.tensors"},
    loaders={
        "torch": (
            "replkernel.gpu.graphs",
            "replkernel.gpu.jagged",
            "replkernel.gpu.layouts",
            "replkernel.gpu.mapped_files",
            "replkernel.gpu.modules",
            "replkernel.gpu.optimizers",
            "replkernel.gpu.storages",
            "replkernel.gpu.tensors",
        )
    },
    parts=(TorchOptionsPart,),
    random_parts=(TorchRandomPart, TorchCudaRandomPart),
    counters=(
        Counter("torch.nested._internal.nested_tensor", "", "_tensor_id_counter"),
        Counter("torch.utils.hooks", "RemovableHandle", "next_id"),
    ),
)
