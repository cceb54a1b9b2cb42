"""What Slurm is asked and what it answers: command lines, the batch script, jobs as their lines tell.

Law: pure; what comes from Slurm or from settings is checked before it is used, and whatever stands in an
argument, a script or a job's properties may be read by everybody on the cluster: no secret is there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from math import inf
from typing import Literal, TypeAlias

import msgspec

from replkernel.agent.io.start import is_host_name
from replkernel.launch.module_command import module_command
from replkernel_server.errors import ServerError, ServiceSettingError
from replkernel_server.launchers.installed import refuse_unknown

JobPhase: TypeAlias = Literal["coming", "up", "ending", "ended"]
"""coming: it waits for a node. up: its agent may run. ending: Slurm ends it. ended: it is over."""

FIELDS = "%i|%T|%N|%L|%k|%r"
"""Job, state, nodes, time left, our comment, reason: the last may hold anything."""
FIELD_COUNT = 6
LINE_CHARACTERS_MAX = 2_000
JOBS_MAX = 10_000
REASON_CHARACTERS_MAX = 200
MARK_CHARACTERS_MAX = 128

HOSTS_MAX = 1024
GPUS_MAX = 64
CPUS_MAX = 4096

_WORDS = (
    "partition",
    "account",
    "qos",
    "reservation",
    "constraint",
    "gpu_type",
    "memory",
    "exclude",
    "job_name",
)
_COMING = {
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
}
_UP = {"RUNNING", "RESIZING", "SIGNALING", "SUSPENDED", "STOPPED"}
_ENDING = {"COMPLETING", "STAGE_OUT", "REVOKED"}

_JOB = re.compile(r"[0-9]{1,18}\Z")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_MARK = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_LEFT = re.compile(r"(?:(?:(\d{1,5})-)?(\d{1,3}):)?(\d{1,3}):(\d{2})\Z")
_WORD = re.compile(r"[A-Za-z0-9._:=,+@%/\[\]()&|*!<> -]{1,400}\Z")
_TIME = re.compile(r"\d{1,6}(?::\d{2}){0,2}\Z|\d{1,4}-\d{1,2}(?::\d{2}){0,2}\Z|UNLIMITED\Z")
_NO_LIMIT = ("UNLIMITED", "NOT_SET", "INVALID", "")


class SlurmAnswerError(ServerError):
    """Slurm answered what no version is known to answer."""


class SlurmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs are asked for. Times are seconds but for `time_limit`, which is as Slurm writes it."""

    hosts: int = 0
    most: int = 64
    gpus: int = 1
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    gpu_type: str = ""
    cpus: int = 0
    memory: str = ""
    time_limit: str = ""
    nice: int = 0
    exclude: str = ""
    job_name: str = "replkernel"
    host_prefix: str = ""
    python: str = ""
    bind: str = "auto"
    drain_before_s: float = 600.0
    pretend: bool = False

    def __post_init__(self) -> None:
        """Refuse what Slurm could read otherwise than it is meant."""
        for name in _WORDS:
            said = getattr(self, name)
            if said and (said.startswith("-") or not _WORD.match(said)):
                raise _refused(name, said, "give it as sbatch takes it")
        if not _MARK.match(self.job_name):
            raise _refused("job_name", self.job_name, "take letters and digits")
        if self.host_prefix and not is_host_name(self.host_prefix):
            raise _refused("host_prefix", self.host_prefix, "take letters and digits, as in slurm-")
        if self.time_limit and not _TIME.match(self.time_limit):
            raise _refused("time_limit", self.time_limit, "write 8:00:00, 2-0 or UNLIMITED")
        if not 0 <= self.hosts <= self.most <= HOSTS_MAX:
            raise _refused("hosts", self.hosts, f"take 0 to most={self.most}, which is {HOSTS_MAX} at most")
        if not 0 <= self.gpus <= GPUS_MAX or not 0 <= self.cpus <= CPUS_MAX:
            raise _refused("gpus and cpus", (self.gpus, self.cpus), "take what a node has")
        if not 0 <= self.drain_before_s < inf:
            raise _refused("drain_before_s", self.drain_before_s, "take seconds")


def read_options(options: Mapping[str, str]) -> SlurmOptions:
    """Return the options that were given as words; raise ServiceSettingError for what cannot be used."""
    refuse_unknown("slurm", options, SlurmOptions.__struct_fields__)
    try:
        return msgspec.convert({**options, **_words(options, "pretend")}, SlurmOptions, strict=False)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ServiceSettingError):
            raise error.__cause__ from None
        raise ServiceSettingError(f"The launcher slurm cannot use an option: {error}.") from error


def _words(options: Mapping[str, str], name: str) -> dict[str, bool]:
    said = options.get(name, "no")
    if said not in ("yes", "no"):
        raise _refused(name, said, "say yes or no")
    return {name: said == "yes"}


def _refused(name: str, said: object, fix: str) -> ServiceSettingError:
    return ServiceSettingError(f"The launcher slurm cannot use {said!r} as its {name}: {fix}.")


class Job(msgspec.Struct, frozen=True):
    """One job of ours; `left_s` is None where nothing ends it."""

    job: str
    state: str
    node: str
    left_s: float | None
    mark: str
    reason: str

    @property
    def phase(self) -> JobPhase:
        """Return what its state means for a host."""
        if self.state in _COMING:
            return "coming"
        if self.state in _UP:
            return "up"
        return "ending" if self.state in _ENDING else "ended"

    @property
    def why(self) -> str:
        """Return in Slurm's words why it is not there yet, or not any more."""
        said = "" if self.reason in ("None", "(null)") else self.reason
        return (
            said
            if self.phase == "coming"
            else " ".join(word for word in (self.state, said and f"({said})") if word)
        )


# -- command lines ---------------------------------------------------------------------------------


def ask_for_jobs(options: SlurmOptions, user: str) -> list[str]:
    """Return the command that tells of our jobs, those too that ended a moment ago."""
    names = [f"--user={user}", f"--name={options.job_name}", "--states=all"]
    return ["squeue", "--noheader", "--local", *names, f"--format={FIELDS}"]


def submit(
    options: SlurmOptions, mark: str, place: str, not_on: tuple[str, ...] = (), node: str = ""
) -> list[str]:
    """Return the command that takes a batch script from its standard input and has it run on one node.

    `mark` comes back with the job; `place` is the directory of logs; `not_on` are nodes that have an agent;
    `node` is the one that it must be.
    """
    _check(mark, _MARK, "mark")
    wanted = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "reservation": options.reservation,
        "constraint": options.constraint,
        "mem": options.memory,
        "time": options.time_limit,
        "cpus-per-task": str(options.cpus or ""),
        "nice": str(options.nice or ""),
        "exclude": ",".join(
            filter(None, (options.exclude, *(_check(node, _NODE, "node") for node in not_on)))
        ),
        "gres": gres(options),
        "nodelist": _check(node, _NODE, "node") if node else "",
    }
    fixed = [
        "sbatch",
        "--parsable",
        "--export=NIL",
        "--nodes=1",
        "--ntasks=1",
        "--no-requeue",
        "--signal=B:TERM@60",
        f"--job-name={options.job_name}",
        f"--comment={mark}",
        f"--output={place}/%j.log",
        f"--chdir={place}",
    ]
    return [*fixed, *(f"--{name}={value}" for name, value in wanted.items() if value)]


def gres(options: SlurmOptions) -> str:
    """Return what Slurm calls the GPUs of a host; nothing for none."""
    kind = f"{options.gpu_type}:" if options.gpu_type else ""
    return f"gpu:{kind}{options.gpus}" if options.gpus else ""


def cancel(job: str) -> list[str]:
    """Return the command that ends a job: SIGTERM to all of it, and SIGKILL after Slurm's KillWait."""
    return ["scancel", _check(job, _JOB, "job")]


def end_kernels(job: str) -> list[str]:
    """Return the command that has a job's agent end its kernels, then itself, and so the job."""
    return ["scancel", "--signal=USR1", "--batch", _check(job, _JOB, "job")]


def batch_script(python: str, settings_file: str, python_path: str = "") -> str:
    """Return what runs on the node. Its settings lie in a file that its user alone can read.

    The agent replaces the shell, so that Slurm's SIGTERM (time limit, preemption, scancel) reaches it.
    """
    program = shlex.join(
        module_command("replkernel_server.launchers.slurm_agent", settings_file, python=python)
    )
    path = f"export PYTHONPATH={shlex.quote(python_path)}\n" if python_path else ""
    return f"#!/bin/sh\numask 077\n{path}exec {program}\n"


# -- answers ---------------------------------------------------------------------------------------


def submitted(answer: str) -> str:
    """Return the job's id out of what `sbatch --parsable` printed (`17`, or `17;cluster`)."""
    return _check(answer.strip().partition(";")[0], _JOB, "answer to sbatch")


def jobs_told(answer: str) -> tuple[Job, ...]:
    """Return the jobs that squeue told of, oldest first; raise SlurmAnswerError where a line does not fit."""
    lines = [line for line in answer.splitlines() if line.strip()]
    if len(lines) > JOBS_MAX:
        raise SlurmAnswerError(
            f"squeue tells of {len(lines)} jobs of this name; at most {JOBS_MAX} are looked at."
        )
    return tuple(sorted(map(_job, lines), key=lambda job: int(job.job)))


def _job(line: str) -> Job:
    parts = line.strip().split("|", FIELD_COUNT - 1)
    if len(parts) != FIELD_COUNT or len(line) > LINE_CHARACTERS_MAX:
        raise SlurmAnswerError(f"squeue answered a line that has not {FIELD_COUNT} parts: {line[:80]!r}")
    job, state, node, left, mark, reason = (part.strip() for part in parts)
    _check(job, _JOB, "job")
    if not (state.isascii() and state.replace("_", "").isalpha()):
        raise SlurmAnswerError(f"squeue answered {state[:40]!r} as a job's state.")
    if node:
        _check(node, _NODE, "node")
    known_mark = mark if _MARK.match(mark) else ""
    said = "".join(char for char in reason if char.isprintable())[:REASON_CHARACTERS_MAX]
    return Job(job, state, node, left_s(left), known_mark, said)


def left_s(said: str) -> float | None:
    """Return the seconds that squeue's TIME_LEFT says, None where no limit is set."""
    if said in _NO_LIMIT:
        return None
    found = _LEFT.match(said)
    if found is None:
        raise SlurmAnswerError(f"squeue answered {said[:40]!r} as the time that a job has left.")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _check(said: str, form: re.Pattern[str], what: str) -> str:
    if not form.match(said):
        raise SlurmAnswerError(f"This cannot be a Slurm {what}: {said[:80]!r}")
    return said
