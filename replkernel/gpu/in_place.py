"""Storages moved to host memory and back in place: tensors, views, tied weights and graphs never notice.

A storage is emptied and filled again by `UntypedStorage.resize_`, which everybody who looks at it shares:
parameters, `.grad`, optimizer state, views and what autograd saved stay the objects they are.
Law: all or nothing. A storage is emptied only when all of them have been copied; copies go only when all
storages have been filled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.multiprocessing import reductions
from torch.utils._python_dispatch import _disable_current_modes

from replkernel.gpu.host_copy import HostRoom, fetch, give_back
from replkernel.gpu.torch_library import torch

_weak_reference: Any = reductions.StorageWeakRef


@dataclass(slots=True)
class Parked:
    """One storage's bytes on the host while it is empty."""

    ref: Any
    size: int
    pieces: list[Any]

    def storage(self) -> Any:
        """Return the storage; None when nobody has it any more."""
        return torch.UntypedStorage._new_with_weak_ptr(self.ref.cdata)


class Parking:
    """What one process has parked. `finish` waits until copies that go on beside are done."""

    def __init__(self, *, pinned: bool = False, finish: Callable[[], None] = lambda: None) -> None:
        self._pinned = pinned
        self._finish = finish
        self._parked: dict[int, Parked] = {}

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def bytes(self) -> int:
        """Return how many bytes are parked."""
        return sum(parked.size for parked in self._parked.values())

    def of(self, storage: torch.UntypedStorage) -> Parked | None:
        """Return what is parked of a storage."""
        return self._parked.get(storage._cdata)

    def park(self, storages: Iterable[Any]) -> int:
        """Move storages to the host; return their bytes. It raises what torch raises: then nothing has moved.

        The large ones go first: memory that is short is noticed early.
        """
        with undisturbed():
            wanted = sorted(storages, key=lambda storage: -storage.nbytes())
            fixed = [storage for storage in wanted if not storage.resizable()]
            if fixed:
                raise RuntimeError(
                    f"{len(fixed)} storages with {sum(each.nbytes() for each in fixed)} bytes belong to "
                    "another library (torch did not allocate them)"
                )
            room = HostRoom(sum(each.nbytes() for each in wanted), pinned=self._pinned)
            copies = {}
            for storage in wanted:
                pieces = room.take(storage.nbytes())
                fetch(storage, pieces, beside=self._pinned)
                copies[storage._cdata] = Parked(_weak_reference(storage), storage.nbytes(), pieces)
            self._finish()
            self._empty(wanted, copies)
            self._parked.update(copies)
        return sum(parked.size for parked in copies.values())

    def _empty(self, storages: list[Any], copies: dict[int, Parked]) -> None:
        try:
            for storage in storages:
                storage.resize_(0)
        except BaseException:
            for storage in storages:
                if not storage.nbytes():
                    self._fill(storage, copies[storage._cdata])
            self._finish()
            raise

    def _fill(self, storage: torch.UntypedStorage, parked: Parked) -> None:
        storage.resize_(parked.size)
        give_back(storage, parked.pieces, beside=self._pinned)

    def unpark(self) -> int:
        """Fill all storages again; return their bytes. Raises what torch raises, and then all stay parked."""
        tried: list[Any] = []
        moved = 0
        with undisturbed():
            try:
                for parked in self._parked.values():
                    storage = parked.storage()
                    if storage is None:
                        continue
                    tried.append(storage)
                    self._fill(storage, parked)
                    moved += parked.size
                self._finish()
            except BaseException:
                for storage in tried:
                    storage.resize_(0)
                raise
            self._parked.clear()
        return moved

    def forget_the_dead(self) -> None:
        """Let go of the bytes of storages that nobody has any more."""
        for key in [key for key, parked in self._parked.items() if parked.ref.expired()]:
            del self._parked[key]


_in_use: list[Parking] = []


def in_use(parking: Parking) -> None:
    """Have `parked_of` know of a parking; the one before it is over."""
    _in_use[:] = [parking]


def parked_of(storage: torch.UntypedStorage) -> Parked | None:
    """Return what is on the host of a storage that is empty because it was parked."""
    return _in_use[0].of(storage) if _in_use else None


def anything_parked() -> bool:
    """Tell whether bytes are off the device."""
    return bool(_locked) or bool(_in_use and len(_in_use[0]))


@dataclass(slots=True)
class Locked:
    """What is known of the bytes that the driver has: digests of all, small ones themselves."""

    digests: dict[int, bytes]
    small: dict[int, bytes]
    lies_there: Callable[[Any], bool]
    """Tells a storage on the devices: another one may have got the place of one that nobody has any more."""


_locked: list[Locked] = []


def lock(digests: dict[int, bytes], small: dict[int, bytes], lies_there: Callable[[Any], bool]) -> None:
    """Know that the driver has taken the devices away: there are these digests, and `small` ones."""
    _locked[:] = [Locked(digests, small, lies_there)]


def unlock() -> None:
    """Know that the driver has brought the devices back."""
    _locked.clear()


def is_locked(storage: torch.UntypedStorage) -> bool:
    """Tell whether a storage has bytes on a device that the driver has taken away."""
    return bool(_locked) and storage.nbytes() > 0 and _locked[0].lies_there(storage)


def locked_digest(storage: torch.UntypedStorage) -> bytes | None:
    """Return what a storage's bytes are known by while nobody can read them."""
    return _locked[0].digests.get(storage._cdata) if _locked else None


def locked_bytes(storage: torch.UntypedStorage) -> bytes | None:
    """Return the bytes of a small storage while the driver has the devices."""
    return _locked[0].small.get(storage._cdata) if _locked else None


def is_off(storage: torch.UntypedStorage) -> bool:
    """Tell whether a storage's bytes are not where torch looks for them."""
    return is_locked(storage) or parked_of(storage) is not None


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the notebook's modes away from our own tensors, and autograd from recording them."""
    with (
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield
