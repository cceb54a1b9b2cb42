"""Where a new kernel's replicas begin: what the core is told of its request, and what its router is answered.

Pure. Laws: asked again the same, it is the same kernel and no event; one whose router is connected stays as
it is; one that begins anew under the same id ends first. (Spec 1.2.)
"""

from __future__ import annotations

from replkernel_scheduler.effects import KernelRefused
from replkernel_scheduler.events import KernelEnded, KernelStarted
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.placing import Placement
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, UserName

from replkernel.leasing.models import model_name
from replkernel_server.scheduling.documents import KernelAwaits, KernelPlacement, PlacementBody, Why

UNCLAIMED_MAX = 64
"""So many kernels of one user may be placed whose routers have not come yet."""


def spec_of(kernel_id: KernelId, user: UserName, body: PlacementBody) -> KernelSpec:
    """Return the kernel that a request describes; `user` is who asks."""
    return KernelSpec(
        kernel_id,
        user,
        body.gpus,
        body.replicas,
        model_name(body.gpu_model),
        body.vram_gb,
        body.cpu,
        body.memory_gb,
        tuple(HostName(host) for host in body.without),
    )


def events(spec: KernelSpec, known: Placement | None, *, is_here: bool) -> list[KernelEnded | KernelStarted]:
    """Return what the core is told; `is_here`: the router of the kernel that is `known` is connected."""
    if known is None:
        return [KernelStarted(spec)]
    if (known.reported and is_here) or (not known.reported and known.spec == spec):
        return []
    return [KernelEnded(spec.kernel_id), KernelStarted(spec)]


def answer(known: Placement | None, effects: list[HarvestEffect]) -> tuple[int, object]:
    """Return HTTP status and document for where a kernel stands, and what followed when it began."""
    if known is None:
        whys = [effect.why for effect in effects if isinstance(effect, KernelRefused)]
        return (
            (409, Why(whys[0]))
            if whys
            else (410, Why("No such kernel is placed, or not any more: ask with POST."))
        )
    if known.hosts:
        return 200, KernelPlacement(list(known.hosts))
    return 202, KernelAwaits(known.missing, known.coming)
