"""How far each execution has come, for front ends that ask; it watches what is decided and changes nothing.

Pure. Laws: an execution is durable only when a commit of the process that ran it says so, or the checkpoint
that the kernel goes on from; one whose process died before, or that the checkpoint lacks, is lost for good,
whatever is committed after; no more than EXECUTIONS_MAX are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.leasing.request import number_of
from replkernel.leasing.wire import GrantedLease
from replkernel.protocol.agent_to_router import AgentWelcome, Committed, WentBack
from replkernel.protocol.progress import TOLD_MAX, Execution, Holding, Moving, ProgressAnswer
from replkernel.protocol.router_to_agent import ElectExecutor
from replkernel.records import ReplicaId
from replkernel.router.core import events
from replkernel.router.core.contents import ExecuteOptions, read
from replkernel.router.core.events import Effect, Event
from replkernel.router.core.leases import DENIED, NO_SCHEDULER
from replkernel.router.core.parts import Parts
from replkernel.router.core.wire import DELIMITER, parent_of
from replkernel.router.core.wishes import Wish

EXECUTIONS_MAX = 500
CELL_ID_CHARS_MAX = 2000
"""VS Code names a cell by an address with the path of its notebook in it."""
TROUBLE_MAX = 500
CURRENCY_CHARS_MAX = 8
"""No more characters than this are told of why GPUs were refused."""


class _CellMetadata(msgspec.Struct, frozen=True):
    cellId: str = ""  # noqa: N815 (JupyterLab's name for it)


class _Reply(msgspec.Struct, frozen=True):
    status: str = "ok"
    ename: str = ""
    evalue: str = ""
    execution_count: int | None = None


class _Said(msgspec.Struct, frozen=True):
    replica: str = ""
    host: str = ""
    gpus: tuple[str, ...] = ()
    bind_s: float | None = None
    cost: float | None = None
    currency: str = ""


class _ReplyMetadata(msgspec.Struct, frozen=True):
    replkernel: _Said = _Said()


_cells = msgspec.json.Decoder(_CellMetadata)
_replies = msgspec.json.Decoder(_Reply)
_metadata = msgspec.json.Decoder(_ReplyMetadata)


class Progress:
    """The last executions of cells, oldest first."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: OrderedDict[str, Execution] = OrderedDict()
        self._seqs: dict[str, int] = {}
        """The number under which an execution was sent, for those that are not durable yet."""
        self._safe: dict[str, int] = {}
        """That of those that are."""
        self._on_its_way = 0
        """Up to which number changes had reached an agent that greeted us, but not the log."""
        self._committed: dict[ReplicaId, int] = {}
        """Up to which number the process of each replica has committed."""
        self._wish: Wish | None = None
        self._election: tuple[int, float] | None = None
        """The number of the execution for which replicas were asked last, and when."""
        self._version = 0
        self._by_effect: dict[type, Callable[[Any, float], None]] = {
            events.Accepted: self._accepted,
            events.Given: self._given,
            events.TakenBack: self._taken_back,
            events.PassToIopub: self._published,
            events.PassToClient: self._passed,
            events.Answer: self._answered,
            events.ToAgent: self._told_agent,
        }

    def saw(self, event: Event, effects: list[Effect], now: float) -> None:
        """Take note of what happened and what is done about it."""
        if isinstance(event, events.AgentSaid):
            self._agent_said(event.message, now)
        elif isinstance(event, events.Resumed):
            self._resumed(event)
        for effect in effects:
            take = self._by_effect.get(type(effect))
            if take is not None:
                take(effect, now)
        if self._parts.leases.wish is not None or self._wish is not None:
            self._look_at_wish(now)

    # -- steps ------------------------------------------------------------------------------------------

    def _accepted(self, effect: events.Accepted, now: float) -> None:
        cell_id = _cell_id(effect.request.frames[4])
        if not cell_id:
            return
        msg_id = effect.request.header.msg_id
        digest = read(ExecuteOptions, effect.request.content).code_digest
        self._known[msg_id] = Execution(
            msg_id=msg_id, cell_id=cell_id, code_digest=digest, accepted_at=now
        )  # fmt: skip
        self._touch(msg_id)
        while len(self._known) > EXECUTIONS_MAX:
            over = [name for name, known in self._known.items() if known.state == "done"]
            settled = (name for name in over if self._known[name].safety in ("durable", "nothing"))
            gone = next(settled, None) or next(iter(over), None) or next(iter(self._known))
            del self._known[gone]
            self._seqs.pop(gone, None)
            self._safe.pop(gone, None)

    def _resumed(self, event: events.Resumed) -> None:
        """Take over an execution of the router before this one; its times are nobody's any more."""
        cell_id = _cell_id(event.request.frames[4])
        if not cell_id:
            return
        msg_id = event.request.header.msg_id
        gpus = () if event.lease is None else event.lease.gpus
        self._known[msg_id] = Execution(
            msg_id=msg_id, cell_id=cell_id,
            code_digest=read(ExecuteOptions, event.request.content).code_digest,
            state="running" if event.shown else "moving",
            replica=event.replica, host=self._host_of(event.replica), gpus=gpus, wanted=len(gpus),
        )  # fmt: skip
        self._has(self._known[msg_id], event.lease)
        self._number(msg_id, event.seq)
        self._touch(msg_id)

    def _given(self, effect: events.Given, now: float) -> None:
        known = self._known.get(effect.msg_id)
        if known is None:
            return
        if known.began_at is not None and self._seqs.get(effect.msg_id) == effect.seq:
            known.gpus = ()  # One that is paused has none.
            self._has(known, effect.lease)
            self._touch(effect.msg_id)
            return
        known.state, known.sent_at = "moving", now
        if self._election is not None and self._election[0] == effect.seq:
            known.election_at = self._election[1]
        known.replica, known.host = effect.replica, self._host_of(effect.replica)
        known.position = known.estimate_s = None
        self._has(known, effect.lease)
        self._number(effect.msg_id, effect.seq)
        self._touch(effect.msg_id)

    def _told_agent(self, effect: events.ToAgent, now: float) -> None:
        message = effect.message
        if not isinstance(message, ElectExecutor):
            return
        if self._election is None or self._election[0] != message.seq:
            self._election = (message.seq, now)

    def _taken_back(self, effect: events.TakenBack, now: float) -> None:
        known = self._known.get(effect.msg_id)
        if known is not None:
            known.state, known.election_at, known.sent_at, known.began_at = "queued", None, None, None
            known.safety = "pending"
            known.replica = known.host = ""
            self._seqs.pop(effect.msg_id, None)
            self._safe.pop(effect.msg_id, None)
            self._touch(effect.msg_id)

    def _published(self, effect: events.PassToIopub, now: float) -> None:
        if effect.msg_type == "execute_input":
            known = self._known.get(effect.parent_id)
            if known is None:
                return
            if known.state != "done":
                known.state, known.began_at = "running", now
            elif known.began_at is None:
                known.began_at = known.ended_at  # Its reply came another way, and sooner.
            self._touch(effect.parent_id)

    def _passed(self, effect: events.PassToClient, now: float) -> None:
        if effect.msg_type == "execute_reply" and effect.parent_id in self._known:
            body = effect.frames[effect.frames.index(DELIMITER) :]
            self._over(effect.parent_id, body[5], body[4], now)

    def _answered(self, effect: events.Answer, now: float) -> None:
        if effect.msg_type == "execute_reply":
            self._over(parent_of(effect.parent), effect.content, effect.metadata, now)

    def _over(self, msg_id: str, content: bytes, metadata: bytes, now: float) -> None:
        known = self._known.get(msg_id)
        if known is None or known.state == "done":
            return
        reply, said = _read(_replies, content, _Reply()), _read(_metadata, metadata, _ReplyMetadata())
        known.state, known.ended_at = "done", now
        known.status, known.ename = reply.status, reply.ename[:200]
        known.count = reply.execution_count if reply.execution_count is not None else known.count
        known.position, known.estimate_s, known.awaits = None, None, ""
        known.trouble = reply.evalue[:TROUBLE_MAX] if reply.ename in (DENIED, NO_SCHEDULER) else ""
        if said.replkernel.replica:
            known.replica, known.host = said.replkernel.replica, said.replkernel.host or known.host
            known.gpus = said.replkernel.gpus or known.gpus
            known.bind_s = said.replkernel.bind_s
            known.cost, known.currency = said.replkernel.cost, said.replkernel.currency[:CURRENCY_CHARS_MAX]
        seq = self._seqs.get(msg_id)
        if seq is None:
            known.safety = "nothing" if known.safety == "pending" else known.safety
        elif seq <= self._committed.get(ReplicaId(known.replica), 0):
            self._durable(known, now)
        self._touch(msg_id)

    # -- GPUs -------------------------------------------------------------------------------------------

    def _look_at_wish(self, now: float) -> None:
        leases, before = self._parts.leases, self._wish
        wish = leases.wish
        if before is not None and (wish is None or wish.request != before.request):
            known = self._known.get(before.cell)
            held = leases.held_leases.of_cell(before.cell)
            if known is not None and held is not None and known.granted_at is None:
                known.granted_at = now
                self._has(known, held.lease)
                self._waits_no_more(known)
            elif known is not None and known.began_at is not None and (held is None or known.paused):
                self._waits_no_more(known)
        self._wish = wish
        if wish is None:
            return
        known = self._known.get(wish.cell)
        if known is None or known.state not in ("queued", "waiting", "running"):
            return
        place = wish.place
        shown = (None, None, "") if place is None else (place.position, place.estimate_s, place.why)
        trouble = "" if leases.scheduler.up else leases.scheduler.why_down
        now_is = (known.state, known.position, known.estimate_s, known.awaits, known.trouble)
        if now_is != ("waiting", *shown, trouble):
            known.state, known.trouble, known.told_at = "waiting", trouble, now
            known.position, known.estimate_s, known.awaits = shown
            known.wanted, known.model = number_of(wish.wanted), wish.wanted.model
            known.paused = wish.paused is not None
            known.wished_at = known.wished_at if known.wished_at is not None else now
            self._touch(wish.cell)

    def _has(self, known: Execution, lease: GrantedLease | None) -> None:
        """Take note of the GPUs that an execution has, if it has any."""
        if lease is not None:
            known.gpus, known.part, known.part_gb = lease.gpus, lease.part, lease.vram_gb

    def _waits_no_more(self, known: Execution) -> None:
        """Have an execution that waited be where it was: in the queue, or running."""
        if known.state == "waiting":
            known.state = "queued" if known.began_at is None else "running"
        known.position = known.estimate_s = None
        known.awaits, known.trouble, known.paused = "", "", False
        self._touch(known.msg_id)

    # -- durability -------------------------------------------------------------------------------------

    def _agent_said(self, message: object, now: float) -> None:
        if isinstance(message, Committed):
            self._commit(message, now)
        elif isinstance(message, AgentWelcome):
            self._on_its_way = max(self._on_its_way, message.pending_seq)
        elif isinstance(message, WentBack):
            self._dropped(message.point, message.seq)

    def _commit(self, message: Committed, now: float) -> None:
        replica, seq, unaudited = message.replica, message.seq, message.unaudited
        safe = 0 if unaudited else seq
        self._committed[replica] = max(self._committed.get(replica, 0), safe)
        for msg_id, number in list(self._seqs.items()):
            known = self._known[msg_id]
            if known.replica != replica or number > seq:
                continue
            if number == seq and message.capture_s:
                known.capture_s = message.capture_s
            if number <= safe:
                if known.state == "done":
                    self._durable(known, now)
                    self._touch(msg_id)
            elif known.unaudited != unaudited:
                known.unaudited = unaudited
                self._touch(msg_id)

    def lost(self, replica: ReplicaId, kept: int | None) -> None:
        """Take note of a process' end: what neither it nor its keeper (up to `kept`) has told is lost.

        None: the keeper is another one than saw it end.
        """
        kept = max(self._on_its_way if kept is None else kept, self._parts.succession.committed)
        self._committed.pop(replica, None)
        for msg_id, number in list(self._seqs.items()):
            if self._known[msg_id].replica == replica and number > kept:
                self._is_lost(msg_id)

    def brought_back(self, seq: int, now: float) -> None:
        """Take note that the kernel goes on from a checkpoint as of an execution, with other processes."""
        self._committed.clear()
        self._on_its_way = 0
        for msg_id, number in [*self._seqs.items(), *self._safe.items()]:
            known = self._known[msg_id]
            if number > seq:
                self._is_lost(msg_id)
            elif known.safety == "pending" and known.state == "done":
                self._durable(known, now)
                self._touch(msg_id)

    def _dropped(self, point: int, before: int) -> None:
        """Take note that the executions between these two count for nothing any more."""
        for msg_id, number in list(self._seqs.items()):
            if point < number < before:
                self._is_lost(msg_id)

    def _is_lost(self, msg_id: str) -> None:
        self._known[msg_id].safety = "lost"
        self._seqs.pop(msg_id, None)
        self._safe.pop(msg_id, None)
        self._touch(msg_id)

    def _durable(self, known: Execution, now: float) -> None:
        known.safety, known.durable_at, known.unaudited = "durable", now, ()
        self._safe[known.msg_id] = self._seqs.pop(known.msg_id)

    # -- telling ----------------------------------------------------------------------------------------

    def tell(self, since: int, rest: str, move: Moving | None, now: float) -> ProgressAnswer:
        """Return what has changed since a version, the oldest change first."""
        leases = self._parts.leases
        changed = sorted(
            (known for known in self._known.values() if known.version > since), key=lambda one: one.version
        )[:TOLD_MAX]
        version = changed[-1].version if changed else self._version
        held_leases = tuple(
            Holding(
                held.lease.lease,
                held.lease.host,
                held.lease.gpus,
                held.cell,
                held.since,
                held.lease.part,
                held.lease.vram_gb,
            )
            for held in leases.held_leases.by_id.values()
        )
        return ProgressAnswer(
            now=now,
            version=version,
            executions=tuple(changed),
            kept=tuple(self._known),
            holdings=held_leases,
            default_gpus=number_of(leases.scheduler.default),
            default_vram_gb=0.0 if leases.scheduler.default is None else leases.scheduler.default.vram_gb,
            move=move,
            rest=rest,
            executor=self._parts.placement.executor or "",
            scheduler="" if leases.scheduler.up else leases.scheduler.why_down,
        )

    def check_invariants(self) -> None:
        """Assert the bounds, and that what is durable waits for nothing."""
        assert len(self._known) <= EXECUTIONS_MAX
        assert self._seqs.keys() <= self._known.keys()
        assert all(self._known[name].safety == "pending" for name in self._seqs)
        assert all(self._known[name].safety == "durable" for name in self._safe)

    def _touch(self, msg_id: str) -> None:
        self._version += 1
        self._known[msg_id].version = self._version

    def _number(self, msg_id: str, seq: int) -> None:
        if seq:
            self._seqs[msg_id] = seq
            self._safe.pop(msg_id, None)
            self._known[msg_id].safety = "pending"

    def _host_of(self, replica: ReplicaId) -> str:
        found = self._parts.fleet.replicas.get(replica)
        return "" if found is None else found.host


def _cell_id(metadata: bytes) -> str:
    found: _CellMetadata = _read(_cells, metadata, _CellMetadata())
    return found.cellId[:CELL_ID_CHARS_MAX]


def _read(decoder: msgspec.json.Decoder[Any], data: bytes, otherwise: object) -> Any:
    try:
        return decoder.decode(data)
    except UNREADABLE:
        return otherwise
