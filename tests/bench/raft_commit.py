"""How long a delta of about 500 bytes takes from being proposed to being applied at its proposer.

Three members, password and journal on: in one process, as an agent holds them by default, and in three
processes, as three hosts do. Also: the first commit of a new group, idle CPU, memory per idle group.
Raft alone, without kernels around it. ``python -m tests.bench.raft_commit`` prints one JSON document.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from replkernel.records import ComponentId, ComponentRecord, Delta, Digest, Fence, Payload, ReplicaId, Seq
from replkernel.replication.addresses import free_raft_address, release_raft_address
from replkernel.replication.entries import encode_entry, split_delta
from replkernel.replication.raft import RaftMember
from tests.bench.report import Result
from tests.contracts.consensus import Recorder
from tests.support.raft_process import commit

ROOT = Path(__file__).resolve().parents[2]
SECRET = "the secret of the benchmark, long"
DELTA_BYTES = 500
COMMITS = 500
IDLE_S = 10.0


def delta_entry() -> bytes:
    """Return the entry of a delta of one small variable, about DELTA_BYTES long."""
    payload = Payload(head=bytes(DELTA_BYTES - 180))
    component = ComponentRecord(ComponentId("c1"), ("x",), Seq(1), payload, Digest("0" * 64), 300)
    delta = Delta(Seq(1), Fence(1), ReplicaId("r1"), 1, (component,))
    (entry,) = split_delta(delta)
    return encode_entry(entry)


def percentiles(times_ms: list[float]) -> dict[str, float]:
    """Return p50, p99 and the maximum of some times, in milliseconds."""
    ordered = sorted(times_ms)
    at = {"p50": len(ordered) // 2, "p99": int(len(ordered) * 0.99) - 1, "max": len(ordered) - 1}
    return {name: round(ordered[place], 3) for name, place in at.items()}


@contextlib.contextmanager
def group_here(directory: Path, count: int) -> Iterator[list[RaftMember]]:
    """Run a group of `count` members in this process."""
    addresses = [free_raft_address() for _ in range(count)]
    members = [
        RaftMember(address, addresses, SECRET, directory / address, Recorder().callbacks())
        for address in addresses
    ]
    for member in members:
        member.start()
    yield members
    for member in members:
        member.close()


def in_one_process(commits: int = COMMITS) -> tuple[list[float], dict[str, object]]:
    """Measure a group whose three members share this process: at the leader, and at a follower."""
    entry = delta_entry()
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        with group_here(Path(directory), 3) as members:
            commit(members[0], entry)
            first_ms = (time.perf_counter() - started) * 1000
            leader = next(member for member in members if member.status().role == "leader")
            follower = next(member for member in members if member is not leader)
            at_leader = [commit(leader, entry)[1] for _ in range(commits)]
            at_follower = [commit(follower, entry)[1] for _ in range(commits)]
            return at_follower, {
                "entry_bytes": len(entry),
                "first_commit_ms": round(first_ms, 1),
                "leader_ms": percentiles(at_leader),
                "follower_ms": percentiles(at_follower),
            }


def in_three_processes(commits: int = COMMITS) -> dict[str, object]:
    """Measure a group with a process for each member: at the leader, and at a follower."""
    with tempfile.TemporaryDirectory() as directory:
        group = [free_raft_address() for _ in range(3)]
        for address in group:
            release_raft_address(address)
        children = {address: _child(Path(directory), address, group) for address in group}
        try:
            for child in children.values():
                _line(child)
            _ask(children[group[0]], f"propose {group[0]} 00")
            (leader,) = json.loads(_ask(children[group[0]], "leader"))
            follower = next(address for address in group if address != leader)
            result: dict[str, object] = {}
            for name, address in (("leader_ms", leader), ("follower_ms", follower)):
                times = json.loads(_ask(children[address], f"bench {address} {commits} {len(delta_entry())}"))
                result[name] = percentiles(times)
            return result
        finally:
            for child in children.values():
                child.communicate(timeout=20)


def idle(groups: int = 1, seconds: float = IDLE_S) -> dict[str, float]:
    """Measure what `groups` idle groups of three cost: CPU in percent of a core, memory in MB a group."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        before = psutil.Process().memory_info().rss
        for number in range(groups):
            members = stack.enter_context(group_here(Path(directory) / str(number), 3))
            commit(members[0], delta_entry())
        time.sleep(4.0)
        cpu, wall = time.process_time(), time.monotonic()
        time.sleep(seconds)
        used = 100 * (time.process_time() - cpu) / (time.monotonic() - wall)
        rss = psutil.Process().memory_info().rss - before
        return {
            "groups": groups,
            "cpu_percent": round(used, 3),
            "mb_per_group": round(rss / groups / 2**20, 2),
        }


def _child(directory: Path, address: str, group: list[str]) -> subprocess.Popen[str]:
    config = directory / f"{address.replace(':', '-')}.json"
    document = {"here": [address], "group": group, "secret": SECRET, "directory": str(directory)}
    config.write_text(json.dumps(document))
    command = [sys.executable, "-m", "tests.support.raft_process", str(config)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _ask(child: subprocess.Popen[str], question: str) -> str:
    assert child.stdin is not None
    child.stdin.write(question + "\n")
    child.stdin.flush()
    return _line(child)


def figures() -> tuple[list[float], dict[str, Any]]:
    """Return the follower's times in one process (most proposers follow), and all figures of this file."""
    times_ms, one_process = in_one_process()
    idle_groups = [idle(1), idle(20)]
    return times_ms, {
        "one_process": one_process,
        "three_processes": in_three_processes(),
        "idle": idle_groups,
    }


def measure() -> Result:
    """Measure Raft alone; the stock kernel has nothing to compare it with."""
    times_ms, details = figures()
    return Result("raft_commit", "ms", times_ms, [], "p50 below 1 ms", details)


if __name__ == "__main__":
    print(json.dumps(figures()[1], indent=2))
