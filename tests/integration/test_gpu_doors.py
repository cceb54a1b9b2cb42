"""The example of a device hook, on this machine's kernel: real cgroups and users, devices without a driver.

A device that a cgroup may not open fails with EPERM; one that it may, and behind which there is no driver,
with ENXIO. No GPU is needed, and none was there: the numbers of the devices are NVIDIA's.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.second_user import needs_root

HOOK = ROOT / "examples" / "gpu_doors.py"
ALICE, BOB = 12348, 12349
"""No other test has processes of theirs: the hook looks at all that a user has on the machine."""

pytestmark = needs_root


class Machine:
    """Two users' cgroups in a slice of the test's own, and a list of two GPUs."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.slice = root / f"replkernel-test-{os.getpid()}.slice"
        self.directory = directory
        self.children: list[subprocess.Popen[bytes]] = []
        for minor in (0, 1):
            os.mknod(directory / f"nvidia{minor}", 0o666 | 0o020000, os.makedev(195, minor))
            (directory / f"nvidia{minor}").chmod(0o666)
            told = directory / "proc" / "gpus" / str(minor)
            told.mkdir(parents=True)
            text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
            (told / "information").write_text(text)

    def cgroup(self, name: str) -> Path:
        path = self.slice / name
        path.mkdir(parents=True)
        return path

    def process(self, cgroup: Path, uid: int) -> int:
        """Start a process that waits in a cgroup."""
        child = subprocess.Popen(["sleep", "600"], user=uid, group=uid, extra_groups=[])
        self.children.append(child)
        (cgroup / "cgroup.procs").write_text(str(child.pid))
        return child.pid

    def opens(self, cgroup: Path, uid: int) -> list[int]:
        """Return which GPUs a process of a user can open in a cgroup."""
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            _look(cgroup, uid, self.directory, write_end)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as said:
            codes = [int(word) for word in said.read().split()]
        os.waitpid(pid, 0)
        assert set(codes) <= {errno.EPERM, errno.ENXIO, errno.ENODEV, 0} and len(codes) == 2, codes
        return [minor for minor, code in enumerate(codes) if code != errno.EPERM]

    def close(self, *paths: Path) -> None:
        self._run("close", *("/" + str(path.relative_to(self.slice.parent)) for path in paths))

    def ask(self, action: str, uid: int, pids: list[int], gpus: list[str], after: list[str]) -> str:
        """Run the hook; return why it refuses, or nothing."""
        said = {"action": action, "owner": "o", "uid": uid, "pids": pids, "gpus": gpus, "owner_gpus": after}
        return self._run(asked=json.dumps(said))

    def _run(self, *arguments: str, asked: str = "") -> str:
        env = os.environ | {"REPLKERNEL_HOOK_PROC": str(self.directory / "proc")}
        command = [sys.executable, "-I", str(HOOK), *arguments]
        done = subprocess.run(command, input=asked, env=env, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert (done.returncode == 0) == (not done.stderr), done.stderr
        return done.stderr.strip()


def _look(cgroup: Path, uid: int, directory: Path, write_end: int) -> None:
    """Become a user in a cgroup, and say how opening each GPU ends."""
    try:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        for minor in (0, 1):
            try:
                os.open(directory / f"nvidia{minor}", os.O_RDWR)
                code = 0
            except OSError as error:
                code = error.errno or -1
            os.write(write_end, f"{code} ".encode())
    finally:
        os._exit(0)


@pytest.fixture
def machine(short_dir: Path) -> Iterator[Machine]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    roots = [Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"]
    if not roots or not os.access(roots[0], os.W_OK):
        pytest.skip("no cgroup v2 that can be written to is mounted here")
    short_dir.chmod(0o755)
    made = Machine(roots[0], short_dir)
    made.slice.mkdir()
    try:
        made.close(made.slice)
    except AssertionError as error:
        made.slice.rmdir()
        pytest.skip(f"the kernel takes no device programs here: {error}")
    yield made
    for child in made.children:
        child.kill()
        child.wait()
    for path in sorted(made.slice.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
    made.slice.rmdir()


def test_who_has_a_lease_opens_its_gpus_and_nobody_else_opens_any(machine: Machine) -> None:
    alices, bobs = machine.cgroup(f"user-{ALICE}.slice"), machine.cgroup(f"user-{BOB}.slice")
    assert machine.opens(alices, ALICE) == [] and machine.opens(bobs, BOB) == []
    alice, bob = machine.process(alices, ALICE), machine.process(bobs, BOB)
    assert machine.ask("bind", ALICE, [alice], ["GPU-0"], ["GPU-0"]) == ""
    assert machine.opens(alices, ALICE) == [0] and machine.opens(bobs, BOB) == []
    assert machine.ask("bind", BOB, [bob], ["GPU-1"], ["GPU-1"]) == ""
    assert machine.ask("bind", ALICE, [alice], ["GPU-1"], ["GPU-0", "GPU-1"]) == ""
    assert machine.opens(alices, ALICE) == [0, 1] and machine.opens(bobs, BOB) == [1]
    assert machine.ask("release", ALICE, [alice], ["GPU-0"], ["GPU-1"]) == ""
    assert machine.opens(alices, ALICE) == [1]
    assert machine.ask("release", ALICE, [alice], ["GPU-1"], []) == ""
    assert machine.opens(alices, ALICE) == [] and machine.opens(bobs, BOB) == [1]


def test_a_user_who_moves_a_process_within_what_is_his_gains_nothing(machine: Machine) -> None:
    whole = machine.cgroup(f"user-{BOB}.slice")
    inner, other = machine.cgroup(f"user-{BOB}.slice/a"), machine.cgroup(f"user-{BOB}.slice/b")
    bob = machine.process(inner, BOB)
    assert machine.ask("bind", BOB, [bob], ["GPU-0"], ["GPU-0"]) == ""
    (other / "cgroup.procs").write_text(str(bob))  # What is his own he may move to and fro.
    assert machine.ask("release", BOB, [bob], ["GPU-0"], []) == ""
    assert [machine.opens(cgroup, BOB) for cgroup in (inner, other, whole)] == [[], [], []]


def test_a_cgroup_that_was_let_in_is_shut_though_nobody_is_in_it_at_release(machine: Machine) -> None:
    one, two = machine.cgroup(f"user-{BOB}.slice"), machine.cgroup("bob.service")
    stays, goes = machine.process(one, BOB), machine.process(two, BOB)
    assert machine.ask("bind", BOB, [stays, goes], ["GPU-0"], ["GPU-0"]) == ""
    assert machine.opens(two, BOB) == [0]
    child = machine.children.pop()
    child.kill()
    child.wait()
    assert machine.ask("release", BOB, [stays], ["GPU-0"], []) == ""
    assert machine.opens(two, BOB) == [] and machine.opens(one, BOB) == []


def test_a_process_of_another_user_is_not_let_in_by_naming_it(machine: Machine) -> None:
    alices, bobs = machine.cgroup(f"user-{ALICE}.slice"), machine.cgroup(f"user-{BOB}.slice")
    alice, _ = machine.process(alices, ALICE), machine.process(bobs, BOB)
    assert machine.ask("bind", BOB, [alice], ["GPU-0"], ["GPU-0"]) == ""
    assert machine.opens(alices, ALICE) == [] and machine.opens(bobs, BOB) == [0]


def test_a_hook_that_would_be_no_wall_is_refused_by_name(machine: Machine) -> None:
    shared = machine.cgroup("shared.service")
    alice, _ = machine.process(shared, ALICE), machine.process(shared, BOB)
    assert f"is shared with user {BOB}" in machine.ask("bind", ALICE, [alice], ["GPU-0"], ["GPU-0"])
    own = machine.cgroup(f"user-{ALICE}.slice")
    alice = machine.process(own, ALICE)
    assert "(MIG)" in machine.ask("bind", ALICE, [alice], ["MIG-0"], ["MIG-0"])
    assert "no GPU GPU-7" in machine.ask("bind", ALICE, [alice], ["GPU-7"], ["GPU-7"])
    assert machine.opens(own, ALICE) == []


def test_who_keeps_a_gpu_open_that_is_taken_away_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no driver, so a device that can be opened plays the GPU: what is looked at is its number.
    spec = importlib.util.spec_from_file_location("gpu_doors", HOOK)
    assert spec is not None and spec.loader is not None
    doors = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(doors)
    monkeypatch.setattr(doors, "NVIDIA_MAJOR", 1)
    with open("/dev/zero", "rb"):  # 1:5
        assert doors.holders([os.getpid()], [5, 7]) == [(os.getpid(), 5)]
    monkeypatch.setenv("REPLKERNEL_HOOK_LEFT", "refuse")
    with pytest.raises(doors.Refused, match="process 17 keeps /dev/nvidia5 open"):
        doors.left([(17, 5)])


def test_a_cgroup_outside_of_what_is_closed_is_refused(machine: Machine) -> None:
    outside = machine.slice.parent / f"replkernel-open-{os.getpid()}.service"
    outside.mkdir()
    try:
        alice = machine.process(outside, ALICE)
        said = machine.ask("bind", ALICE, [alice], ["GPU-0"], ["GPU-0"])
        assert "open to everybody" in said and "gpu_doors.py close" in said
    finally:
        child = machine.children.pop()
        child.kill()
        child.wait()
        outside.rmdir()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", "no request on standard input: it is no JSON document"),
        ("[]", "no request on standard input: it is no JSON object"),
        ("{}", "no request on standard input: `action` is neither bind nor release"),
        ('{"action": "bind"}', "no request on standard input: `owner` is no name"),
        ('{"action": "bind", "owner": "o", "uid": "u"}', "no request on standard input: `uid` is no number"),
        ('{"action": "bind", "owner": "o", "uid": 1, "pids": ["x"]}', "`pids` is no list of numbers"),
        ('{"action": "bind", "owner": "no-such", "uid": null}', "there is no Unix user no-such"),
    ],
)
def test_an_input_that_is_no_request_is_refused_in_a_sentence(asked: str, said: str) -> None:
    _refused_with(said, asked=asked)


def test_a_cgroup_that_is_not_there_is_named() -> None:
    _refused_with("there is no cgroup /no-such.slice in /", "close", "/no-such.slice")


def _refused_with(said: str, *arguments: str, asked: str = "") -> None:
    command = [sys.executable, "-I", str(HOOK), *arguments]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1
    assert "Error" not in done.stderr
