"""All that is told, as it was last heard of, and what of it has changed since the last message.

Pure. Law: a message never holds one thing twice, what is heard again unchanged is no change; numbers of
messages have no gap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from replkernel.protocol.progress import TOLD_MAX, ProgressAnswer
from replkernel.protocol.progress import Execution as TellsExecution
from replkernel.protocol.remote_status import NO_ANSWER
from replkernel.protocol.status import (
    BookingStatus,
    HostStatus,
    KernelStatus,
    LeaseStatus,
    StatusDocument,
    WaitingStatus,
)
from replkernel_server.live import documents as told
from replkernel_server.live.documents import Changes, Gone, Snapshot

CLOCK_SLACK_S = 0.25
"""A kernel's clock is taken anew when it seems to have moved by more than this against ours."""

Thing = TypeVar("Thing", bound=msgspec.Struct)


class Shelf(Generic[Thing]):
    """Things by name, and which of them have changed or gone."""

    def __init__(self) -> None:
        self.things: OrderedDict[str, Thing] = OrderedDict()
        self.changed: dict[str, None] = {}
        self.gone: dict[str, None] = {}

    def put(self, name: str, thing: Thing) -> None:
        """Hold a thing."""
        if self.things.get(name) != thing:
            self.things[name] = thing
            self.changed[name] = None
            self.gone.pop(name, None)

    def drop(self, name: str) -> None:
        """Hold it no more."""
        if self.things.pop(name, None) is not None:
            self.changed.pop(name, None)
            self.gone[name] = None

    def only(self, things: Mapping[str, Thing]) -> None:
        """Hold these and no others."""
        for name in [name for name in self.things if name not in things]:
            self.drop(name)
        for name, thing in things.items():
            self.put(name, thing)

    def take(self) -> tuple[list[Thing], list[str]]:
        """Return what has changed and the names of what has gone, once."""
        changed, gone = [self.things[name] for name in self.changed], list(self.gone)
        self.changed.clear()
        self.gone.clear()
        return changed, gone


NO_SCHEDULER = told.Scheduler("", "", None, None)


class LiveState:
    """What pages are told."""

    def __init__(self) -> None:
        self.seq = 0
        self._kernels: Shelf[told.Kernel] = Shelf()
        self._executions: Shelf[told.Execution] = Shelf()
        self._hosts: Shelf[told.Host] = Shelf()
        self._single: dict[str, Any] = {"leases": [], "queue": [], "jobs": [], "account": None}
        self._single["scheduler"] = NO_SCHEDULER
        self._dirty: set[str] = set()
        self._statuses: dict[str, KernelStatus] = {}
        self._answers: dict[str, ProgressAnswer] = {}
        self._clocks: dict[str, float] = {}
        self._mute: set[str] = set()
        self._served: frozenset[str] = frozenset()
        self._document = StatusDocument()
        self._of_kernel: dict[str, dict[str, None]] = {}
        self._since: dict[str, float] = {}
        """Since when a lease is held or a request waits, as first heard: hearing of it again is no change."""

    # -- what is heard ----------------------------------------------------------------------------------

    def agents_told(self, document: StatusDocument, served: Iterable[str], wall: float = 0.0) -> None:
        """Take what was told at the Unix time `wall`; `served` are this server's own kernels."""
        self._hosts.only({host.name: _host(host) for host in document.hosts[: told.HOSTS_MAX]})
        self._document = document
        statuses = {kernel.kernel_id: kernel for kernel in document.kernels[: told.KERNELS_MAX]}
        served = list(served)[: told.KERNELS_MAX]
        if any(host.state == NO_ANSWER for host in document.hosts):  # What it told last stays meanwhile.
            statuses = {name: self._statuses[name] for name in served if name in self._statuses} | statuses
        self._statuses = statuses
        self._served = frozenset(served)
        alive = [*served, *(name for name in self._statuses if name not in served)]
        for name in [name for name in self._kernels.things if name not in alive]:
            self._forget(name)
        for name in alive:
            self._show(name)
        leases = document.leases[: told.LEASES_MAX]
        waiting = document.waiting[: told.QUEUE_MAX]
        since = {one.lease: _at(one.held_s, wall) for one in leases}
        since.update((one.request, _at(one.waited_s, wall)) for one in waiting)
        self._since = {name: self._since.get(name) or at for name, at in since.items()}
        self._set("leases", [_lease(one, self._since[one.lease]) for one in leases])
        self._set("account", self._with_held(self._single["account"], document))
        self._set("queue", [_waiting(one, self._since[one.request]) for one in waiting])
        asked = document.scheduler
        scheduler = (
            NO_SCHEDULER
            if asked is None
            else told.Scheduler(
                asked.url,
                asked.trouble,
                asked.waiting,
                asked.subscription_ratio,
                [_booked(one, wall) for one in document.bookings[: told.BOOKED_MAX]],
            )
        )
        self._set("scheduler", scheduler)

    def kernel_told(self, kernel_id: str, answer: ProgressAnswer, wall: float) -> bool:
        """Take what a kernel's router has answered at the Unix time `wall`.

        Tell whether it came or went to rest, holds other GPUs, or a move began or ended: then others have
        something to tell as well.
        """
        clock = wall - answer.now
        if abs(clock - self._clocks.get(kernel_id, -1e18)) > CLOCK_SLACK_S:
            self._clocks[kernel_id] = clock
        clock = self._clocks[kernel_id]
        before = self._answers.get(kernel_id)
        self._mute.discard(kernel_id)
        known = self._of_kernel.setdefault(kernel_id, {})
        for one in answer.executions:
            self._executions.put(one.msg_id, _execution(kernel_id, one, clock))
            known.setdefault(one.msg_id)
        kept = answer.kept[-told.EXECUTIONS_MAX :]
        remembered = frozenset(kept)
        for msg_id in [msg_id for msg_id in known if msg_id not in remembered]:
            del known[msg_id]
            self._executions.drop(msg_id)
        missed = len(answer.executions) < TOLD_MAX and any(msg_id not in known for msg_id in kept)
        if missed or (before is not None and answer.version < before.version):
            answer = msgspec.structs.replace(answer, version=0)  # Another router, which counts anew.
        self._answers[kernel_id] = answer
        self._show(kernel_id)
        return before is None or _placed(before) != _placed(answer)

    def kernel_silent(self, kernel_id: str) -> None:
        """Take note that a kernel's router does not answer."""
        if kernel_id not in self._mute:
            self._mute.add(kernel_id)
            self._show(kernel_id)

    @property
    def jobs(self) -> list[told.Job]:
        """Return the jobs as they are told."""
        return list(self._single["jobs"])

    def jobs_told(self, jobs: list[told.Job]) -> None:
        """Take this user's jobs."""
        self._set("jobs", jobs)

    def has_ended(self, document: StatusDocument) -> bool:
        """Tell whether a lease of this user's is no more: then the account has more to tell."""
        held = {one.lease for one in document.leases}
        return any(one.yours and one.lease not in held for one in self._single["leases"])

    def account_told(self, account: told.Account | None) -> None:
        """Take what this user has used; while nobody tells, it stays as it was."""
        if account is not None:
            self._set("account", self._with_held(account, self._document))

    @staticmethod
    def _with_held(account: told.Account | None, document: StatusDocument) -> told.Account | None:
        """Return an account with the GPUs that the grid shows as the user's: it is asked for less often."""
        if account is None or document.scheduler is None or document.scheduler.trouble:
            return account
        held = sum(one.part or len(one.gpus) for one in document.leases if one.yours)
        return msgspec.structs.replace(account, gpus_held=held)

    def unsettled(self, kernel_id: str) -> bool:
        """Tell whether an execution of a kernel is under way or not durable yet."""
        answer = self._answers.get(kernel_id)
        if answer is not None and answer.rest not in ("awake", "asleep"):
            return True
        last = list(self._of_kernel.get(kernel_id, ()))[-8:]
        known = [self._executions.things[msg_id] for msg_id in last]
        return any(one.state != "done" or one.safety == "pending" for one in known)

    def version_of(self, kernel_id: str) -> int:
        """Return up to which version a kernel's executions are known."""
        answer = self._answers.get(kernel_id)
        return 0 if answer is None else answer.version

    # -- what is told -----------------------------------------------------------------------------------

    def snapshot(self, now: float) -> Snapshot:
        """Return everything."""
        return Snapshot(
            seq=self.seq,
            now=now,
            kernels=list(self._kernels.things.values()),
            executions=list(self._executions.things.values()),
            hosts=list(self._hosts.things.values()),
            **self._single,
        )

    def flush(self, now: float) -> Changes | None:
        """Return what has changed since the last call, None if nothing has."""
        kernels, no_kernels = self._kernels.take()
        executions, no_executions = self._executions.take()
        hosts, no_hosts = self._hosts.take()
        single = {name: self._single[name] for name in self._dirty}
        self._dirty.clear()
        gone = Gone(no_kernels, no_executions, no_hosts)
        if not (kernels or executions or hosts or single or gone != Gone()):
            return None
        self.seq += 1
        return Changes(self.seq, now, kernels, executions, hosts, gone, **single)

    def beat(self, now: float) -> Changes:
        """Return that nothing has changed."""
        self.seq += 1
        return Changes(self.seq, now)

    def _set(self, name: str, value: object) -> None:
        if self._single[name] != value:
            self._single[name] = value
            self._dirty.add(name)

    def _show(self, kernel_id: str) -> None:
        answers = kernel_id not in self._mute
        shown = _kernel(
            self._doubts_scheduler(kernel_id),
            kernel_id,
            self._statuses.get(kernel_id),
            self._answers.get(kernel_id),
            self._clocks.get(kernel_id, 0.0),
            answers,
            kernel_id in self._served,
        )
        self._kernels.put(kernel_id, shown)

    def _doubts_scheduler(self, kernel_id: str) -> bool:
        """Tell whether a router's word that no scheduler answers counts: it looks only when a cell asks."""
        asked = self._document.scheduler
        if asked is None or asked.trouble:
            return True
        known = (self._executions.things[name] for name in self._of_kernel.get(kernel_id, ()))
        return any(one.state == "waiting" and one.trouble for one in known)

    def _forget(self, kernel_id: str) -> None:
        self._kernels.drop(kernel_id)
        for msg_id in self._of_kernel.pop(kernel_id, ()):
            self._executions.drop(msg_id)
        self._answers.pop(kernel_id, None)
        self._clocks.pop(kernel_id, None)
        self._mute.discard(kernel_id)


def _placed(answer: ProgressAnswer) -> tuple[Any, ...]:
    return answer.rest, answer.holdings, answer.move


def _at(ago_s: float | None, wall: float) -> float:
    return 0.0 if ago_s is None else round(wall - ago_s, 1)


def _lease(one: LeaseStatus, since: float) -> told.Lease:
    gpus = list(one.gpus)
    return told.Lease(
        one.lease,
        one.kernel_id,
        one.host,
        gpus,
        one.user,
        one.notebook,
        one.yours,
        since,
        one.part,
        one.part_gb,
    )


def _booked(one: BookingStatus, wall: float) -> told.Booked:
    """Return a booking with its times to the minute: hearing of it again is no change."""
    begins, ends = (round((wall + left_s) / 60) * 60.0 for left_s in (one.begins_in_s, one.ends_in_s))
    ready = None if one.phase == "planned" else one.ready
    return told.Booked(one.gpus, one.whom, one.gpu_model, begins, ends, ready)


def _waiting(one: WaitingStatus, since: float) -> told.Waiting:
    return told.Waiting(
        request=one.request,
        kernel_id=one.kernel_id,
        gpus=one.gpus,
        user=one.user,
        notebook=one.notebook,
        yours=one.yours,
        position=one.position,
        since=since,
        estimate_s=None if one.estimate_s is None else round(one.estimate_s),
    )


def _host(host: HostStatus) -> told.Host:
    gpus = [
        told.Gpu(
            gpu.uuid,
            gpu.name,
            gpu.memory_bytes,
            gpu.memory_used_bytes,
            gpu.utilisation,
            gpu.state,
            gpu.lease,
        )
        for gpu in host.gpus[: told.GPUS_MAX]
    ]
    return told.Host(host.name, host.state, gpus, host.why)


def _kernel(
    doubts_scheduler: bool,
    kernel_id: str,
    status: KernelStatus | None,
    answer: ProgressAnswer | None,
    clock: float,
    answers: bool,
    served: bool,
) -> told.Kernel:
    status = status or KernelStatus(kernel_id)
    holdings = () if answer is None else answer.holdings
    move = None if answer is None else answer.move
    checkpoint = status.last_checkpoint
    return told.Kernel(
        kernel_id=kernel_id,
        state=status.state,
        served=served or answer is not None,
        routed=status.router_pid is not None,
        cwd=status.cwd,
        began=round(status.began),
        rested=round(status.rested),
        state_bytes=status.state_bytes,
        rest="" if answer is None else answer.rest,
        answers=answers,
        executor="" if answer is None else answer.executor,
        execution_count=status.execution_count,
        default_gpus=0 if answer is None else answer.default_gpus,
        default_vram_gb=0.0 if answer is None else answer.default_vram_gb,
        scheduler_trouble=answer.scheduler if answer is not None and doubts_scheduler else "",
        checkpoint_trouble="" if checkpoint is None else checkpoint.why,
        replicas=_replicas(status),
        holdings=[
            told.Holding(
                one.lease,
                one.host,
                list(one.gpus),
                one.cell,
                round(one.since + clock, 3),
                one.part,
                one.part_gb,
            )
            for one in holdings
        ],
        move=None if move is None else told.Move(move.host, move.trouble),
    )


def _replicas(status: KernelStatus) -> list[told.Replica]:
    newest = max((one.raft.commit for one in status.replicas if one.raft is not None), default=0)
    return [
        told.Replica(
            one.replica,
            one.host,
            one.role,
            "" if one.raft is None else one.raft.role,
            0 if one.raft is None else max(0, newest - one.raft.applied),
            one.state_bytes,
            [told.Pin(pin.name, pin.reason) for pin in one.pinned[: told.PINS_MAX]],
            one.last_death,
            one.kernel_pid or 0,
        )
        for one in status.replicas
    ]


def _execution(kernel_id: str, one: TellsExecution, clock: float) -> told.Execution:
    def at(time: float | None) -> float | None:
        return None if time is None else round(time + clock, 3)

    return told.Execution(
        kernel_id=kernel_id,
        msg_id=one.msg_id,
        cell_id=one.cell_id,
        code_digest=one.code_digest,
        state=one.state,
        safety=one.safety,
        status=one.status,
        ename=one.ename,
        count=one.count,
        replica=one.replica,
        host=one.host,
        gpus=list(one.gpus),
        part=one.part,
        part_gb=one.part_gb,
        wanted=one.wanted,
        model=one.model,
        position=one.position,
        estimate_s=one.estimate_s,
        awaits=one.awaits,
        told_at=at(one.told_at),
        paused=one.paused,
        trouble=one.trouble,
        unaudited=list(one.unaudited),
        accepted_at=at(one.accepted_at),
        wished_at=at(one.wished_at),
        granted_at=at(one.granted_at),
        election_at=at(one.election_at),
        sent_at=at(one.sent_at),
        began_at=at(one.began_at),
        ended_at=at(one.ended_at),
        durable_at=at(one.durable_at),
        capture_s=one.capture_s,
        bind_s=one.bind_s,
        cost=one.cost,
        currency=one.currency,
    )
