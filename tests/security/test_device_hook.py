"""The device hook: which may be run for an administrator, what it hears, what follows where it fails."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replkernel.agent.core.gpu_guard import HookCall
from replkernel.agent.io.device_hook import DeviceHook, read_hook
from replkernel.errors import SettingError
from replkernel.leasing.wire import Denied, Granted
from tests.support.lease_clients import Router
from tests.support.live import eventually
from tests.support.scheduler_service import Service, serving
from tests.support.second_user import ATTACKER, needs_root

CALL = HookCall("bind", "nobody-of-this-name", "k", "l", ("GPU-0",), ("GPU-0",))
HOST = "guarded"


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def why_not(path: Path | str) -> str:
    with pytest.raises(SettingError) as refused:
        read_hook({"REPLKERNEL_DEVICE_HOOK": str(path)})
    return str(refused.value)


# -- which program may be run -------------------------------------------------------------------------


def test_a_program_that_others_can_write_to_is_refused(short_dir: Path) -> None:
    hook = program(short_dir / "hook", "exit 0")
    assert read_hook({"REPLKERNEL_DEVICE_HOOK": str(hook)}) == str(hook)
    for mode in (0o775, 0o757):
        hook.chmod(mode)
        assert f"REPLKERNEL_DEVICE_HOOK='{hook}'" in why_not(hook) and f"chmod go-w {hook}" in why_not(hook)


def test_a_program_in_a_directory_that_others_can_write_to_is_refused(short_dir: Path) -> None:
    hook = program(short_dir / "hook", "exit 0")
    short_dir.chmod(0o777)
    assert f"{short_dir} can be written to by others" in why_not(hook)


def test_a_link_leads_to_no_other_program_than_one_that_may_be_run(short_dir: Path) -> None:
    apart = short_dir / "open"
    apart.mkdir(mode=0o755)
    hook = program(apart / "hook", "exit 0")
    link = short_dir / "link"
    link.symlink_to(hook)
    assert read_hook({"REPLKERNEL_DEVICE_HOOK": str(link)})
    apart.chmod(0o777)
    assert f"{apart} can be written to by others" in why_not(link)


@needs_root
def test_a_program_of_another_user_is_refused_and_not_to_be_made_roots(short_dir: Path) -> None:
    hook = program(short_dir / "hook", "exit 0")
    os.chown(hook, ATTACKER, ATTACKER)
    said = why_not(hook)
    assert f"{hook} belongs to user {ATTACKER}" in said and "chown" not in said


@needs_root
def test_a_link_of_another_user_is_refused_by_name(short_dir: Path) -> None:
    hook = program(short_dir / "hook", "exit 0")
    shared = short_dir / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link"
    link.symlink_to(hook)
    os.lchown(link, ATTACKER, ATTACKER)
    assert f"{link} belongs to user {ATTACKER}" in why_not(link)
    between = short_dir / "between"
    between.symlink_to(link)
    assert f"{link} belongs to user {ATTACKER}" in why_not(between)


def test_the_program_that_a_link_led_to_at_the_start_is_run(short_dir: Path) -> None:
    first = program(short_dir / "first", f"touch {short_dir}/first-ran")
    other = program(short_dir / "other", f"touch {short_dir}/other-ran")
    link = short_dir / "link"
    link.symlink_to(first)
    hook = DeviceHook(read_hook({"REPLKERNEL_DEVICE_HOOK": str(link)}), HOST, {"PATH": "/usr/bin:/bin"})
    link.unlink()
    link.symlink_to(other)
    assert hook.run(CALL, ()) == ""
    assert (short_dir / "first-ran").exists() and not (short_dir / "other-ran").exists()


def test_a_hook_that_is_no_program_is_refused_by_name(short_dir: Path) -> None:
    plain = short_dir / "plain"
    plain.write_text("")
    plain.chmod(0o644)
    if os.geteuid() != 0 or not os.access(plain, os.X_OK):
        assert "cannot be executed" in why_not(plain)
    assert "not an absolute path" in why_not("hook")
    assert "cannot be read" in why_not(short_dir / "missing")
    assert "not a file" in why_not(short_dir)


def test_a_program_that_became_writable_later_is_not_run(short_dir: Path) -> None:
    hook = program(short_dir / "hook", f"touch {short_dir}/ran")
    known = DeviceHook(str(hook), HOST, {})
    hook.chmod(0o777)
    assert "is not run" in known.run(CALL, ())
    assert not (short_dir / "ran").exists()


def test_an_agent_whose_hook_may_not_be_run_does_not_begin(short_dir: Path) -> None:
    hook = program(short_dir / "hook", "exit 0")
    hook.chmod(0o777)
    command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", HOST, "--fake-gpus", "1"]
    env = os.environ | {"REPLKERNEL_DEVICE_HOOK": str(hook)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "REPLKERNEL_DEVICE_HOOK" in done.stderr and "chmod go-w" in done.stderr


# -- what it hears, and for how long ------------------------------------------------------------------


def test_the_hook_hears_what_it_needs_and_nothing_secret(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = program(short_dir / "hook", f"cat > {short_dir}/stdin; env > {short_dir}/env")
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", "s3cret")
    monkeypatch.setenv("REPLKERNEL_HOOK_LEFT", "end")
    assert DeviceHook(str(hook), HOST, os.environ).run(CALL, (17,)) == ""
    said = json.loads((short_dir / "stdin").read_text())
    assert said["action"] == "bind" and said["host"] == HOST and said["pids"] == [17] and said["uid"] is None
    assert said["owner"] == CALL.owner and said["gpus"] == ["GPU-0"] and said["owner_gpus"] == ["GPU-0"]
    heard = (short_dir / "env").read_text()
    assert "s3cret" not in heard and "REPLKERNEL_HOOK_LEFT=end" in heard and "REPLKERNEL_GPUS=GPU-0" in heard


def test_one_that_hangs_is_ended_with_what_it_started(short_dir: Path) -> None:
    hook = program(short_dir / "hook", f"sleep 600 & echo $! > {short_dir}/child; wait")
    for run_s in (1.0, 20.0):  # A busy machine may not have begun with it within a second.
        told = DeviceHook(str(hook), HOST, {"PATH": "/bin"}, run_s).run(CALL, ())
        assert f"has not ended within {run_s:g} s" in told
        if written := _read(short_dir / "child"):
            break
    eventually(lambda: not _lives(int(written)), "the end of what the hook started")


def test_one_that_fails_is_told_with_its_last_line(short_dir: Path) -> None:
    hook = program(short_dir / "hook", "echo first >&2; echo 'no such device' >&2; exit 3")
    assert DeviceHook(str(hook), HOST, {}).run(CALL, ()).endswith("ended with 3 and said no such device")


def test_one_that_writes_without_end_costs_no_memory_and_is_ended(short_dir: Path) -> None:
    hook = program(short_dir / "hook", "exec cat /dev/zero >&2")
    agent = DeviceHook(str(hook), HOST, {"PATH": "/usr/bin:/bin"}, 2.0)
    tracemalloc.start()
    try:
        assert "has not ended within 2 s" in agent.run(CALL, ())
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_the_last_of_much_that_one_writes_is_shown(short_dir: Path) -> None:
    hook = program(
        short_dir / "hook", "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo why >&2; exit 3"
    )
    assert DeviceHook(str(hook), HOST, {"PATH": "/usr/bin:/bin"}, 60.0).run(CALL, ()).endswith("and said why")


def test_a_request_longer_than_a_pipe_is_heard_whole_or_not_at_all(short_dir: Path) -> None:
    call = CALL._replace(gpus=tuple(f"GPU-{number:060}" for number in range(1500)), owner_gpus=())
    env = {"PATH": "/usr/bin:/bin"}
    deaf = program(short_dir / "deaf", "exit 0")
    assert DeviceHook(str(deaf), HOST, env).run(call, ()) == ""
    hook = program(short_dir / "hook", f"wc -c > {short_dir}/heard")
    assert DeviceHook(str(hook), HOST, env).run(call, ()) == ""
    assert int((short_dir / "heard").read_text()) > 1500 * 64


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- a real agent and a real scheduler ----------------------------------------------------------------


@contextmanager
def guarded(service: Service, hook: Path, *options: str) -> Iterator[None]:
    """Run an agent with two pretended GPUs and a hook."""
    command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", HOST, "--fake-gpus", "2"]
    own = {"REPLKERNEL_SCHEDULER_URL": service.url, "REPLKERNEL_DEVICE_HOOK": str(hook)}
    with subprocess.Popen([*command, *options], env=os.environ | own, stdout=subprocess.DEVNULL) as agent:
        try:
            yield
        finally:
            agent.terminate()


HOOK = """
read request
if test -e {place}/fails-$REPLKERNEL_ACTION; then echo 'the door is stuck' >&2; exit 1; fi
echo "$REPLKERNEL_ACTION $REPLKERNEL_GPUS" >> {place}/done
"""


def done(place: Path) -> list[str]:
    return _read(place / "done").splitlines()


def test_gpus_are_open_before_a_grant_is_heard_and_closed_after_the_lease(short_dir: Path) -> None:
    hook = program(short_dir / "hook", HOOK.format(place=short_dir))

    async def play(service: Service) -> None:
        router = Router(service.url, service.rest.token, "k", (HOST,))
        await router.open()
        answer = await router.ask(2)
        assert isinstance(answer, Granted), answer
        assert done(short_dir) == [f"bind {' '.join(answer.lease.gpus)}"], "granted before they were open"
        router.give_back(answer.lease)
        await _until(lambda: len(done(short_dir)) == 2)
        assert done(short_dir)[1] == f"release {' '.join(answer.lease.gpus)}"
        await router.close()

    with serving() as service, guarded(service, hook):
        asyncio.run(play(service))


def test_where_the_hook_fails_nobody_gets_the_gpu_and_it_is_said_why(short_dir: Path) -> None:
    hook = program(short_dir / "hook", HOOK.format(place=short_dir))

    async def play(service: Service) -> None:
        router = Router(service.url, service.rest.token, "k", (HOST,))
        await router.open()
        (short_dir / "fails-bind").touch()
        answer = await router.ask(1)
        assert isinstance(answer, Denied), answer
        assert f"host {HOST} has not opened its GPUs" in answer.why and "the door is stuck" in answer.why
        (short_dir / "fails-bind").unlink()
        answer = await router.ask(2)  # The lease came back: both are free.
        assert isinstance(answer, Granted), answer
        await router.close()

    with serving() as service, guarded(service, hook):
        asyncio.run(play(service))


def test_a_gpu_that_cannot_be_closed_does_not_stand_in_the_way_of_another(short_dir: Path) -> None:
    hook = program(short_dir / "hook", HOOK.format(place=short_dir))
    (short_dir / "fails-release").touch()

    async def play(service: Service) -> None:
        router = Router(service.url, service.rest.token, "k", (HOST,))
        await router.open()
        first = await router.ask(1)
        assert isinstance(first, Granted), first
        router.give_back(first.lease)

        def offered_last() -> bool:
            _, status = service.rest.get("status")
            return bool(status["hosts"][0]["gpus"][-1]["uuid"] == first.lease.gpus[0])

        await _until(offered_last)
        second = await router.ask(1)
        assert isinstance(second, Granted), second
        assert second.lease.gpus != first.lease.gpus
        await router.close()

    with serving() as service, guarded(service, hook):
        asyncio.run(play(service))


def test_a_hook_that_a_kernels_environment_names_is_not_run(short_dir: Path) -> None:
    hook = program(short_dir / "hook", HOOK.format(place=short_dir))
    env = os.environ | {"REPLKERNEL_DEVICE_HOOK": str(hook), "REPLKERNEL_AGENT_IDLE_S": "0.1"}
    command = [sys.executable, "-m", "replkernel.agent", "--name", HOST, "--fake-gpus", "1"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "REPLKERNEL_DEVICE_HOOK is ignored" in ended.stderr
    assert done(short_dir) == []


async def _until(true: object, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.02)
