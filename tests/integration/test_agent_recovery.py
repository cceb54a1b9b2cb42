"""An agent that is killed outright is followed by one that finds its groups and kernel processes again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import AgentAddress, agent_dir, find_agent, find_or_start, stop_agent
from replkernel.agent.io.spawning_place import spawn_zygote
from replkernel.protocol.agent_to_router import Committed, ReplicaLost
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.status import ReplicaStatus
from replkernel.records import ReplicaId
from tests.support.agent_router import RouterClient, delta, make_spec, run_cell, standin_env
from tests.support.ending import end_process

HOST = "recovery"


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[KernelSpec]:
    yield make_spec(standin_env(os.environ), tmp_path)
    stop_agent(HOST, os.environ)


def start() -> AgentAddress:
    return find_or_start(HOST, standin_env(os.environ))


def await_true(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_agent_killed_while_kernels_idle_is_followed_by_one_that_knows_all(spec: KernelSpec) -> None:
    first = start()
    with RouterClient(first, spec) as router:
        pids = {name: ready.pid for name, ready in router.make_replicas("r1", "r2", "r3").items()}
        run_cell(router, 1, "x")
    end_process(first.pid)
    with RouterClient(start(), spec) as router:
        router.await_ready("r1", "r2", "r3")
        assert {name: ready.pid for name, ready in router.ready.items()} == pids
        committed = run_cell(router, 2, "y", replica="r2")
        assert committed.state_bytes == 20
        seen = router.standin("r3").await_seen(lambda seen: "y" in seen["names"])
        assert seen["names"] == {"x": 1, "y": 2}
        assert router.standin("r1").seen()["seen"].count(["apply", 1]) == 0
        await_true(lambda: router.status().kernels[0].state == "idle")
        roles = [replica.role for replica in router.status().kernels[0].replicas]
        assert roles == ["standby", "executor", "standby"]


def test_a_cell_that_runs_while_the_agent_is_killed_commits_late(spec: KernelSpec) -> None:
    first = start()
    with RouterClient(first, spec) as router:
        router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
        process = router.standin("r1")
        process.await_seen(lambda seen: not seen["unacknowledged"])
        process.claim(2, 2)
        end_process(first.pid)
        process.propose(delta(2, "y"))
        assert process.seen()["unacknowledged"] == 1
    with RouterClient(start(), spec) as router:
        router.await_ready("r1", "r2", "r3")
        assert router.welcome is not None
        told = [heard.seq for heard in router.heard if isinstance(heard, Committed)]
        if router.welcome.last_seq < 2 and 2 not in told:
            router.wait(Committed, lambda message: message.seq == 2)
        assert process.await_seen(lambda seen: seen["unacknowledged"] == 0)
        for standby in ("r2", "r3"):
            names = router.standin(standby).await_seen(lambda seen: "y" in seen["names"])["names"]
            assert names == {"x": 1, "y": 2}
        run_cell(router, 3, "z")


def test_an_executor_that_dies_while_no_agent_is_there_is_answered_for(spec: KernelSpec) -> None:
    first = start()
    with RouterClient(first, spec) as router:
        ready = router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
        router.standin("r1").claim(2, 2)
        await_true(lambda: router.status().kernels[0].state == "busy")
        time.sleep(0.3)
        end_process(first.pid)
        os.kill(ready[ReplicaId("r1")].pid, signal.SIGKILL)
    with RouterClient(start(), spec) as router:
        router.await_ready("r1", "r2", "r3")
        assert router.welcome is not None
        names = router.standin("r1").await_seen(lambda seen: bool(seen["names"]))["names"]
        assert names == {"x": 1}
        await_true(lambda: router.status().kernels[0].state == "idle")
        run_cell(router, 3, "y", replica="r1")


@pytest.mark.slow
def test_processes_of_a_dead_zygote_are_still_watched(spec: KernelSpec) -> None:
    with RouterClient(start(), spec) as router:
        router.make_replicas("r1", "r2", "r3")
        zygote = router.standin("r1").facts()["parent"]
        os.kill(zygote, signal.SIGKILL)
        run_cell(router, 1, "x")
        os.kill(router.ready.pop(ReplicaId("r2")).pid, signal.SIGKILL)
        assert router.wait(ReplicaLost).replica == "r2"
        router.await_ready("r2")
        assert router.standin("r2").await_seen(lambda seen: bool(seen["names"]))["names"] == {"x": 1}
        assert router.standin("r2").facts()["parent"] not in (zygote, router.address.pid)


@pytest.mark.slow
def test_the_end_of_a_process_of_an_earlier_agent_is_known(spec: KernelSpec) -> None:
    first = start()
    with RouterClient(first, spec) as router:
        router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
    end_process(first.pid)
    with RouterClient(start(), spec) as router:
        router.await_ready("r1", "r2", "r3")
        os.kill(router.ready[ReplicaId("r2")].pid, signal.SIGSEGV)
        assert router.wait(ReplicaLost).why == "killed by SIGSEGV (segmentation fault)"
        router.standin("r3").exit(9)
        assert router.wait(ReplicaLost).why == "its process ended by itself with exit code 9"


def test_sigterm_leaves_the_kernel_processes_to_the_next_agent(spec: KernelSpec) -> None:
    first = start()
    with RouterClient(first, spec) as router:
        pids = {name: ready.pid for name, ready in router.make_replicas("r1", "r2", "r3").items()}
        run_cell(router, 1, "x")
    end_process(first.pid, signal.SIGTERM)
    assert not (agent_dir(HOST, os.environ) / "agent.json").exists()
    with RouterClient(start(), spec) as router:
        router.await_ready("r1", "r2", "r3")
        assert {name: ready.pid for name, ready in router.ready.items()} == pids
        run_cell(router, 2, "y")


def test_stopping_the_agent_ends_its_kernels(spec: KernelSpec) -> None:
    with RouterClient(start(), spec) as router:
        ready = router.make_replicas("r1", "r2", "r3")
        assert stop_agent(HOST, os.environ)
        for replica in ready.values():
            assert not Path(f"/proc/{replica.pid}").exists()
        assert list((agent_dir(HOST, os.environ) / "kernels").iterdir()) == []


def remove(directory: Path) -> None:
    """Remove a directory in which somebody may write at any time."""
    shutil.rmtree(directory.rename(directory.with_name(f"{directory.name}-removed")))


def test_replicas_that_lost_their_journals_are_not_taken_for_new_ones(spec: KernelSpec) -> None:
    """Two that start empty are a majority: they would found a history of their own, without the cells."""
    first = start()
    with RouterClient(first, spec) as router:
        ready = router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
    end_process(first.pid)
    kept = agent_dir(HOST, os.environ) / "kernels" / spec.kernel_id / spec.incarnation
    for name in ("r1", "r2"):
        shutil.rmtree(kept / name / "raft")
        end_process(ready[ReplicaId(name)].pid)
    with RouterClient(start(), spec) as router:
        router.await_ready("r3")
        assert router.welcome is not None
        assert router.welcome.replicas == ("r3",)
        assert [path.name for path in kept.iterdir()] == ["r3"]


@pytest.mark.slow
def test_a_replica_whose_files_were_removed_while_it_ran_is_not_taken_for_a_new_one(spec: KernelSpec) -> None:
    first = start()
    with RouterClient(first, spec) as router:
        ready = router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
        remove(agent_dir(HOST, os.environ) / "kernels" / spec.kernel_id)
        end_process(router.ready.pop(ReplicaId("r1")).pid)
        router.await_ready("r1")
    end_process(first.pid)
    for replica in (*ready.values(), *router.ready.values()):
        with contextlib.suppress(ProcessLookupError):
            end_process(replica.pid)
    with RouterClient(start(), spec) as router:
        assert router.status().kernels == ()


@pytest.mark.slow
def test_two_kernels_come_back_side_by_side(spec: KernelSpec, tmp_path: Path) -> None:
    other = make_spec(standin_env(os.environ), tmp_path)
    first = start()
    with RouterClient(first, spec) as one, RouterClient(first, other) as two:
        one.make_replicas("r1", "r2", "r3")
        two.make_replicas("r1")
        run_cell(one, 1, "mine")
        run_cell(two, 1, "yours")
    end_process(first.pid)
    with RouterClient(start(), spec) as one, RouterClient(start(), other) as two:
        one.await_ready("r1", "r2", "r3")
        two.await_ready("r1")
        end_process(two.ready.pop(ReplicaId("r1")).pid)
        two.await_ready("r1")
        names = two.standin("r1").await_seen(lambda seen: bool(seen["names"]))["names"]
        assert names == {"yours": 1}


@pytest.mark.slow
def test_pretended_gpus_outlive_the_agent_that_was_told_of_them_as_long_as_it_has_kernels(
    spec: KernelSpec,
) -> None:
    env = standin_env(os.environ)
    told = [sys.executable, "-m", "replkernel.cli", "agent", "--name", HOST, "--fake-gpus", "4"]
    with subprocess.Popen(told, env=env, stdout=subprocess.DEVNULL) as first:
        await_true(lambda: find_agent(HOST, env) is not None)
        with RouterClient(find_or_start(HOST, env), spec) as router:
            router.make_replicas("r1", "r2", "r3")
            first.kill()
    with RouterClient(find_or_start(HOST, env), spec) as router:
        router.await_ready("r1", "r2", "r3")
        await_true(lambda: len(router.status().hosts[0].gpus) == 4)
    assert stop_agent(HOST, env)
    with RouterClient(find_or_start(HOST, env), spec) as router:
        gpus = router.status().hosts[0].gpus
        assert not any(gpu.fake for gpu in gpus), "no kernel was left, and nobody says anything of GPUs"


def test_the_group_of_a_restarted_host_does_not_wait_for_a_kernel_process(tmp_path: Path) -> None:
    held = tmp_path / "held"
    (tmp_path / "slow_package.py").write_text(
        f"import os, time\nwhile os.path.exists({str(held)!r}):\n    time.sleep(0.02)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    env = standin_env({**os.environ, "PYTHONPATH": path, "REPLKERNEL_PRELOAD": "slow_package"})
    spec = make_spec(env, tmp_path)
    first = find_or_start(HOST, env)
    with RouterClient(first, spec) as router:
        pids = [ready.pid for ready in router.make_replicas("r1", "r2", "r3").values()]
        run_cell(router, 1, "x")
    held.touch()
    end_process(first.pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with RouterClient(find_or_start(HOST, env), spec) as router:
        await_true(lambda: "leader" in [role_of(replica) for replica in router.status().kernels[0].replicas])
        assert not router.ready
        held.unlink()
        router.await_ready("r1", "r2", "r3")
        names = router.standin("r1").await_seen(lambda seen: bool(seen["names"]))["names"]
        assert names == {"x": 1}
    stop_agent(HOST, env)


def test_a_preloaded_package_that_starts_a_thread_is_named_and_no_kernel_is_forked_with_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "busy_package.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), name='Poller', daemon=True).start()\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "REPLKERNEL_PRELOAD": "busy_package"}
    zygote = spawn_zygote(sys.executable, env, ("busy_package",), str(tmp_path / "log"))
    with zygote.link:
        assert zygote.link.recv(1) == b"", "it is ready"
    _, status = os.waitpid(zygote.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert "thread Poller runs after REPLKERNEL_PRELOAD=busy_package" in (tmp_path / "log").read_text()


def role_of(replica: ReplicaStatus) -> str:
    return replica.raft.role if replica.raft is not None else ""
