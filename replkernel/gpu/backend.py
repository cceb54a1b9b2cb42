"""What keeps a process's state on GPUs, and takes it off and back: one Protocol, its backends beside it.

Law: `suspend` and `resume` do all or nothing. What cannot be moved is named in `Kept`, and stays where it is.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol, TypeAlias

import msgspec

CONTEXT_BYTES = 2**30
"""CUDA's own context may take so much of each GPU."""


class Moved(msgspec.Struct, frozen=True):
    """The state was moved: so many bytes in so many seconds."""

    bytes: int = 0
    seconds: float = 0.0


class Kept(msgspec.Struct, frozen=True):
    """Nothing was moved, and nothing is lost; `why` is one sentence for the user."""

    why: str


Outcome: TypeAlias = Moved | Kept


class Backend(Protocol):
    """One process's GPUs. All of it is called on the main thread, between cells."""

    name: str

    @property
    def gpus(self) -> tuple[str, ...]:
        """The UUIDs that its devices 0, 1 … stand for; empty while nobody has said."""

    @property
    def suspended(self) -> bool:
        """Whether state is off the devices."""

    def bind(self, gpus: tuple[str, ...]) -> str:
        """Have the devices stand for these GPUs; return why that cannot be, or an empty string.

        State that lies on the devices stays, so this is refused while others than these hold some.
        """

    def bound_to_others(self, gpus: tuple[str, ...]) -> str:
        """Say with which GPUs this process was started for good, when these are others; else nothing.

        Another process could use these.
        """

    @property
    def bound(self) -> bool:
        """Whether what it moves without the driver only comes back to the GPUs where it was."""

    def bytes_held(self) -> int:
        """Return how many bytes lie on the devices."""

    def bytes_off(self) -> int:
        """Return how many bytes are off the devices, to be moved back."""

    @property
    def locked(self) -> bool:
        """Whether the driver has the state, so that any call of CUDA blocks until it is back."""

    def suspend(self, busy: str = "", *, settled: bool = False) -> Outcome:
        """Move everything off the devices, in place: whoever holds a tensor, a view or a storage keeps it.

        `busy`: why only who stops all calls may do it; `settled`: nobody has to read the bytes meanwhile.
        """

    def resume(self, gpus: tuple[str, ...]) -> Outcome:
        """Move everything back, onto the devices of these GPUs."""


def bytes_in_words(count: int) -> str:
    """Return ``1.3 GiB``."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def storage_bytes(torch: ModuleType, storage: torch.UntypedStorage) -> Any:
    """Return a storage as a flat tensor of bytes, where it is."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


MYPY = False
if MYPY:
    import torch
