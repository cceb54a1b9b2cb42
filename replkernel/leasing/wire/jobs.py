"""What an agent that runs its user's jobs and the scheduler say of these."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from replkernel.leasing.wire.base import WHY_MAX, Amount, Id, LeaseMessage, Text, Told

JOBS_OF_HOST_MAX = 1000
LOG_BYTES_MAX = 64 * 1024
"""So much of a job's log is told at once."""
USE_S = 5.0
"""How often an agent measures what its kernels compute: the paper's samples (spec 4.3)."""


class JobsHere(LeaseMessage, frozen=True):
    """All attempts of jobs that this agent has processes of, or is about to; said first on each connection.

    Before it only ends are told that the scheduler may not have heard of. `ranks`: StartRanks and StopRanks
    may be said to it; `gangs` are those of which it has launchers. `uses`: so may UseWanted, and StartJob
    with `cpus`. `spans`: so may StartJob with `others`.
    """

    jobs: Annotated[tuple[tuple[Id, int], ...], msgspec.Meta(max_length=JOBS_OF_HOST_MAX)] = ()
    ranks: bool = False
    gangs: Annotated[tuple[Id, ...], msgspec.Meta(max_length=JOBS_OF_HOST_MAX)] = ()
    uses: bool = False
    spans: bool = False


class JobSaid(LeaseMessage, frozen=True):
    """What has become of an attempt of a job; `stopped`, `done` and `failed`: no process of it is left.

    `said` is a clause about it, `epoch` and `loss` what the program told last. It could not begin for want of
    the host `without`. `elsewhere`: it has failed too often here, and may be started on other hosts.
    """

    job: Id
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    what: Literal["runs", "progress", "stopped", "done", "failed"]
    said: Annotated[str, msgspec.Meta(max_length=WHY_MAX)] = ""
    epoch: Told | None = None
    loss: Told | None = None
    without: Text = ""
    elsewhere: bool = False


class JobMeets(LeaseMessage, frozen=True):
    """An attempt of a job on several hosts waits for launchers of the others: they find it at `endpoint`.

    `gang` names them; `seal` is as in GangWish. Said again on each connection until all have come.
    """

    job: Id
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    gang: Id
    endpoint: Annotated[str, msgspec.Meta(max_length=1000)]
    seal: Text


class HostUse(LeaseMessage, frozen=True):
    """What is used of the agent's host: the answer to UseWanted, again when it changes, every USE_S at most.

    Each is said twice, for jobs leave only where two words agree. `busy`: cores on which its kernels computed
    in the last minute. `used_gb` is what all processes of the machine use of its memory, `jobs_gb` what this
    user's jobs on cores have of that. `limit_gb`: `used_gb` is of so much, where a cgroup has less than the
    machine; 0: of all.
    """

    busy: Amount = 0.0
    used_gb: Amount = 0.0
    jobs_gb: Amount = 0.0
    limit_gb: Amount = 0.0


class JobLog(LeaseMessage, frozen=True):
    """The answer to JobLogWanted: `data` from `at` on; `at` is larger than was asked where that is gone."""

    number: int
    at: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    data: Annotated[bytes, msgspec.Meta(max_length=LOG_BYTES_MAX)] = b""


class JobOnHost(msgspec.Struct, frozen=True):
    """What a job has of another host of its own."""

    host: str
    gpus: tuple[str, ...]


class StartJob(LeaseMessage, frozen=True):
    """Have a job's processes run on these GPUs, from where it was saved last; JobSaid tells the rest.

    What runs of an older attempt is saved and stopped first. `seal` shows that the agent's own user wants
    this command run in this directory: without it nothing is started. Without GPUs it runs beside all else
    on `cpus` cores, and ends when it takes more than `memory_gb`. With `others` it runs there as well:
    JobMeets tells where launchers are to come to.
    """

    job: Id
    attempt: int
    gpus: tuple[str, ...]
    command: tuple[str, ...]
    directory: str
    seal: str
    cpus: int = 0
    memory_gb: float = 0.0
    others: tuple[JobOnHost, ...] = ()


class UseWanted(LeaseMessage, frozen=True):
    """Say HostUse from now on, as long as this connection lasts."""


class StopJob(LeaseMessage, frozen=True):
    """Have an attempt's processes stopped within `within_s`, saved first if `saves`; answered by JobSaid."""

    job: Id
    attempt: int
    within_s: float
    saves: bool = True


class JobGone(LeaseMessage, frozen=True):
    """The job is over, or nobody knows it: nothing of it runs again, and its log alone is kept."""

    job: Id


class JobsAwait(LeaseMessage, frozen=True):
    """Whether there are jobs of the agent's user that are not over: so long it stays."""

    awaits: bool


class JobLogWanted(LeaseMessage, frozen=True):
    """Somebody who may wants to read a job's log from byte `at` on; JobLog answers with the same `number`."""

    number: int
    job: Id
    at: int
