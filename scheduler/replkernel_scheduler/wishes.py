"""What can be asked for at all, and what is said of what cannot.

Law: a request that no host, up or provisionable, could serve if it were empty is refused at once, and the
largest one that could be served is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor

from msgspec import UNSET

from replkernel_scheduler.hosts import MILLI, Host, least_gb
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.types import HostName, KernelSpec, LeaseRequest, Share

GPUS_PER_HOST_MAX = 64
QUEUE_MAX = 100_000
TTL_S_MAX = 7 * 86_400.0
EXPECTED_S_MAX = 1e9
SIZE_MAX = 1e6
USERS_MAX = 100_000
KERNELS_MAX = 200_000
REPLICAS_MAX = 15
SHARE_MILLI_MIN = 10
VRAM_GB_MIN = 1 / 1024
MULTIPLICITY_MAX = 64
TINY = 1e-6

PoolShape = tuple[str, float, int, int, int]


def problem(parts: Parts, wish: LeaseRequest, kernel: Kernel | None) -> str | None:
    """Say why `wish` will never be served."""
    if wish.gpus < 0:
        return f"A lease is for some GPUs or none, not {wish.gpus}."
    if not 0 < wish.ttl_s <= TTL_S_MAX:
        return f"A lease lasts up to {TTL_S_MAX:.0f} seconds, not {wish.ttl_s:g}."
    if not 0 <= wish.expected_s <= EXPECTED_S_MAX:
        return (
            f"A lease is expected to be held for 0 to {EXPECTED_S_MAX:.0f} seconds, not {wish.expected_s:g}."
        )
    if wish.share is not UNSET and (why := _share_problem(parts, wish, wish.share)):
        return why
    if not (0 <= wish.vram_gb <= SIZE_MAX and 0 <= wish.cpu <= SIZE_MAX and 0 <= wish.memory_gb <= SIZE_MAX):
        return f"GPU memory, cores and memory are numbers from 0 to {SIZE_MAX:.0f}."
    if wish.user not in parts.users.by_name and len(parts.users.by_name) >= USERS_MAX:
        return f"{USERS_MAX} users are known already."
    if len(parts.queue.by_request) >= QUEUE_MAX:
        return f"{QUEUE_MAX} requests wait already; try again later."
    if parts.policies.reserve and kernel is None and wish.gpus:
        return f"Kernel {wish.kernel_id} has no GPUs reserved; start it first."
    return None if possible(parts, wish, kernel) else impossible(parts, wish)


def _share_problem(parts: Parts, wish: LeaseRequest, share: Share) -> str | None:
    """Say why a share of a GPU will never be leased."""
    if wish.gpus != 1 or not SHARE_MILLI_MIN <= share.milli <= MILLI:
        part = wish.gpus * share.milli / MILLI
        return f"A part of a GPU is from {SHARE_MILLI_MIN / MILLI:g} to 1 of one, not {part:g}."
    if not 1 <= share.multiplicity <= MULTIPLICITY_MAX or share.vram_mib:
        return f"The parts of a GPU come to 1 to {MULTIPLICITY_MAX} of it, not {share.multiplicity}."
    if 0 < wish.vram_gb < VRAM_GB_MIN:
        return f"A part of a GPU has 1 MiB of its memory at least, not {wish.vram_gb:g} GiB."
    if wish.holder is not UNSET or parts.policies.reserve or parts.policies.keeps:
        return "Parts of a GPU are leased to cells, and only where these give back what they leave."
    return None


def counts_as(parts: Parts, wish: LeaseRequest) -> int:
    """Return the thousandths of a GPU that a share counts as where it counts least; 0 for whole GPUs."""
    if wish.share is UNSET:
        return 0
    fits = [shape[1] for shape in _shapes(parts) if wish.vram_gb and _covers(shape, wish, 0, 0)]
    return max(wish.share.milli, ceil(wish.vram_gb * MILLI / max(fits))) if fits else wish.share.milli


def kernel_problem(parts: Parts, spec: KernelSpec, *, placed: bool) -> str | None:
    """Say why a kernel will never be placed (or taken note of, if it is placed already)."""
    why = sizes_problem(spec)
    if why is not None:
        return why
    if len(parts.kernels.by_id) >= KERNELS_MAX:
        return f"{KERNELS_MAX} kernels live already; end or hibernate one first."
    if placed or possible_anywhere(parts, spec):
        return None
    nobody_yet = not parts.hosts.by_name and not spec.gpus
    return None if nobody_yet else impossible(parts, spec)


def sizes_problem(spec: KernelSpec) -> str | None:
    """Say which number of `spec` cannot be."""
    if not 1 <= spec.replicas <= REPLICAS_MAX:
        return f"A kernel has 1 to {REPLICAS_MAX} replicas, not {spec.replicas}."
    if not 0 <= spec.gpus <= GPUS_PER_HOST_MAX or not sane(spec.vram_gb, spec.cpu, spec.memory_gb):
        return f"A kernel asks for 0 to {GPUS_PER_HOST_MAX} GPUs, and for sizes from 0 to {SIZE_MAX:.0f}."
    return None


def sane(*sizes: float) -> bool:
    """Say whether sizes are numbers that can be counted with."""
    for size in sizes:  # noqa: SIM110 - asked for every request: a generator costs as much again
        if not 0 <= size <= SIZE_MAX:
            return False
    return True


def possible(parts: Parts, wish: LeaseRequest, kernel: Kernel | None) -> bool:
    """Say whether a host that may serve `wish` could, with nothing else on it."""
    if wish.hosts:
        return any(host.could_serve(wish) for host in _named(parts, wish.hosts))
    policies = parts.policies
    if kernel is not None and not policies.executor.anywhere:
        for host in kernel.hosts:
            if host.could_serve(wish):
                return True
        if _stays(parts, kernel) or (not policies.migration.enabled and not kernel.missing):
            return False
    return possible_anywhere(parts, wish)


def possible_anywhere(parts: Parts, wish: LeaseRequest | KernelSpec) -> bool:
    """Say whether any host that is up or can be provisioned could serve `wish`."""
    cpu, memory = round(wish.cpu * MILLI), round(wish.memory_gb * MILLI)
    for shape in _shapes(parts):  # noqa: SIM110 - asked for every request: a generator costs as much again
        if _covers(shape, wish, cpu, memory):
            return True
    return False


def impossible(parts: Parts, wish: LeaseRequest | KernelSpec) -> str:
    """Say that nobody can serve `wish`, and what the largest request is that somebody could."""
    named = _bound_to(parts, wish) if isinstance(wish, LeaseRequest) else ()
    where = f"of {', '.join(sorted(named))} " if named else ""
    shapes = _shapes(parts)
    if named:
        shapes = [shape for host in _named(parts, named) for shape in _of(host)]
    alike = [shape for shape in shapes if not wish.gpu_model or shape[0] == wish.gpu_model] or shapes
    best = max(
        (shape for shape in alike if shape[1] >= least_gb(wish)),
        key=_size,
        default=max(alike, key=_size, default=None),
    )
    if best is None:
        return f"No host {where}is up; start an agent on a host, or wait until one is back."
    return f"No host {where}has {_wanted_in_words(wish)}; the largest possible request is {_words(best)}."


def _bound_to(parts: Parts, wish: LeaseRequest) -> tuple[HostName, ...]:
    """Return the hosts that a request must be served on: those it names, or where its kernel stays."""
    kernel = parts.kernels.by_id.get(wish.kernel_id)
    if wish.hosts or kernel is None or not _stays(parts, kernel):
        return wish.hosts
    return tuple(host.name for host in kernel.hosts)


def _stays(parts: Parts, kernel: Kernel) -> bool:
    """Say whether a kernel that places itself has to be served where it is."""
    return kernel.reported and not (kernel.movable and parts.policies.migration.enabled)


def _named(parts: Parts, names: tuple[HostName, ...]) -> Iterator[Host]:
    for name in names:
        host = parts.hosts.by_name.get(name)
        if host is not None:
            yield host


def _shapes(parts: Parts) -> list[PoolShape]:
    shapes = parts.hosts.shapes()
    for host in parts.hosts.away.values():  # It may come back.
        shapes.extend(_of(host))
    kind = parts.settings.host_shape
    if kind is not None:
        size = (round(kind.cpu * MILLI), round(kind.memory_gb * MILLI))
        shapes.append((kind.gpu_model, kind.vram_gb, kind.gpus, *size))
    return shapes


def _of(host: Host) -> list[PoolShape]:
    return [
        (pool.model, pool.memory_gb, len(pool.uuids), host.cpu_milli, host.memory_milli)
        for pool in host.pools
    ]


def _wanted(wish: LeaseRequest | KernelSpec) -> PoolShape:
    return (wish.gpu_model, wish.vram_gb, wish.gpus, round(wish.cpu * MILLI), round(wish.memory_gb * MILLI))


def _covers(shape: PoolShape, wish: LeaseRequest | KernelSpec, cpu: int, memory: int) -> bool:
    """Say whether pools of this shape, empty, have what `wish` asks for: `cpu` and `memory` in milli."""
    model, vram_gb, gpus, cpu_milli, memory_milli = shape
    if wish.gpus and (
        gpus < wish.gpus or vram_gb < least_gb(wish) or (wish.gpu_model and model != wish.gpu_model)
    ):
        return False
    return cpu_milli >= cpu and memory_milli >= memory


def _size(shape: PoolShape) -> tuple[int, float, int, int, str]:
    model, vram_gb, gpus, cpu, memory = shape
    return (gpus, vram_gb, cpu, memory, model)


def _wanted_in_words(wish: LeaseRequest | KernelSpec) -> str:
    words = _words(_wanted(wish))
    if isinstance(wish, KernelSpec) or wish.share is UNSET:
        return words
    return f"{wish.share.milli / MILLI:g} of a {words.removeprefix('1 ')}"


def _rounded(gb: float) -> float:
    """Return a size with two digits at most: never more than it is, so that it can be asked for."""
    return floor(gb * 100 + TINY) / 100 or gb


def _words(shape: PoolShape) -> str:
    model, vram_gb, gpus, cpu, memory = shape
    words = f"{gpus} {model + ' ' if model else ''}GPU{'' if gpus == 1 else 's'}"
    if vram_gb:
        words += f" of {_rounded(vram_gb):g} GiB"
    if cpu:
        words += f", {cpu / MILLI:g} cores"
    if memory:
        words += f", {memory / MILLI:g} GiB of memory"
    return words
