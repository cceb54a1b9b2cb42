"""What a host tells the scheduler about itself, and when: decided here, sent by the announcer. Pure.

Laws: an offer comes before beats, and again after each welcome. It waits for the driver's first answer, and
where that does not come it says so: the scheduler keeps the GPUs that it knows then. A GPU is taken off the
offer only when it was missing several times in a row and could have been read, for its leases end with that.
What was refused is not offered again at once.
"""

from __future__ import annotations

from math import inf

import msgspec

from replkernel.leasing.models import model_name
from replkernel.leasing.wire import (
    KERNELS_OF_GPU_MAX,
    FromClient,
    GpuUse,
    HostBeat,
    HostOffer,
    OfferedGpu,
)
from replkernel.protocol.status import GpuStatus

GIB, MIB = 2**30, 2**20
MIB_PER_GIB = 1024
MISSED_MAX = 3
"""A GPU that could not be read so many times in a row is not offered any more."""
UNREAD_S = 60.0
"""A driver may take so long to begin; then the host is offered with what the scheduler knows of its GPUs."""
FAILED_S = 5.0
"""The same for one that answers, and does not work."""
ALIKE_BYTES = 256 * MIB
"""What a driver keeps for itself may change by so much: parts of what was offered fit all the same."""
REFUSED_S = 60.0
"""A refused offer is made again after this."""


class Announcement:
    """One host's offer and beats. `gpus` is what was read last."""

    def __init__(self, cpu: float, memory_gb: float, *, guarded: bool = False) -> None:
        """`guarded`: its GPUs are opened for those alone who have a lease."""
        self.gpus: tuple[GpuStatus, ...] = ()
        self._cpu, self._memory_gb, self._guarded = cpu, memory_gb, guarded
        self._known: dict[str, GpuStatus] = {}
        self._missed: dict[str, int] = {}
        self._offered: HostOffer | None = None
        self._silent_until = 0.0
        self._unread_until: float | None = inf
        """Until when the driver's first whole answer is waited for; None: it has come."""

    def welcomed(self, now: float) -> list[FromClient]:
        """Return what to say on a connection that has just been welcomed."""
        self._offered, self._silent_until = None, 0.0
        return self.beat(now)

    def refused(self, now: float) -> None:
        """Note that the scheduler does not take this host."""
        self._offered, self._silent_until = None, now + REFUSED_S

    def unread(self, now: float) -> None:
        """Take note that the driver does not work: what is known of the GPUs stays."""
        self._read_by(now + FAILED_S)

    def _read_by(self, until: float) -> None:
        if self._unread_until is not None:
            self._unread_until = min(self._unread_until, until)

    def read(self, gpus: tuple[GpuStatus, ...], *, whole: bool = True) -> None:
        """Take what the driver said; not `whole`: what is missing could not be read, and may be there."""
        self.gpus, self._unread_until = gpus, None if whole else self._unread_until
        here = {gpu.uuid: gpu for gpu in gpus}
        for uuid in list(self._known):
            self._missed[uuid] = 0 if uuid in here else self._missed.get(uuid, 0) + whole
            if self._missed[uuid] >= MISSED_MAX:
                del self._known[uuid], self._missed[uuid]
        self._known.update({uuid: _as_before(gpu, self._known.get(uuid)) for uuid, gpu in here.items()})

    def beat(self, now: float, *, fresh: bool = True) -> list[FromClient]:
        """Return what to say now; not `fresh`: the driver does not answer, so nothing is told of its GPUs."""
        if now < self._silent_until or self._is_unread(now):
            return []
        uses = tuple(_use(gpu) for gpu in self.gpus) if fresh else ()
        offer = self._offer()
        if offer == self._offered:
            return [HostBeat(uses)]
        self._offered = offer
        return [offer, HostBeat(uses)]

    def _is_unread(self, now: float) -> bool:
        self._read_by(now + (FAILED_S if self._known else UNREAD_S))
        return self._unread_until is not None and now < self._unread_until

    def _offer(self) -> HostOffer:
        return HostOffer(
            gpus=tuple(
                OfferedGpu(gpu.uuid, model_name(gpu.name), gpu.memory_bytes // MIB / MIB_PER_GIB)
                for gpu in self._known.values()
            ),
            cpu=self._cpu,
            memory_gb=self._memory_gb,
            guarded=self._guarded,
            unread=self._unread_until is not None,
        )


def _as_before(gpu: GpuStatus, known: GpuStatus | None) -> GpuStatus:
    """Return a GPU with the memory that it was known to have, if that is about what it has."""
    if known is None or abs(gpu.memory_bytes - known.memory_bytes) >= ALIKE_BYTES:
        return gpu
    return msgspec.structs.replace(gpu, memory_bytes=known.memory_bytes)


def _use(gpu: GpuStatus) -> GpuUse:
    kernels = tuple(sorted({process.kernel_id for process in gpu.processes}))[:KERNELS_OF_GPU_MAX]
    held_gb = round((gpu.memory_used_bytes or 0) / GIB, 3)
    return GpuUse(gpu.uuid, gpu.utilisation or 0.0, held_gb, kernels, read=gpu.utilisation is not None)
