"""The jobs that this user may see, asked of the scheduler wherever it is.

Law: asking is bounded, and goes to nobody but the scheduler; what is not understood is no job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.jobs.answers import JobAnswer, JobsAnswer, Reshape
from replkernel.leasing.asking import ask
from replkernel.leasing.finding import find_scheduler
from replkernel.leasing.standing import BOUNDS
from replkernel_server.live import documents as told
from replkernel_server.live.account import HUB_USER

OVER = frozenset(("done", "failed", "stopped"))
SLACK_S = 3.0
"""A change that seems to have moved by less than this is the one that was told before."""


def ask_jobs(env: Mapping[str, str]) -> list[JobAnswer] | None:
    """Return the jobs; None where nobody tells."""
    url, token = find_scheduler(env)
    if not url:
        return []
    try:
        return msgspec.json.decode(ask(url, token, "/api/v1/jobs", BOUNDS), type=JobsAnswer).jobs
    except (ReplkernelError, *UNREADABLE):  # Its status tells what is wrong.
        return None


def jobs_of(
    answers: Sequence[JobAnswer], before: Sequence[told.Job], wall: float, env: Mapping[str, str]
) -> list[told.Job]:
    """Return what pages are told at the Unix time `wall`; times that were told `before` do not waver."""
    known = {job.job: job for job in before}
    over = [job for job in answers if job.state in OVER][: told.JOBS_OVER_MAX]
    others = [job for job in answers if job.state not in OVER][: told.JOBS_MAX]
    return [_job(job, known.get(job.job), wall, env) for job in (*others, *over)]


def _job(job: JobAnswer, before: told.Job | None, wall: float, env: Mapping[str, str]) -> told.Job:
    user = env.get(HUB_USER, "")
    return told.Job(
        job=job.job,
        state=job.state,
        user=job.user,
        yours=not user or job.user == user,
        host=", ".join(job.on_hosts) or job.host or "",
        gpus=len(job.gpus),
        shapes=job.shapes,
        epoch=job.epoch,
        epochs=job.epochs,
        loss=None if job.loss is None else float(f"{job.loss:.4g}"),
        ends_in_s=None if job.ends_in_s is None else round(job.ends_in_s),
        ends_in=[told.JobEnd(each.gpus, round(each.seconds)) for each in job.ends_in],
        gpu_hours=round(job.gpu_hours, 3),
        said=job.said,
        reshapes=_reshapes(job.reshapes, [] if before is None else before.reshapes, wall),
        cpus=job.cpus,
        cpu_hours=round(job.cpu_hours, 3),
    )


def _reshapes(
    answers: Sequence[Reshape], before: Sequence[told.JobReshape], wall: float
) -> list[told.JobReshape]:
    """Return the changes with their Unix times, which do not waver from one look to the next."""
    found = []
    for answer in answers[-told.RESHAPES_MAX :]:
        at = round(wall - answer.ago_s)
        same = [one for one in before if abs(one.at - at) < SLACK_S]
        same = [one for one in same if (one.gpus, one.why) == (answer.gpus, answer.why)]
        found.append(same[0] if same else told.JobReshape(at, answer.gpus, answer.why))
    return found
