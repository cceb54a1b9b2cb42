"""What can be said of jobs without GPUs, and what an agent has measured, on the command line."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import msgspec
import pytest

from replkernel.agent.core.phases import Kept, Record
from replkernel.agent.io import lookup
from replkernel.agent.io.lookup import agent_dir
from replkernel.agent.io.measuring import FILE, FILE_BYTES_MAX, kept_in
from replkernel.cli import jobs, main
from replkernel.cli.job_verbs import add_options
from replkernel.cli.jobs import wanted_by
from replkernel.errors import AgentUnavailable, ReplkernelError
from replkernel.hosts.own_file import replace_own
from replkernel.jobs.submitting import Wanted
from replkernel.leasing.finding import URL


def wanted(*words: str) -> Wanted:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser)
    return wanted_by(parser.parse_args(words))


def test_a_job_wants_one_gpu_unless_it_says_otherwise() -> None:
    assert wanted() == Wanted(gpus=(1,))
    assert wanted("--gpus", "1,2") == Wanted(gpus=(1, 2))
    assert wanted("--cpus", "4") == Wanted(cpus=4, memory_gb=4.0)
    assert wanted("--cpus", "4", "--memory", "512MiB", "--hours", "1.5") == Wanted(
        cpus=4, memory_gb=0.5, hours=1.5
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("name --gpus or --cpus, not both", ("--cpus", "2", "--gpus", "1")),
        ("name --gpus or --cpus, not both", ("--cpus", "2", "--gpu-model", "H100")),
        ("go with --cpus", ("--memory", "2")),
        ("go with --cpus", ("--gpus", "1", "--hours", "2")),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(said: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ReplkernelError, match=said):
        wanted(*words)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("'0' is no whole number of cores from 1 to 1024", ("--cpus", "0")),
        ("'1.5' is no whole number", ("--cpus", "1.5")),
        ("'4GB' is not in GiB", ("--cpus", "1", "--memory", "4GB")),
        ("'-1' is not a number of GiB", ("--cpus", "1", "--memory=-1")),
        ("a job needs memory", ("--cpus", "1", "--memory", "0")),
        ("'nan' is no number of hours", ("--cpus", "1", "--hours", "nan")),
    ],
)
def test_a_number_that_cannot_be_is_named(said: str, words: tuple[str, ...]) -> None:
    with pytest.raises(argparse.ArgumentError, match=said):
        wanted(*words)


@pytest.mark.parametrize(
    ("hosts", "cpus", "starts"),
    [([], 1, True), ([0], 1, True), ([2], 1, True), ([0], 0, True), ([2], 0, False)],
)
def test_submitting_a_job_on_cores_has_an_agent_here_whatever_hosts_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hosts: list[int], cpus: int, starts: bool
) -> None:
    shown = {"hosts": [{"gpus": ["g"] * count} for count in hosts]}
    started = list[str]()

    def start(host: str, _: object) -> None:
        started.append(host)
        if hosts:
            raise AgentUnavailable("there is none")

    monkeypatch.delenv(URL, raising=False)
    monkeypatch.setenv("REPLKERNEL_HOST_NAME", "h1")
    monkeypatch.setattr(jobs, "have_scheduler", lambda _: "")
    monkeypatch.setattr(jobs, "asked", lambda _: msgspec.json.encode(shown))
    monkeypatch.setattr(jobs, "submit", lambda *_: None)
    monkeypatch.setattr(lookup, "find_or_start", start)
    monkeypatch.chdir(tmp_path)
    options = ["--cpus", "1"] if cpus else []
    assert main(["job", "run", *options, "--", "true"]) == (1 if starts and hosts and not cpus else 0)
    assert started == (["h1"] if starts else [])


def test_an_agents_samples_are_written_as_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    assert main(["agent", "phases", "h1"]) == 1
    assert "Nothing is recorded of kernels on host h1 yet" in capsys.readouterr().err
    directory = agent_dir("h1", os.environ)
    directory.mkdir(parents=True, exist_ok=True)
    replace_own(directory / FILE, msgspec.json.encode(Kept([Record("k", 7.0, [2.0, 5.0])])))
    assert main(["agent", "phases", "h1"]) == 0
    comment, job = capsys.readouterr().out.splitlines()
    assert comment.startswith(";")
    assert job.split()[:5] == ["1", "0.0", "0", "7.0", "1"] and job.split()[21:] == ["2.0", "0.0", "1", "5.0"]


def test_a_record_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    for written in (
        b"{",
        b'{"over": [3]}',
        b'{"over": [{"kernel": "k", "at": 1, "phases_s": []}]}',
        b" " * (FILE_BYTES_MAX + 1),
    ):
        replace_own(tmp_path / FILE, written)
        assert kept_in(tmp_path) == Kept()
