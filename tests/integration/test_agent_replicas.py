"""A real agent with zygotes and Raft members keeps replicas of stand-in processes through life and death."""

from __future__ import annotations

import os
import re
import resource
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import AgentAddress, agent_dir, find_or_start, stop_agent
from replkernel.objects.cache import BlobCache
from replkernel.protocol.agent_to_router import (
    AgentRefuses,
    Committed,
    CommitTrouble,
    KernelEnded,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
    RouteNotice,
)
from replkernel.protocol.router_to_agent import InterruptReplica, PrepareReplica, StartReplica
from replkernel.records import Payload, ReplicaId
from tests.support.agent_router import RouterClient, delta, make_spec, run_cell, standin_env
from tests.support.live import eventually

HOST = "replicas"


def await_leader(router: RouterClient, name: str) -> None:
    """Wait until the status says that the replica's member leads the group."""
    deadline = time.monotonic() + 60.0
    leader = ""
    while leader != name:
        assert time.monotonic() < deadline, f"{leader or 'nobody'} leads"
        time.sleep(0.05)
        replicas = router.status().kernels[0].replicas
        leader = next((one.replica for one in replicas if one.raft and one.raft.role == "leader"), "")


def how_processes_ended() -> list[str]:
    """Return how each kernel process has ended, by the agent's log."""
    log = (agent_dir(HOST, os.environ) / "agent.log").read_text()
    return re.findall(r"the process of .*?: (.*)", log)


@pytest.fixture
def agent() -> Iterator[AgentAddress]:
    yield find_or_start(HOST, standin_env(os.environ))
    stop_agent(HOST, os.environ)


@pytest.fixture
def router(agent: AgentAddress, tmp_path: Path) -> Iterator[RouterClient]:
    spec = make_spec(standin_env(os.environ), tmp_path)
    with RouterClient(agent, spec) as client:
        yield client


def test_a_delta_is_committed_and_reaches_the_standbys(router: RouterClient) -> None:
    router.make_replicas("r1", "r2", "r3")
    committed = run_cell(router, 1, "x")
    assert (committed.replica, committed.execution_count, committed.state_bytes) == ("r1", 1, 10)
    assert ["committed", 1] in router.standin("r1").await_seen(lambda seen: bool(seen["seen"]))["seen"]
    for standby in ("r2", "r3"):
        seen = router.standin(standby).await_seen(lambda seen: bool(seen["seen"]))
        assert seen["seen"] == [["apply", 1]]
        assert seen["names"] == {"x": 1}


def test_the_member_of_the_replica_that_runs_the_cells_comes_to_lead(router: RouterClient) -> None:
    router.make_replicas("r1", "r2", "r3")
    for seq, name in ((1, "r1"), (2, "r2"), (3, "r3")):
        run_cell(router, seq, "x", replica=name)
        await_leader(router, name)


@pytest.mark.slow
def test_processes_agree_on_hashes_and_are_clean(router: RouterClient) -> None:
    router.make_replicas("r1", "r2", "r3")
    facts = [router.standin(name).facts() for name in ("r1", "r2", "r3")]
    assert len({fact["hash"] for fact in facts}) == 1
    assert all(fact["seed"] is None for fact in facts)
    assert all(fact["session"] == fact["pid"] for fact in facts)
    assert len({fact["parent"] for fact in facts}) == 1, "one zygote is everybody's parent"


def test_a_majority_that_is_not_there_is_told_without_any_cell_and_so_is_its_coming(
    router: RouterClient,
) -> None:
    assert router.spec is not None
    addresses, secret = {}, secrets.token_hex(16)
    for name in (ReplicaId("r1"), ReplicaId("r2")):
        router.send(PrepareReplica(router.spec, name))
        addresses[name] = router.wait(ReplicaPrepared, lambda message, name=name: message.replica == name)
    peers = {name: message.raft_address for name, message in addresses.items()}
    router.send(StartReplica(router.spec.kernel_id, ReplicaId("r1"), peers, secret))
    assert "majority" in router.wait(CommitTrouble).why
    router.send(StartReplica(router.spec.kernel_id, ReplicaId("r2"), peers, secret))
    assert not router.wait(CommitTrouble, lambda message: not message.why).why


def test_a_killed_standby_comes_back_with_all_state(router: RouterClient) -> None:
    router.make_replicas("r1", "r2", "r3")
    run_cell(router, 1, "x", "y")
    router.ready.pop(ReplicaId("r2"))
    os.kill(int(router.status().kernels[0].replicas[1].kernel_pid or 0), signal.SIGKILL)
    lost = router.wait(ReplicaLost)
    assert (lost.replica, lost.returning) == ("r2", True)
    assert "SIGKILL" in lost.why
    router.await_ready("r2")
    seen = router.standin("r2").await_seen(lambda seen: bool(seen["names"]))
    assert seen["names"] == {"x": 1, "y": 1}


def test_a_killed_executor_fails_its_execution_and_a_standby_goes_on(router: RouterClient) -> None:
    router.make_replicas("r1", "r2", "r3")
    run_cell(router, 1, "x")
    router.standin("r1").claim(2, 2)
    os.kill(router.ready[ReplicaId("r1")].pid, signal.SIGSEGV)
    assert "SIGSEGV" in router.wait(ReplicaLost).why
    router.wait(ReplicaReady, lambda message: message.replica == "r1")
    run_cell(router, 3, "z", replica="r2")
    names = router.standin("r1").await_seen(lambda seen: "z" in seen["names"])["names"]
    assert names == {"x": 1, "z": 3}


def test_a_death_is_told_with_its_reason_while_whoever_reaps_it_is_busy(router: RouterClient) -> None:
    router.make_replicas("r1", "r2", "r3")
    zygote = router.standin("r1").facts()["parent"]
    os.kill(zygote, signal.SIGSTOP)
    try:
        os.kill(router.ready[ReplicaId("r2")].pid, signal.SIGKILL)
        lost = router.wait(ReplicaLost)
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert lost.replica == "r2"
    assert "SIGKILL" in lost.why
    assert lost.ago_s > 0
    router.ready.pop(ReplicaId("r2"))
    router.await_ready("r2")


@pytest.mark.slow
def test_an_exit_code_is_named(router: RouterClient) -> None:
    router.make_replicas("r1")
    router.standin("r1").exit(17)
    assert router.wait(ReplicaLost).why == "its process ended by itself with exit code 17"


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """Return a memory cgroup of 64 MB, where this user may make one."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"replkernel-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(64 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        deadline = time.monotonic() + 60
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        group.rmdir()
        return
    pytest.skip("no memory cgroup can be made here")


def test_an_out_of_memory_kill_is_told_apart(router: RouterClient, small_cgroup: Path) -> None:
    ready = router.make_replicas("r1")
    (small_cgroup / "cgroup.procs").write_text(str(ready[ReplicaId("r1")].pid))
    process = router.standin("r1")
    process.claim(1, 1)
    process.eat(200)
    why = router.wait(ReplicaLost).why
    assert "for lack of memory (its cgroup's limit memory." in why
    assert "is 64 MiB" in why
    assert "RSS was" in why
    (kernel,) = router.status().kernels
    assert kernel.replicas[0].last_death == why


def test_blobs_are_in_the_store_before_the_commit_and_can_be_fetched(
    router: RouterClient, tmp_path: Path
) -> None:
    router.make_replicas("r1", "r2", "r3")
    cache_dir = agent_dir(HOST, os.environ) / "cache"
    blob = BlobCache(cache_dir).write_blob(secrets.token_bytes(3_000_000))
    process = router.standin("r1")
    process.claim(1, 1)
    process.propose(delta(1, "big", payload=Payload(head=b"h", buffers=(blob,))))
    router.wait(Committed)
    stored = {path.name for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert {chunk.digest for chunk in blob.chunks} <= stored
    for chunk in blob.chunks:
        BlobCache(cache_dir).chunk_path(chunk.digest).unlink()
    assert router.standin("r2").fetch([blob]) == "done"
    assert BlobCache(cache_dir).missing(blob) == []


def test_without_a_usable_store_cells_run_and_durability_follows_when_it_can(
    agent: AgentAddress, tmp_path: Path
) -> None:
    barrier = tmp_path / "store"
    barrier.write_text("not a directory")
    spec = make_spec(standin_env(os.environ), tmp_path)
    with RouterClient(agent, spec) as router:
        router.make_replicas("r1", "r2", "r3")
        notice = next((heard for heard in router.heard if isinstance(heard, RouteNotice)), None)
        assert "REPLKERNEL_STORE" in (notice or router.wait(RouteNotice)).text
        blob = BlobCache(agent_dir(HOST, os.environ) / "cache").write_blob(secrets.token_bytes(100_000))
        process = router.standin("r1")
        process.claim(1, 1)
        process.propose(delta(1, "big", payload=Payload(head=b"h", buffers=(blob,))))
        trouble = router.wait(CommitTrouble, lambda message: "REPLKERNEL_STORE" in message.why)
        assert trouble.seq == 1
        assert process.await_seen(lambda seen: bool(seen["trouble"]))
        process.claim(2, 2)
        process.propose(delta(2, "small"))
        barrier.unlink()
        assert router.wait(Committed, lambda message: message.seq == 2).state_bytes == 20
        assert process.await_seen(lambda seen: not seen["trouble"])


@pytest.mark.slow
def test_an_unknown_store_is_named(agent: AgentAddress, tmp_path: Path) -> None:
    spec = make_spec(standin_env(os.environ), tmp_path, store_url="gopher://nowhere")
    with RouterClient(agent, spec) as router:
        router.make_replicas("r1")
        told = [heard.text for heard in router.heard if isinstance(heard, RouteNotice)]
        text = told[0] if told else router.wait(RouteNotice).text
        assert "gopher" in text
        assert "REPLKERNEL_STORE" in text


def test_one_replica_is_a_group_of_its_own(router: RouterClient) -> None:
    router.make_replicas("r1")
    assert run_cell(router, 1, "x").seq == 1
    router.ready.clear()
    os.kill(int(router.status().kernels[0].replicas[0].kernel_pid or 0), signal.SIGKILL)
    router.await_ready("r1")
    assert router.standin("r1").await_seen(lambda seen: bool(seen["names"]))["names"] == {"x": 1}


@pytest.mark.slow
def test_a_process_that_keeps_dying_young_is_given_up_with_its_last_words(
    agent: AgentAddress, tmp_path: Path
) -> None:
    spec = make_spec(standin_env(os.environ, STANDIN_EXIT="3"), tmp_path)
    with RouterClient(agent, spec) as router:
        router.send(PrepareReplica(spec, ReplicaId("r1")))
        lost = router.wait(ReplicaLost, lambda message: not message.returning)
        assert "exit code 3" in lost.why
        assert "standin: told to fail" in lost.why
        notice = router.wait(RouteNotice)
        assert notice.severity == "error"
        assert "process.log" in notice.text


@pytest.mark.slow
def test_where_no_zygote_starts_fresh_interpreters_do(tmp_path: Path) -> None:
    env = standin_env(os.environ, STANDIN_BROKEN="1")
    spec = make_spec(env, tmp_path)
    try:
        with RouterClient(find_or_start(HOST, env), spec) as router:
            router.make_replicas("r1", "r2")
            assert run_cell(router, 1, "x").seq == 1
            facts = router.standin("r2").facts()
            assert facts["parent"] == router.address.pid
            assert facts["descriptors_max"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            router.standin("r2").exit(9)
            assert "exit code 9" in router.wait(ReplicaLost).why
            router.ready.pop(ReplicaId("r2"))
            router.await_ready("r2")
        log = (agent_dir(HOST, os.environ) / "agent.log").read_text()
        assert "standin: told not to preload" in log
    finally:
        stop_agent(HOST, os.environ)


@pytest.mark.slow
def test_a_python_that_is_not_there_is_named(agent: AgentAddress, tmp_path: Path) -> None:
    spec = make_spec(standin_env(os.environ), tmp_path, python="/nowhere/python3")
    with RouterClient(agent, spec) as router:
        router.send(PrepareReplica(spec, ReplicaId("r1")))
        lost = router.wait(ReplicaLost, lambda message: not message.returning)
        assert "/nowhere/python3" in lost.why


def test_secrets_are_in_no_log_and_no_command_line(router: RouterClient) -> None:
    ready = router.make_replicas("r1")
    assert router.spec is not None
    said = [path.read_bytes() for path in agent_dir(HOST, os.environ).rglob("*.log")]
    pids = (router.address.pid, ready[ReplicaId("r1")].pid)
    said += [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
    for secret in (router.spec.key, router.address.token):
        assert not any(secret.encode() in text for text in said)


def test_interrupt_reaches_the_process(router: RouterClient) -> None:
    router.make_replicas("r1")
    router.send(InterruptReplica(router.spec.kernel_id, ReplicaId("r1")))  # type: ignore[union-attr]
    assert router.standin("r1").await_seen(lambda seen: ["interrupted"] in seen["seen"])


def test_the_end_leaves_nothing_behind(router: RouterClient, tmp_path: Path) -> None:
    ready = router.make_replicas("r1", "r2", "r3")
    run_cell(router, 1, "x")
    router.end()
    ends = how_processes_ended()
    assert len(ends) == 3 and not any("SIGKILL" in why for why in ends), ends
    for replica in ready.values():
        assert not Path(f"/proc/{replica.pid}").exists()
    assert list((agent_dir(HOST, os.environ) / "kernels").iterdir()) == []
    assert list((Path(os.environ["REPLKERNEL_SOCKET_DIR"]) / "k").iterdir()) == []


@pytest.mark.slow
def test_a_stubborn_process_is_killed_in_time(agent: AgentAddress, tmp_path: Path) -> None:
    spec = make_spec(standin_env(os.environ, STANDIN_STUBBORN="1"), tmp_path)
    with RouterClient(agent, spec) as router:
        ready = router.make_replicas("r1")
        router.end()
        (why,) = how_processes_ended()
        assert why.startswith("killed by SIGKILL")
        assert not Path(f"/proc/{ready[ReplicaId('r1')].pid}").exists()


def test_another_key_does_not_get_at_a_live_kernel(
    router: RouterClient, agent: AgentAddress, tmp_path: Path
) -> None:
    router.make_replicas("r1")
    assert router.spec is not None
    thief = make_spec(standin_env(os.environ), tmp_path, kernel_id=router.spec.kernel_id)
    with RouterClient(agent, thief) as other:
        assert "another connection file" in other.wait(AgentRefuses).why
        other.send(PrepareReplica(thief, ReplicaId("r2")))
        assert "RouterHello" in other.wait(AgentRefuses).why


def test_a_router_cannot_touch_another_kernel(
    router: RouterClient, agent: AgentAddress, tmp_path: Path
) -> None:
    router.make_replicas("r1")
    assert router.spec is not None
    with RouterClient(agent, make_spec(standin_env(os.environ), tmp_path)) as other:
        other.send(StartReplica(router.spec.kernel_id, ReplicaId("r1"), {}, "s"))
        assert "sent StartReplica for kernel" in other.wait(AgentRefuses).why


def test_names_that_would_be_paths_are_refused(agent: AgentAddress, tmp_path: Path) -> None:
    spec = make_spec(standin_env(os.environ), tmp_path, incarnation="../../x")
    with RouterClient(agent, spec) as router:
        router.send(PrepareReplica(spec, ReplicaId("r1")))
        assert "incarnation" in router.wait(AgentRefuses).why


def test_an_orphaned_kernel_ends_after_its_grace_time(agent: AgentAddress, tmp_path: Path) -> None:
    envs = [standin_env(os.environ, REPLKERNEL_ORPHAN_GRACE_S=grace_s) for grace_s in ("1", "600")]
    short, long = (make_spec(env, tmp_path) for env in envs)
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    with (
        RouterClient(agent, short, pid=pid) as one,
        RouterClient(agent, long, pid=pid) as other,
        RouterClient(agent) as watcher,
    ):
        one.make_replicas("r1")
        other.make_replicas("r1")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        deadline = time.monotonic() + 15
        while (left := watcher.status().kernels) and short.kernel_id in {kernel.kernel_id for kernel in left}:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert [(kernel.kernel_id, kernel.state) for kernel in left] == [(long.kernel_id, "orphaned")]


def test_a_router_that_comes_back_finds_its_kernel(agent: AgentAddress, tmp_path: Path) -> None:
    spec = make_spec(standin_env(os.environ), tmp_path)
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    with RouterClient(agent, spec, pid=pid) as first:
        pids = {name: ready.pid for name, ready in first.make_replicas("r1", "r2", "r3").items()}
        run_cell(first, 1, "x")
        eventually(lambda: first.status().kernels[0].state == "idle", "the end of the cell")
        first.standin("r1").claim(2, 2)
        eventually(lambda: first.status().kernels[0].state == "busy", "the claim")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with RouterClient(agent, spec) as second:
        second.await_ready("r1", "r2", "r3")
        assert {name: ready.pid for name, ready in second.ready.items()} == pids
        welcome = second.welcome
        assert welcome is not None
        assert (welcome.incarnation, welcome.spec) == (spec.incarnation, spec)
        known = (welcome.last_seq, welcome.pending_seq, welcome.newest_seq, welcome.fence)
        assert known == (1, 0, 2, 2), "the second runs: the log has nothing of it, and may never have"
        second.standin("r1").propose(delta(2, "y"))
        assert second.wait(Committed).seq == 2


@pytest.mark.slow
def test_the_next_incarnation_may_come_while_the_last_one_ends(agent: AgentAddress, tmp_path: Path) -> None:
    spec = make_spec(standin_env(os.environ, STANDIN_STUBBORN="1"), tmp_path)
    with RouterClient(agent, spec) as router:
        router.make_replicas("r1")
        router.end()
    again = make_spec(standin_env(os.environ), tmp_path, kernel_id=spec.kernel_id, key=spec.key)
    with RouterClient(agent, again) as router:
        router.make_replicas("r1")
        assert router.welcome is not None
        assert router.welcome.incarnation == ""
        assert router.standin("r1").seen()["names"] == {}
        router.end()
        assert any(isinstance(message, KernelEnded) for message in router.heard)
