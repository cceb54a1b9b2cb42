"""A host lost with everything on it: its replica is replaced on another host, and the notebook goes on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from replkernel.agent.io.lookup import agent_dir, find_agent, find_or_start
from replkernel.agent.io.start import begin
from replkernel.client.inquiry import ask_agents
from replkernel.errors import AgentUnavailable
from tests.e2e.faults.hosts import kernel_processes
from tests.support.files_below import files_below
from tests.support.group import replicas, standing
from tests.support.live import AGENT_S, Live, eventually, kernel

pytestmark = pytest.mark.timeout(180)

HOSTS = ("h1", "h2", "h3", "h4")


@contextlib.contextmanager
def soon_lost(directory: Path, *hosts: str) -> Iterator[Live]:
    """Start a kernel that gives a host up within a second; its agents are there before: late is lost, too."""
    settings = {"REPLKERNEL_HOSTS": ",".join(hosts), "REPLKERNEL_HOST_LOST_S": "1"}
    env = os.environ | settings
    begun = {host: begin(host, env) for host in hosts}
    for host, start in begun.items():
        find_or_start(host, env, begun=start)
    with kernel(directory, **settings) as running:
        yield running


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with soon_lost(tmp_path, *HOSTS) as running:
        yield running


@pytest.fixture
def locks() -> Iterator[dict[str, int]]:
    """Hold the starters' locks of hosts that are lost, so that nobody starts their agents."""
    held: dict[str, int] = {}
    yield held
    for descriptor in held.values():
        os.close(descriptor)


def same_log(cells: int = 1) -> bool:
    """Tell whether all members have applied the same, so many cells among it, as far as agents tell."""
    kernels = ask_agents(os.environ, AGENT_S).kernels
    applied = {one.raft.applied if one.raft else -1 for known in kernels for one in known.replicas}
    return all(known.execution_count >= cells for known in kernels) and len(applied) == 1


def destroy(host: str, locks: dict[str, int], *, wiped: bool = True) -> None:
    """Lose a host: its agent and kernel processes are killed, its disk is gone, and it does not return."""
    directory = agent_dir(host, os.environ)
    locks[host] = os.open(directory / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(locks[host], fcntl.LOCK_EX)
    agent = find_agent(host, os.environ)
    assert agent is not None
    victims = [agent.pid, *kernel_processes(directory)]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    for pid in victims:
        eventually(lambda pid=pid: _gone(pid), f"the end of process {pid}")
    if wiped:
        shutil.rmtree(directory / "kernels", ignore_errors=True)


def there_again(host: str) -> None:
    """Have a host's agent run again: started here, or by the supervisor of its machine."""

    def found() -> bool:
        with contextlib.suppress(AgentUnavailable):
            return bool(find_or_start(host, os.environ))
        return False

    eventually(found, f"the agent of {host}")


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_lost_hosts_replica_is_replaced_and_the_next_loss_is_survived_too(
    live: Live, locks: dict[str, int]
) -> None:
    live.value("x = {'a': list(range(5))}; y = x['a']; print(len(x))")
    eventually(
        lambda: standing() == {"r1": "h1", "r2": "h2", "r3": "h3"} and same_log(), "a replica on each host"
    )
    destroy("h2", locks)
    eventually(lambda: standing() == {"r1": "h1", "r3": "h3", "r4": "h4"}, "a replica on the spare host")
    with contextlib.suppress(AssertionError):
        eventually(lambda: "replaced by r4" in live.terminal, "the word of it")
    assert "replaced by r4" in live.terminal
    assert "h2 has not answered for 1 s" in live.terminal
    assert live.value("y.append(99); print(x['a'][-1])") == "99"
    eventually(lambda: same_log(2), "what must survive in every log")
    destroy("h1", locks)
    ran = eventually(lambda: _value(live, "print(x, y is x['a'])"), "a cell after the second loss", 60)
    assert ran == "{'a': [0, 1, 2, 3, 4, 99]} True"
    assert live.run("pass").said["host"] in ("h3", "h4")


def _value(live: Live, code: str) -> str:
    ran = live.run(code)
    return ran.out.strip() if ran.status == "ok" else ""


def test_a_host_that_returns_gives_up_the_replica_that_was_replaced(
    live: Live, locks: dict[str, int]
) -> None:
    live.value("x = 1; print(x)")
    eventually(lambda: set(standing()) == {"r1", "r2", "r3"} and same_log(), "three replicas")
    destroy("h2", locks, wiped=False)
    eventually(lambda: set(standing()) == {"r1", "r3", "r4"}, "a replica on the spare host")
    kept = agent_dir("h2", os.environ) / "kernels"
    assert list(kept.glob("*/*/r2"))
    os.close(locks.pop("h2"))
    there_again("h2")
    eventually(lambda: not files_below(kept, "*/*/r2"), "the end of the stale replica", 60)
    eventually(lambda: set(standing()) == {"r1", "r3", "r4"}, "three replicas")
    assert live.value("x += 1; print(x)") == "2"
    assert not kernel_processes(agent_dir("h2", os.environ))


@pytest.mark.slow
def test_without_a_spare_host_nothing_is_changed_and_with_it_back_all_is_as_before(
    tmp_path: Path, locks: dict[str, int]
) -> None:
    with soon_lost(tmp_path, "h1", "h2", "h3") as live:
        live.value("x = 1; print(x)")
        eventually(lambda: set(standing()) == {"r1", "r2", "r3"} and same_log(), "three replicas")
        destroy("h2", locks, wiped=False)
        time.sleep(3)
        assert live.value("x += 1; print(x)") == "2"
        assert set(standing()) == {"r1", "r3"}
        os.close(locks.pop("h2"))
        there_again("h2")
        eventually(lambda: set(standing()) == {"r1", "r2", "r3"} and same_log(), "three replicas", 60)


@pytest.mark.slow
def test_a_wiped_host_gets_a_new_replica_of_its_own(tmp_path: Path, locks: dict[str, int]) -> None:
    with soon_lost(tmp_path, "h1", "h2", "h3") as live:
        live.value("x = 1; print(x)")
        eventually(lambda: set(standing()) == {"r1", "r2", "r3"} and same_log(), "three replicas")
        destroy("h2", locks)
        os.close(locks.pop("h2"))
        there_again("h2")
        eventually(lambda: standing() == {"r1": "h1", "r3": "h3", "r4": "h2"}, "a new replica there", 60)
        assert live.value("x += 1; print(x)") == "2"


@pytest.mark.one_host
def test_a_damaged_journal_is_replaced_on_its_own_host(tmp_path: Path) -> None:
    with kernel(tmp_path) as live:
        live.value("x = 1; print(x)")
        eventually(lambda: set(standing()) == {"r1", "r2", "r3"} and same_log(), "three replicas")
        (host,) = set(standing().values())
        directory = agent_dir(host, os.environ)
        agent = find_agent(host, os.environ)
        assert agent is not None
        os.kill(agent.pid, signal.SIGSTOP)  # Nobody starts another one before the journal is damaged.
        (raft,) = directory.glob("kernels/*/*/r3/raft")
        (raft / "raft.snapshot").write_bytes(b"not a snapshot")
        os.kill(agent.pid, signal.SIGKILL)
        eventually(lambda: set(standing()) == {"r1", "r2", "r4"}, "a replica in its place", 60)
        assert live.value("x += 1; print(x)") == "2"
        eventually(lambda: not files_below(directory, "kernels/*/*/r3"), "the end of its files")
        eventually(lambda: "replaced by r4" in live.terminal, "the word of it")


@pytest.mark.slow
def test_a_host_that_was_late_for_the_group_gets_its_replica(tmp_path: Path, locks: dict[str, int]) -> None:
    directory = agent_dir("h3", os.environ)
    directory.mkdir(mode=0o700, parents=True)
    locks["h3"] = os.open(directory / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(locks["h3"], fcntl.LOCK_EX)
    with kernel(tmp_path, REPLKERNEL_HOSTS="h1,h2,h3") as live:
        live.value("x = 1; print(x)")
        eventually(lambda: same_log() and replicas(), "a group of two", 40)
        os.close(locks.pop("h3"))
        there_again("h3")
        eventually(lambda: standing() == {"r1": "h1", "r2": "h2", "r3": "h3"}, "the third replica", 90)
        assert live.value("x += 1; print(x)") == "2"
        eventually(lambda: same_log() and len(replicas()) == 3, "one log")
