"""`replkernel doctor` and `status` as a person runs them, with parts of the system there, absent or wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3
from replkernel_scheduler import core_is_compiled

from replkernel.cli.doctor import run_doctor
from replkernel.objects.collect import write_mark
from replkernel.objects.store import open_store
from replkernel.records import Digest, KernelId

COMMAND = [sys.executable, "-m", "replkernel.cli"]
Finding = Callable[..., tuple[str, str]]


def replkernel(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | settings
    return subprocess.run(
        [*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def finding(capsys: pytest.CaptureFixture[str]) -> Finding:
    """Return a function that gives state and text of one line of the doctor's, who runs in this process."""

    def look(part: str, **settings: str) -> tuple[str, str]:
        code = run_doctor(os.environ | settings)
        said = capsys.readouterr()
        assert "Traceback" not in said.err + said.out
        (line,) = [line for line in said.out.splitlines() if line[7:].startswith(part)]
        state, text = line[:5].strip(), line[7 + len(part) :].strip()
        assert code == 1 or state != "wrong"
        return state, text

    return look


@pytest.fixture
def scheduler() -> Iterator[str]:
    """Run a scheduler; return its address."""
    program = [*COMMAND, "scheduler", "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip().partition("=")[2]
        process.terminate()


def test_a_store_that_works_is_probed_and_left_empty(finding: Finding, tmp_path: Path) -> None:
    state, text = finding("store", REPLKERNEL_STORE=f"file://{tmp_path}/store")
    assert (state, str(tmp_path) in text) == ("ok", True)
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://host/path", "file:///proc/no/such/place"])
def test_a_store_that_cannot_be_used_is_one_sentence_with_the_setting(finding: Finding, url: str) -> None:
    state, text = finding("store", REPLKERNEL_STORE=url)
    assert state == "wrong"
    assert "REPLKERNEL_STORE" in text


def test_a_scheduler_that_answers(finding: Finding, scheduler: str) -> None:
    assert finding("scheduler", REPLKERNEL_SCHEDULER_URL=scheduler) == ("ok", scheduler)


def test_which_code_decides_in_a_scheduler(finding: Finding) -> None:
    code = "compiled" if core_is_compiled() else "Python's own code"
    assert finding("core of a scheduler here") == ("ok", code)


def test_a_scheduler_that_refuses_the_token(finding: Finding, scheduler: str, tmp_path: Path) -> None:
    state, text = finding(
        "scheduler", REPLKERNEL_SCHEDULER_URL=scheduler, JUPYTER_DATA_DIR=str(tmp_path / "elsewhere")
    )
    assert state == "wrong"
    assert "token" in text


def test_a_scheduler_that_does_not_answer(finding: Finding) -> None:
    state, text = finding("scheduler", REPLKERNEL_SCHEDULER_URL="http://127.0.0.1:9")
    assert state == "wrong"
    assert "REPLKERNEL_SCHEDULER_URL" in text
    assert "replkernel scheduler" in text


def test_an_unknown_policy_is_named_with_those_there_are(finding: Finding) -> None:
    state, text = finding("settings", REPLKERNEL_EXECUTOR="fastest")
    assert state == "wrong"
    assert "REPLKERNEL_EXECUTOR" in text
    assert "rotate" in text


def test_the_status_without_agents_is_a_document_and_a_sentence() -> None:
    as_json = replkernel("status", "--json")
    assert as_json.returncode == 0
    empty = {
        "hosts": [],
        "kernels": [],
        "leases": [],
        "waiting": [],
        "coming": [],
        "bookings": [],
        "scheduler": None,
    }
    assert json.loads(as_json.stdout) == empty
    assert "No host agent is running" in replkernel("status").stdout


def test_a_variable_that_looks_like_a_setting_is_named_with_the_one_that_was_meant(finding: Finding) -> None:
    state, text = finding("settings", REPLKERNEL_REPLICA="5")
    assert state == "note"
    assert "did you mean REPLKERNEL_REPLICAS?" in text


def test_one_wrong_setting_is_told_once() -> None:
    done = replkernel("doctor", REPLKERNEL_HOSTS="a,,b")
    assert done.returncode == 1
    assert done.stdout.count("REPLKERNEL_HOSTS='a,,b'") == 1
    assert "set REPLKERNEL_HOSTS=a,b" in done.stdout


def test_hosts_whose_agents_would_be_started_here_are_named(finding: Finding) -> None:
    state, text = finding("agent", REPLKERNEL_HOSTS="other")
    assert (state, "other (REPLKERNEL_HOSTS) has no agent yet" in text) == ("note", True)


def test_stopping_an_agent_that_is_not_there_is_an_error_only_when_it_was_named() -> None:
    assert replkernel("agent", "stop").returncode == 0
    done = replkernel("agent", "stop", "nosuch")
    assert (done.returncode, "No agent of host nosuch" in done.stderr) == (1, True)


def test_a_collection_says_what_it_found_and_spares_the_young(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    store = open_store(url, {})
    digests = []
    for data in (b"old", b"young", b"named"):
        digest = Digest(blake3(data).hexdigest())
        store.put_chunk(digest, data)
        digests.append(digest)
    write_mark(store, KernelId("k"), [digests[2]])
    for digest in (digests[0], digests[2]):
        os.utime(tmp_path / "store" / "blobs" / digest[:2] / digest, (0, 0))
    done = replkernel("store", "collect", REPLKERNEL_STORE=url)
    assert done.returncode == 0, done.stderr
    assert "3 chunks, 1 named by kernels, 1 deleted" in done.stdout
    assert [store.has(digest) for digest in digests] == [False, True, True]


def test_a_store_that_cannot_be_collected_is_one_sentence() -> None:
    done = replkernel("store", "collect", REPLKERNEL_STORE="file:///proc/no/such/place")
    assert done.returncode == 1
    assert "REPLKERNEL_STORE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_store_is_asked_for_something() -> None:
    assert replkernel("store").returncode == 2
    assert "collect" in replkernel("store", "--help").stdout
