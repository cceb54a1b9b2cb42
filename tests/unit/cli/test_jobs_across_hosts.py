"""What can be said of jobs on several hosts on the command line, and what torchrun and programs are told."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from replkernel_server.errors import BadRequest
from replkernel_server.handlers.scheduler_jobs import check_job
from replkernel_server.scheduling.documents import JobBody

from replkernel.cli.job_verbs import add_options
from replkernel.cli.jobs import wanted_by
from replkernel.errors import ReplkernelError
from replkernel.jobs.processes import Seat, command_with, environment, meets_by_itself
from replkernel.jobs.submitting import Wanted, submit
from replkernel.jobs.words import OnHost, Order

SEAT = Seat(1, 2, "10.0.0.1", 4711)
MEETS = ["--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=4711"]


def wanted(*words: str) -> Wanted:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser)
    return wanted_by(parser.parse_args(words))


def test_hosts_go_for_each_number_of_gpus() -> None:
    assert wanted("--gpus", "4,8", "--hosts", "2") == Wanted(gpus=(4, 8), hosts=2)
    assert wanted("--hosts", "3") == Wanted(gpus=(3,), hosts=3), "one on each where nobody says otherwise"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("name multiples of 2", ("--gpus", "2,3", "--hosts", "2")),
        ("--hosts goes with --gpus", ("--cpus", "2", "--hosts", "2")),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(said: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ReplkernelError, match=said):
        wanted(*words)


def test_a_number_of_hosts_that_cannot_be_is_named() -> None:
    with pytest.raises(argparse.ArgumentError, match="'0' is no whole number of hosts from 1 to 64"):
        wanted("--hosts", "0")


@pytest.mark.parametrize("word", ["--standalone", "--nnodes=2", "--node_rank", "--rdzv-endpoint=h:1"])
def test_torchrun_is_told_where_to_meet_by_nobody_else(word: str) -> None:
    command = ("torchrun", word, "train.py", "--nnodes=4")
    with pytest.raises(ReplkernelError, match=f"Leave {word.partition('=')[0]} out"):
        submit("j", command, "/", Wanted(gpus=(2,), hosts=2), {})


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("torchrun -m train --master-port 1", ""),
        ("torchrun --nproc-per-node 2 run --nnodes=2", ""),
        ("torchrun --no-python ./run --standalone", ""),
        ("torchrun --max-restarts 3 --master_port 1 -m train", "--master_port"),
        ("torchrun -m --nnodes=2 train", "--nnodes"),
        ("python -m torch.distributed.run --log-dir=x --rdzv-id 1 t.py", "--rdzv-id"),
    ],
)
def test_a_programs_own_options_are_none_of_torchruns(command: str, word: str) -> None:
    assert meets_by_itself(tuple(command.split())) == word


def test_torchrun_learns_of_its_hosts_and_starts_a_process_for_each_gpu_of_its_own() -> None:
    assert command_with(("torchrun", "t.py"), 4, seat=SEAT) == [
        "torchrun", "--nproc-per-node=4", *MEETS, "t.py",
    ]  # fmt: skip
    own = ("torchrun", "--nproc-per-node={gpus}", "t.py")
    assert command_with(own, 4, seat=SEAT) == ["torchrun", *MEETS, "--nproc-per-node=4", "t.py"]
    assert command_with(("python", "t.py", "{gpus}"), 4, seat=SEAT) == ["python", "t.py", "4"]


def test_a_program_that_is_not_torchruns_is_one_process_on_each_host(tmp_path: Path) -> None:
    others = (OnHost("h2", ("GPU-2", "GPU-3")),)
    order = Order(1, "j", 1, ("GPU-0", "GPU-1"), ("python", "t.py"), str(tmp_path), others=others)
    told = environment({}, order, tmp_path, SEAT._replace(node=0))
    assert (told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"]) == ("0", "2", "0")
    assert (told["REPLKERNEL_JOB_GPUS"], told["REPLKERNEL_JOB_HOSTS"]) == ("2", "2")
    assert told["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    alone = environment({}, Order(1, "j", 1, ("GPU-0",), ("python",), str(tmp_path)), tmp_path)
    assert "RANK" not in alone and "MASTER_ADDR" not in alone


def test_the_rest_api_refuses_hosts_without_gpus() -> None:
    body = JobBody(job="j", command=["c"], directory="/w", seal="s", cpus=2, memory_gb=1.0, hosts=2)
    with pytest.raises(BadRequest, match="`hosts` goes with `gpus`"):
        check_job(body)
