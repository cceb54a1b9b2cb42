"""What Slurm is asked, and what its answers mean: commands, the script, states, hosts, what comes next."""

from __future__ import annotations

import pytest
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.protocol import HostComing, HostEnding, HostJoined, HostLost
from replkernel_server.launchers.slurm import carried
from replkernel_server.launchers.slurm_agent import (
    AgentSettings,
    JobError,
    agent_command,
    agent_environment,
    agent_name,
    own_address,
)
from replkernel_server.launchers.slurm_hosts import LIVED_S, SlurmHosts, Todo
from replkernel_server.launchers.slurm_jobs import (
    Job,
    SlurmAnswerError,
    SlurmOptions,
    batch_script,
    cancel,
    jobs_told,
    left_s,
    read_options,
    submit,
    submitted,
)

THREE = SlurmOptions(hosts=3, gpus=4, drain_before_s=600)


def up(job: int, node: str, left: float | None = None) -> Job:
    return Job(str(job), "RUNNING", node, left, "replkernel:x", "None")


def waits(job: int, why: str = "Resources") -> Job:
    return Job(str(job), "PENDING", "", None, "replkernel:x", why)


def over(job: int, node: str, state: str) -> Job:
    return Job(str(job), state, node, None, "replkernel:x", "NodeDown" if state == "NODE_FAIL" else "None")


def test_a_job_is_asked_for_as_the_options_say() -> None:
    options = read_options(
        {"partition": "gpu", "gpus": "4", "gpu_type": "h100", "constraint": "a|b", "time_limit": "8:00:00"}
    )
    command = submit(options, "replkernel:x", "/shared/place", not_on=("n1", "n2"))
    assert command[0] == "sbatch"
    for word in (
        "--gres=gpu:h100:4",
        "--partition=gpu",
        "--constraint=a|b",
        "--time=8:00:00",
        "--exclude=n1,n2",
        "--comment=replkernel:x",
        "--export=NIL",
        "--nodes=1",
        "--no-requeue",
    ):
        assert word in command
    assert not any(word.startswith(("--mem", "--qos", "--nodelist")) for word in command)
    assert "--nodelist=n3" in submit(options, "replkernel:x", "/shared/place", node="n3")
    assert not any("gres" in word for word in submit(SlurmOptions(gpus=0), "m", "/p"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"partitions": "gpu"}, "no option 'partitions'"),
        ({"partition": "--uid=0"}, "partition"),
        ({"partition": "gpu\n#SBATCH"}, "partition"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"gpus": "many"}, "gpus"),
        ({"gpus": "-1"}, "gpus"),
        ({"hosts": "5", "most": "4"}, "most=4"),
        ({"pretend": "maybe"}, "yes or no"),
        ({"host_prefix": "../"}, "host_prefix"),
    ],
)
def test_a_slurm_option_that_cannot_be_is_refused_by_name(options: dict[str, str], what: str) -> None:
    with pytest.raises(ServiceSettingError, match=what):
        read_options(options)


def test_jobs_are_read_and_what_does_not_fit_is_refused() -> None:
    told = jobs_told(
        "18|PENDING||1-00:00:00|replkernel:x|Nodes required for job are DOWN, DRAINED | other\n"
        "17|RUNNING|n1|59:59|replkernel:x|None\n"
    )
    assert [(job.job, job.phase, job.node, job.left_s) for job in told] == [
        ("17", "up", "n1", 3599.0),
        ("18", "coming", "", 86_400.0),
    ]
    assert told[1].why == "Nodes required for job are DOWN, DRAINED | other"
    for wrong in (
        "17|RUNNING|n1|1:00|m",
        "x|RUNNING|n1|1:00|m|r",
        "1|RUN;NING|n1|1:00|m|r",
        "1|RUNNING|../n|1:00|m|r",
    ):
        with pytest.raises(SlurmAnswerError):
            jobs_told(wrong)
    with pytest.raises(SlurmAnswerError):
        left_s("tomorrow")
    assert submitted("17;cluster\n") == "17"
    with pytest.raises(SlurmAnswerError):
        submitted("sbatch: error")
    with pytest.raises(SlurmAnswerError):
        cancel("-t")


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("CONFIGURING", "coming"),
        ("SUSPENDED", "up"),
        ("COMPLETING", "ending"),
        ("PREEMPTED", "ended"),
        ("NEWS", "ended"),
    ],
)
def test_a_state_of_slurms_is_one_of_a_host(state: str, phase: str) -> None:
    assert Job("1", state, "n1", None, "", "").phase == phase


def test_no_secret_is_in_the_script_or_the_command() -> None:
    env = {
        "REPLKERNEL_SCHEDULER_URL": "https://s:1",
        "REPLKERNEL_SCHEDULER_TOKEN": "s3cret",
        "SECRET_OF_MINE": "no",
    }
    kept = carried({**env, "REPLKERNEL_HOST_NAME": "lab", "REPLKERNEL_BIND": "10.0.0.1", "AWS_PROFILE": "a"})
    assert kept["REPLKERNEL_SCHEDULER_TOKEN"] == "s3cret"
    assert kept["AWS_PROFILE"] == "a"
    assert not {"SECRET_OF_MINE", "REPLKERNEL_HOST_NAME", "REPLKERNEL_BIND"} & set(kept)
    shown = batch_script("/usr/bin/python", "/p/agent.json", "/src") + " ".join(submit(THREE, "m", "/p"))
    assert "s3cret" not in shown
    assert (
        batch_script("/a b/python", "/p/agent.json").splitlines()[-1].startswith("exec '/a b/python' -P -m ")
    )


# -- on the node -----------------------------------------------------------------------------------

JOB = {
    "SLURM_JOB_ID": "17",
    "SLURMD_NODENAME": "n1",
    "SLURM_GPUS_ON_NODE": "2",
    "CUDA_VISIBLE_DEVICES": "1,3",
}


def test_an_agent_offers_the_gpus_of_its_job_alone() -> None:
    settings = AgentSettings({"REPLKERNEL_STORE": "s3://b/p"}, "slurm-", "auto")
    assert agent_name(JOB, "slurm-") == "slurm-n1"
    env = agent_environment(JOB, settings, "10.0.0.7")
    assert env["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert env["REPLKERNEL_STORE"] == "s3://b/p"
    assert env["REPLKERNEL_BIND"] == "10.0.0.7"
    none = {
        name: said for name, said in JOB.items() if name not in ("SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES")
    }
    assert agent_environment(none, settings, "")["CUDA_VISIBLE_DEVICES"] == "", "not all that the node has"
    assert agent_command("py", "n1", JOB, pretended=True)[-3:] == ["--fake-gpus", "2", "--stay"]
    assert agent_command("py", "n1", JOB, pretended=False)[-3:] == ["--fake-gpus", "0", "--stay"]


def test_outside_a_job_there_is_no_agent() -> None:
    with pytest.raises(JobError, match="not a Slurm job"):
        agent_name({"SLURMD_NODENAME": "n1"}, "")
    assert own_address("10.0.0.1", {}) == "10.0.0.1"
    assert own_address("auto", {"SLURM_SUBMIT_HOST": "127.0.0.1"}) == "127.0.0.1"


# -- jobs as hosts ---------------------------------------------------------------------------------


def test_jobs_become_hosts_and_say_why_they_are_not_yet() -> None:
    hosts = SlurmHosts(THREE)
    assert hosts.todo(0) == Todo(submit=3)
    assert hosts.told([waits(1), waits(2, "Priority")], 0) == [
        HostComing("1", "Resources"),
        HostComing("2", "Priority"),
    ]
    assert hosts.told([waits(1), waits(2, "Priority")], 1) == []
    assert hosts.todo(1) == Todo(submit=1)
    words = hosts.told([up(1, "n1"), waits(2, "QOSMaxJobsPerUserLimit"), waits(3)], 2)
    assert words == [
        HostJoined("n1", 4),
        HostComing("2", "QOSMaxJobsPerUserLimit"),
        HostComing("3", "Resources"),
        HostComing("1", "", over=True),
    ]
    assert hosts.todo(2) == Todo(not_on=("n1",))


def test_a_lost_node_is_told_and_replaced() -> None:
    hosts = SlurmHosts(THREE)
    hosts.told([up(1, "n1"), up(2, "n2"), up(3, "n3")], 0)
    assert hosts.told([up(1, "n1"), over(2, "n2", "NODE_FAIL"), up(3, "n3")], 9) == [
        HostLost("n2", "its job 2 is over: NODE_FAIL (NodeDown)")
    ]
    assert hosts.todo(9) == Todo(submit=1, not_on=("n1", "n3"))
    assert hosts.told([up(1, "n1"), up(3, "n3")], 10) == []


def test_of_two_jobs_on_one_node_the_younger_is_asked_for_elsewhere() -> None:
    hosts = SlurmHosts(SlurmOptions(hosts=2, gpus=2))
    hosts.told([up(1, "n1"), up(2, "n1")], 0)
    assert hosts.hosts() == ["n1"]
    assert hosts.todo(0) == Todo(cancel=("2",), submit=1, not_on=("n1",))


def test_hosts_are_asked_for_beyond_those_that_are_there_and_no_more() -> None:
    hosts = SlurmHosts(SlurmOptions(hosts=1, most=2))
    hosts.told([up(1, "n1")], 0)
    hosts.want(1)
    assert hosts.todo(0).submit == 1
    hosts.told([up(1, "n1"), waits(2)], 1)
    assert hosts.todo(1) == Todo(not_on=("n1",))
    hosts.want(0)
    assert hosts.todo(1).cancel == ("2",), "nobody wants it any more"
    hosts.want(5)
    assert hosts.todo(1) == Todo(not_on=("n1",)), "two at most"


def test_a_host_that_was_given_back_is_not_asked_for_again() -> None:
    hosts = SlurmHosts(THREE)
    jobs = [up(1, "n1"), up(2, "n2"), up(3, "n3")]
    hosts.told(jobs, 0)
    assert hosts.give_back("n3") == [HostLost("n3", "it was given back")]
    assert hosts.told(jobs, 1) == [], "Slurm needs a moment"
    assert hosts.todo(1) == Todo(not_on=("n1", "n2"))
    assert hosts.give_back("n3") == []


def test_before_its_time_limit_a_host_is_emptied_and_the_next_one_asked_for() -> None:
    hosts = SlurmHosts(SlurmOptions(hosts=1, drain_before_s=600))
    assert hosts.told([up(1, "n1", 601)], 0) == [HostJoined("n1", 1)]
    assert hosts.told([up(1, "n1", 600)], 1) == [HostEnding("n1", 600, "its job reaches its time limit")]
    assert hosts.told([up(1, "n1", 599)], 2) == []
    assert hosts.todo(2) == Todo(submit=1, not_on=("n1",))


def test_a_job_that_ends_as_it_begins_is_asked_for_with_growing_pauses() -> None:
    hosts = SlurmHosts(SlurmOptions(hosts=1))
    hosts.told([waits(1)], 0)
    hosts.told([over(1, "n1", "FAILED")], 1)
    assert "ended as soon as it began" in hosts.trouble
    assert hosts.todo(1).submit == 0
    assert hosts.todo(11).submit == 1
    hosts.told([over(1, "n1", "FAILED"), waits(2)], 12)
    hosts.told([over(1, "n1", "FAILED"), over(2, "n1", "FAILED")], 13)
    assert hosts.todo(24).submit == 0
    assert hosts.todo(33).submit == 1
    hosts.told([up(3, "n1")], 40)
    hosts.told([up(3, "n1")], 40 + LIVED_S)
    assert hosts.trouble == ""
