"""What several agents say becomes one document, and one table for people."""

from __future__ import annotations

import msgspec
import pytest

from replkernel.cli.status import NARROW_CHARS, describe, describe_narrow, format_bytes
from replkernel.leasing.standing import UNTOLD, WAITING, Standing, ToldGpu, ToldHost, join
from replkernel.protocol.status import (
    ComingStatus,
    GpuStatus,
    HostStatus,
    KernelStatus,
    LeaseStatus,
    PinnedSection,
    RaftSection,
    ReplicaStatus,
    SchedulerStatus,
    StatusDocument,
    WaitingStatus,
    merge,
    read_document,
    to_json,
)


def host(
    name: str, *replicas: str, count: int = 1, state: str = "idle", router: int | None = None
) -> StatusDocument:
    """Return what the agent of `name` says of kernel k."""
    held = tuple(ReplicaStatus(replica=replica, host=name) for replica in replicas)
    kernel = KernelStatus("k", state, count, router, held)
    return StatusDocument(hosts=(HostStatus(name),), kernels=(kernel,))


def test_a_kernel_on_several_hosts_appears_once_with_all_replicas_in_order() -> None:
    document = merge([host("b", "r10", "r2"), host("a", "r1")])
    assert [one.name for one in document.hosts] == ["a", "b"]
    assert [replica.replica for replica in document.kernels[0].replicas] == ["r1", "r2", "r10"]


def test_who_has_seen_more_executions_tells_the_state_and_anybody_the_router() -> None:
    document = merge(
        [host("a", "r1", count=4, state="busy"), host("b", "r2", count=3, state="idle", router=77)]
    )
    assert (document.kernels[0].state, document.kernels[0].execution_count) == ("busy", 4)
    assert document.kernels[0].router_pid == 77


def test_merging_nothing_gives_an_empty_document() -> None:
    assert merge([]) == StatusDocument()
    lists: dict[str, list[str]] = {
        name: [] for name in ("hosts", "kernels", "leases", "waiting", "coming", "bookings")
    }
    empty = {**lists, "scheduler": None}
    assert msgspec.json.decode(to_json(merge([]))) == empty


def test_a_written_document_can_be_read_and_fields_of_newer_agents_are_skipped() -> None:
    document = host("a", "r1")
    assert read_document(to_json(document)) == document
    assert read_document(b'{"hosts": [{"name": "a", "weather": "fine"}]}').hosts[0].name == "a"


@pytest.mark.parametrize("damaged", [b"", b"[]", b'{"hosts": 3}', b'{"kernels": [{}]}'])
def test_a_text_that_is_no_document_is_refused(damaged: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_document(damaged)


def test_the_table_names_every_replica_its_raft_role_and_what_is_pinned() -> None:
    replica = ReplicaStatus(
        replica="r1",
        host="a",
        role="executor",
        kernel_pid=4711,
        raft=RaftSection("leader", 3, 20, 19),
        components=12,
        state_bytes=2048,
        pinned=(PinnedSection("sock"),),
    )
    document = StatusDocument(
        hosts=(HostStatus("a"),),
        kernels=(KernelStatus("kernel-1", "idle", 5, 99, (replica,)),),
        leases=(LeaseStatus("lease-1", "kernel-1", "a", ("GPU-0",), 8),),
    )
    text = "\n".join(describe(document))
    for expected in (
        "kernel kernel-1: idle, 5 executions, router 99",
        "4711",
        "19/20",
        "2.0 KiB",
        "sock",
        "fence 8",
    ):
        assert expected in text


def test_gpus_are_shown_with_what_they_do_and_who_holds_them() -> None:
    gpus = (
        GpuStatus("GPU-0", "NVIDIA H100", 80 << 30, utilisation=0.43, memory_used_bytes=3 << 30),
        GpuStatus("GPU-1", "NVIDIA H100", 80 << 30),
        GpuStatus("GPU-2", "NVIDIA H100", 80 << 30),
    )
    told = Standing(
        hosts=(
            ToldHost("a", "up", (ToldGpu("GPU-0", "l1", state="active"), ToldGpu("GPU-1", state="idle"))),
            ToldHost("far", "up", (ToldGpu("GPU-9", None, "L4", 24.0, "active", 1.0, 2.0),)),
        ),
        leases=(LeaseStatus("l1", "kernel-1", "a", ("GPU-0",), 8),),
        queue=(WaitingStatus("r1", "kernel-2", 3, "number 1 in line for GPUs of host a"),),
        coming=(ComingStatus("job 17", "Resources"), ComingStatus("job 18")),
    )
    document = join(StatusDocument(hosts=(HostStatus("a", gpus=gpus),)), SchedulerStatus("http://s"), told)
    lines = [line.split() for line in describe(document)]
    assert "GPU-0 NVIDIA H100 80 GiB 3.0 GiB 43% leased: kernel kernel-1".split() in lines
    assert "GPU-1 NVIDIA H100 80 GiB - - free".split() in lines
    assert "GPU-2 NVIDIA H100 80 GiB - - -".split() in lines, "the scheduler does not know it"
    assert "GPU-9 L4 24 GiB 2.0 GiB 100% leased: another user".split() in lines, "it is another user's"
    text = "\n".join(describe(document))
    assert "host far: up, 1 GPU" in text
    assert "other users hold 1 GPU" in text
    assert "scheduler http://s: 1 lease, 1 cell waiting" in text
    assert "waiting: a cell of kernel kernel-2 for 3 GPUs (number 1 in line for GPUs of host a)" in text
    assert "a host is asked for, job 17: Resources\na host is asked for, job 18: on its way" in text
    assert read_document(to_json(document)) == document


def test_an_administrator_reads_whose_notebooks_hold_gpus_and_wait() -> None:
    alice, own = ("alice", "/home/alice/work/train.ipynb", False), ("root", "mine.ipynb", True)
    told = Standing(
        (ToldHost("a", gpus=tuple(ToldGpu(f"GPU-{n}", f"l{n}", state="active") for n in range(2))),),
        (
            LeaseStatus("l0", "kernel-1", "a", ("GPU-0",), 8, *alice),
            LeaseStatus("l1", "kernel-2", "a", ("GPU-1",), 9, *own),
        ),
        (WaitingStatus("r", "kernel-3", 1, "number 1 in line", "bob", "", False),),
    )
    lines = describe(join(StatusDocument(), SchedulerStatus("http://s"), told))
    assert [line.rpartition("  ")[2] for line in lines[2:4]] == [
        "leased: train.ipynb of alice",
        "leased: mine.ipynb",
    ]
    assert lines[4] == "No replicated kernel of yours runs on these hosts."
    assert lines[7:] == [
        "lease l0: GPU-0 of a for /home/alice/work/train.ipynb of alice (kernel kernel-1), fence 8",
        "lease l1: GPU-1 of a for mine.ipynb (kernel kernel-2), fence 9",
        "waiting: a cell of kernel kernel-3 of bob for 1 GPU (number 1 in line)",
    ]
    assert "No replicated kernel is running." in describe(StatusDocument((HostStatus("a"),)))


def test_gpus_that_another_agent_of_the_host_offers_are_shown_beside_this_users_own_agent() -> None:
    own = StatusDocument(hosts=(HostStatus("a", gpus=(GpuStatus("GPU-0", "H100", 80),)),))
    told = ToldHost(
        "a", gpus=(ToldGpu("GPU-0", state="idle"), ToldGpu("GPU-1", model="H100", state="active"))
    )
    for document, shown in ((own, ["GPU-0", "GPU-1"]), (host("a", "r1"), ["GPU-0", "GPU-1"])):
        joined = join(document, SchedulerStatus("http://s"), Standing((told,), (), ()))
        assert [gpu.uuid for gpu in joined.hosts[0].gpus] == shown
        assert [gpu.state for gpu in joined.hosts[0].gpus] == ["idle", "active"]


def test_a_scheduler_that_does_not_answer_is_named_and_hides_nothing() -> None:
    trouble = SchedulerStatus("http://s", "it does not answer (Connection refused)")
    lines = describe(join(host("a", "r1"), trouble, UNTOLD))
    assert lines[-1] == "scheduler http://s: it does not answer (Connection refused)"
    assert any("r1" in line for line in lines)
    assert describe(join(StatusDocument(), trouble, UNTOLD))[1:] == lines[-1:]


def test_an_empty_document_says_what_will_start_an_agent() -> None:
    assert describe(StatusDocument()) == ["No host agent is running: the first kernel starts one."]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (10 << 20, "10 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_a_kernel_of_which_a_cell_waits_for_gpus_is_not_called_idle() -> None:
    kernel = KernelStatus("k", "idle", 3)
    told = Standing((), (), (WaitingStatus("w", "k", 1),))
    document = join(StatusDocument(kernels=(kernel,)), SchedulerStatus("http://s"), told)
    assert document.kernels[0].state == WAITING
    assert any(line.startswith("kernel k: waiting for GPUs") for line in describe(document))
    assert join(StatusDocument(kernels=(kernel,)), None, UNTOLD).kernels[0].state == "idle"


def test_a_notebook_reads_of_its_own_kernel_first_in_lines_that_half_a_window_holds() -> None:
    raft, names = RaftSection("leader", 3, 20, 19), tuple(PinnedSection(f"socket_{n}") for n in range(12))
    replica = ReplicaStatus("r1", "a", "executor", kernel_pid=4711, raft=raft, components=12, pinned=names)
    gpu = GpuStatus("GPU-1", "H100", memory_bytes=2**34)
    upkeep = "this machine's cgroup v2 has no controllers"
    document = StatusDocument(
        hosts=(HostStatus("a", gpus=(gpu,), unlimited=upkeep),),
        kernels=(KernelStatus("k", "idle", 2, 77, (replica,)),),
    )
    shown = describe_narrow(document)
    assert shown[:4] == [
        "kernel k:",
        "  idle, 2 executions, router 77",
        "  r1 executor on a, process 4711",
        "    12 components, 0 B",
    ]
    text = " ".join(" ".join(shown).split())
    assert "applied 19/20" in text and "socket_11" in text and "GPU-1 H100, 16 GiB" in text
    assert max(map(len, shown)) <= NARROW_CHARS
    assert upkeep not in text, "who works in a notebook cannot mend it"
    assert describe(document)[3] == f"  cores and memory are not limited: {upkeep}", "after the host's GPUs"
