"""A job on two hosts: its supervisor on the first, a launcher on the other, what each does for the other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from replkernel.agent.io.lookup import agent_dir, stop_agent
from replkernel.agent.io.start import is_locked
from replkernel.hosts.reach import Reach
from replkernel.jobs import across, agent_watch
from replkernel.jobs.words import ASKED, MET, SAVED, Meeting, OnHost
from replkernel.launch.module_command import module_command
from replkernel.ranks.words import AT_ONCE, Orders
from tests.support.ending import lives
from tests.unit.agent.test_job_supervisor import PATIENCE_S, Watched

pytestmark = pytest.mark.timeout(120)

TELLS = """
import json, os, sys
told = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "REPLKERNEL_JOB_GPUS",
        "REPLKERNEL_JOB_HOSTS", "REPLKERNEL_JOB_CHECKPOINT")
print("I AM", os.environ["RANK"])
with open("told" + os.environ["RANK"], "w") as file:
    json.dump({name: os.environ[name] for name in told}, file)
"""
STAYS = """
import os, signal, sys, time
from replkernel import job
def end(*_):
    open("ended" + os.environ["RANK"], "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open("began" + os.environ["RANK"], "w").close()
while True:
    if job.should_checkpoint():
        with open("saved", "w") as file:
            file.write("too late" if os.path.exists("ended1") else "in time")
    time.sleep(0.02)
"""
FAILS = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)\n"


class Pair(Watched):
    """A supervisor that a test steps, and launchers of the other host."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.launchers: list[subprocess.Popen[bytes]] = []

    def begins(self, program: str) -> None:
        command = (sys.executable, "-c", program)
        self.order(1, command=command, others=(OnHost("h2", ("GPU-2", "GPU-3")),))
        self.meets()

    def meets(self, before: int = 0) -> Meeting:
        """Start what the other host's agent would; return where it goes."""

        def fresh() -> Meeting | None:
            meeting = self.place.meeting()
            return meeting if meeting is not None and meeting.number != before else None

        meeting = self.turns_until(fresh)
        assert isinstance(meeting, Meeting)
        place = self.work.parent / f"launcher{len(self.launchers)}"
        place.mkdir()
        lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT)
        process = subprocess.Popen(
            module_command("replkernel.ranks.launcher"), stdin=subprocess.PIPE, pass_fds=(lock,)
        )
        orders = Orders(
            meeting.name, "h2", ("GPU-2", "GPU-3"), str(self.work), meeting.endpoint, str(place), lock
        )
        assert process.stdin is not None
        with process.stdin as told:
            told.write(msgspec.json.encode(orders))
        os.close(lock)
        self.launchers.append(process)
        return meeting

    def there(self, *names: str) -> bool:
        return all((self.work / name).exists() for name in names)

    def said(self) -> str:
        return self.place.record().said

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.launchers[-1].pid).children(recursive=True)

    def ends(self) -> None:
        super().ends()
        for process in self.launchers:
            process.kill()
            process.wait()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(agent_watch, "begin", lambda *_: None)
    made = Pair(tmp_path)
    yield made
    made.ends()


def gone(processes: list[psutil.Process]) -> Callable[[], bool]:
    return lambda: not any(map(lives, processes))


def test_each_host_runs_the_program_once_and_knows_its_place(pair: Pair) -> None:
    pair.begins(TELLS)
    pair.turns_until(lambda: pair.state() == "done")
    first, other = (json.loads((pair.work / f"told{rank}").read_text()) for rank in range(2))
    assert (first["RANK"], other["RANK"], first["WORLD_SIZE"], other["WORLD_SIZE"]) == ("0", "1", "2", "2")
    same = ("MASTER_ADDR", "MASTER_PORT", "REPLKERNEL_JOB_CHECKPOINT", "REPLKERNEL_JOB_HOSTS")
    assert [first[name] for name in same] == [other[name] for name in same]
    assert (first["CUDA_VISIBLE_DEVICES"], other["CUDA_VISIBLE_DEVICES"]) == ("GPU-1", "GPU-2,GPU-3")
    log = (pair.place.directory / "job.log").read_text().splitlines()
    assert sorted(log) == ["I AM 0", "[h2] I AM 1"]


def test_a_programs_last_words_are_in_the_log(pair: Pair) -> None:
    says = STAYS.replace("    sys.exit(0)", "    print('farewell', flush=True)\n    sys.exit(0)")
    pair.begins(says)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    others = (OnHost("h2", ("GPU-2", "GPU-3")),)
    pair.order(2, command=(sys.executable, "-c", says), others=others, runs=False, within_s=30.0)
    pair.turns_until(lambda: pair.state() == "stopped")
    assert "[h2] farewell\n" in (pair.place.directory / "job.log").read_text()


def test_the_port_of_rank_0_is_chosen_when_all_hosts_are_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[int] = []

    def chosen(*_: object) -> int:
        there.append(len(pair.launchers))
        return 29_999

    monkeypatch.setattr(across, "free_port", chosen)
    pair.begins(TELLS)
    pair.turns_until(lambda: pair.state() == "done")
    assert there == [1] and json.loads((pair.work / "told0").read_text())["MASTER_PORT"] == "29999"


@pytest.mark.parametrize(
    ("spans", "state", "without", "why"),
    [
        (False, "failed", "", "set REPLKERNEL_ADVERTISE for the agent there"),
        (True, "stopped", "h2", "see the agent's log there"),
    ],
)
def test_nothing_runs_before_all_hosts_are_there_and_a_host_that_does_not_come_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, spans: bool, state: str, without: str, why: str
) -> None:
    monkeypatch.setattr(Reach, "spans", spans)
    monkeypatch.setattr(across, "COME_S", 0.2)
    pair.order(1, command=(sys.executable, "-c", STAYS), others=(OnHost("h2", ("GPU-2",)),))
    meeting = pair.turns_until(pair.place.meeting)
    for _ in range(40):  # The scheduler does not know of it yet: nobody can have come.
        assert pair.supervisor is not None
        pair.supervisor.turn()
        time.sleep(0.01)
    assert pair.place.meeting() == meeting and not pair.there("began0")
    pair.place.set_number(MET, meeting.number)
    pair.turns_until(lambda: "no launcher has come from h2" in pair.said())
    record = pair.place.record()
    assert (record.state, record.without) == (state, without) and why in record.said
    assert not pair.there("began0")


def test_a_program_that_fails_on_one_host_is_ended_on_the_other_and_both_begin_anew(pair: Pair) -> None:
    pair.begins(FAILS)
    pair.turns_until(lambda: pair.state() == "running")
    meeting = None
    pair.turns_until(lambda: "host h2 ended with exit code 3; it is started again in 1 s" in pair.said())
    meeting = pair.meets()
    pair.turns_until(lambda: "host h2 ended with exit code 3; it is started again in 2 s" in pair.said())
    assert meeting.attempt == 1


def test_a_host_that_is_lost_ends_the_other_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(across, "UNSURE_S", 0.5)
    pair.begins(STAYS)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    left = pair.children()
    assert left
    pair.launchers[-1].kill()
    pair.turns_until(lambda: "host h2 is gone" in pair.said())
    assert pair.there("ended0")
    pair.turns_until(gone(left))


def test_who_leaves_saves_on_the_first_host_before_the_other_one_is_ended(pair: Pair) -> None:
    pair.begins(STAYS)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    others = (OnHost("h2", ("GPU-2", "GPU-3")),)
    pair.order(2, command=(sys.executable, "-c", STAYS), others=others, runs=False, within_s=30.0)
    pair.turns_until(lambda: pair.state() == "stopped")
    assert pair.place.number(SAVED) == pair.place.number(ASKED) == 2
    assert (pair.work / "saved").read_text() == "in time"
    assert pair.there("ended0", "ended1")
    pair.launchers[-1].wait(PATIENCE_S)


def test_an_agent_that_ends_has_the_job_save_before_it_leaves_that_host(pair: Pair) -> None:
    pair.begins(STAYS)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    pair.launchers[-1].send_signal(signal.SIGTERM)
    pair.turns_until(lambda: pair.state() == "stopped")
    assert (pair.work / "saved").read_text() == "in time"
    assert pair.there("ended0", "ended1")


def test_an_agent_that_ends_while_a_job_grows_has_it_save_and_the_new_shape_begins(pair: Pair) -> None:
    pair.begins(STAYS)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    others = (OnHost("h2", ("GPU-2", "GPU-3", "GPU-4")),)
    pair.order(2, 2, command=(sys.executable, "-c", STAYS), others=others)
    pair.launchers[-1].send_signal(signal.SIGTERM)
    assert pair.meets().attempt == 2
    assert (pair.work / "saved").read_text() == "in time"


def test_a_launcher_that_ends_at_once_asks_nobody_to_save(pair: Pair) -> None:
    pair.begins(STAYS)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    left = pair.children()
    pair.launchers[-1].send_signal(AT_ONCE)
    pair.turns_until(lambda: "host h2" in pair.said())
    pair.launchers[-1].wait(PATIENCE_S)
    assert gone(left)() and pair.there("ended0") and not pair.there("saved")


def test_the_other_hosts_processes_end_with_the_supervisor(pair: Pair) -> None:
    pair.begins(STAYS)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    left = pair.children()
    killed = pair.supervisor
    assert killed is not None and killed._program is not None
    killed.close()  # As the system closes what it had, once it is killed.
    pair.launchers[-1].wait(PATIENCE_S)
    assert gone(left)()
    pair.supervisor = None
    (pair.work / "began0").unlink()
    (pair.work / "began1").unlink()
    pair.turns_until(lambda: pair.there("ended0"))
    killed._program.wait(PATIENCE_S)
    pair.meets()
    pair.turns_until(lambda: pair.there("began0", "began1"))


def test_a_process_that_hides_in_a_session_of_its_own_ends_with_the_job(
    pair: Pair,
) -> None:
    hides = (
        "import os, signal, subprocess, sys, time\n"
        "code = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'\n"
        "child = subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
        "open(f'hidden{child.pid}', 'w').close()\n"
        "time.sleep(600)\n"
    )
    command = ("env", "-i", sys.executable, "-c", hides)
    others = (OnHost("h2", ("GPU-2", "GPU-3")),)
    pair.order(1, command=command, others=others)
    pair.meets()
    pair.turns_until(lambda: len(list(pair.work.glob("hidden*"))) == 2)
    hidden = [psutil.Process(int(each.name.removeprefix("hidden"))) for each in pair.work.glob("hidden*")]
    left = {*pair.children(), *hidden}
    assert len(left) == 3, "two of the other host, and one of the first"
    pair.order(2, command=command, others=others, runs=False, within_s=2.0)
    pair.turns_until(lambda: pair.state() == "stopped")
    pair.launchers[-1].wait(PATIENCE_S)
    assert gone(list(left))()


def test_an_agent_that_is_killed_on_the_other_host_is_started_again(pair: Pair) -> None:
    pair.begins(STAYS)
    pair.turns_until(lambda: pair.there("began0", "began1"))
    lock = agent_dir("h2", os.environ) / "agent.lock"
    pair.turns_until(lambda: is_locked(str(lock)))
    stop_agent("h2", os.environ)


def test_leftovers_of_an_earlier_start_end_before_the_next_one_begins(pair: Pair) -> None:
    pair.work.joinpath("kept").mkdir()
    env = {**os.environ, "REPLKERNEL_JOB_AT": "h2 j"}
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env)
    pair.begins(TELLS)
    pair.turns_until(lambda: pair.state() == "done")
    assert left.wait(PATIENCE_S) == -signal.SIGKILL
    shutil.rmtree(pair.work / "kept")
