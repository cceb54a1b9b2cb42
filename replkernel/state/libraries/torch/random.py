"""``@torch_random`` and ``@torch_cuda_random``: the state of torch's global generators.

Law: torch is never imported and never starts CUDA from here; what touches torch is in `replkernel.gpu`.
"""

from __future__ import annotations

from replkernel.gpu import torch_state
from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain


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
