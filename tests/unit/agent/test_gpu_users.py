"""Whose processes use a GPU: kernels', those that they have started, and nobody else's."""

from __future__ import annotations

from replkernel.agent.core.gpu_users import CONTEXT_BYTES, with_owners
from replkernel.protocol.status import GpuProcess, GpuStatus
from replkernel.records import KernelId, ReplicaId

ONE = (KernelId("k1"), ReplicaId("r1"))
PARENTS = {30: 20, 20: 10, 40: 1, 50: 50}


def gpu(*processes: tuple[int, int], fake: bool = True, uuid: str = "g0") -> GpuStatus:
    return GpuStatus(uuid, fake=fake, processes=tuple(GpuProcess(*each) for each in processes))


def test_a_kernels_process_and_its_children_count_together_and_strangers_are_left_out() -> None:
    gpus, use = with_owners(
        (gpu((10, 100), (30, 50), (40, 7), (50, 7), (99, 7)), gpu((10, 1), uuid="g1")),
        {10: ONE},
        lambda pid: PARENTS.get(pid, 0),
    )
    assert use == {ONE: {"g0": 150, "g1": 1}}
    assert [(each.pid, each.kernel_id) for each in gpus[0].processes] == [(10, "k1"), (30, "k1")]


def test_cudas_own_context_is_no_use_of_a_real_gpu() -> None:
    _, use = with_owners((gpu((10, CONTEXT_BYTES), fake=False),), {10: ONE}, PARENTS.__getitem__)
    assert use == {}
    _, use = with_owners((gpu((10, CONTEXT_BYTES + 1), fake=False),), {10: ONE}, PARENTS.__getitem__)
    assert use == {ONE: {"g0": CONTEXT_BYTES + 1}}
