"""Writes what a keeper does as text: one line an event, one indented line for each effect."""

from __future__ import annotations

from replkernel.agent.core import effects as want
from replkernel.agent.core import events as fact
from replkernel.agent.core.effects import Effect
from replkernel.agent.core.keeper import Keeper
from replkernel.protocol.agent_to_process import (
    ApplyDelta,
    BegunAfresh,
    BlobsReady,
    DeltaCommitted,
    DurabilityTrouble,
    ExecutionRefused,
    SettleState,
    StopProcess,
)
from replkernel.protocol.agent_to_router import (
    Committed,
    CommitTrouble,
    Elected,
    InterruptSent,
    MemberBroken,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaUnfaithful,
    RouteNotice,
    WentBack,
)
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.process_to_agent import KernelHello
from replkernel.records import (
    BlobRef,
    ChunkRef,
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    HostName,
    KernelId,
    Payload,
    ReplicaId,
    Seq,
    Unaudited,
)

PEERS = {ReplicaId("r1"): "a:1", ReplicaId("r2"): "a:2", ReplicaId("r3"): "a:3"}


def delta(seq: int, *, replica: str = "r1", blobs: int = 0, audit: int = 0, owing: bool = False) -> Delta:
    """Return a delta that sets `x`, with so many blobs; `owing` leaves `big` to an audit."""
    refs = tuple(BlobRef(1, (ChunkRef(Digest(f"{seq:02}{n:062}"), 1),)) for n in range(blobs))
    component = ComponentRecord(
        ComponentId("x"), ("x",), Seq(seq), Payload(head=b"h", buffers=refs), Digest("0" * 64), 1
    )
    owed = (Unaudited("big", 0, ReplicaId(replica)),) if owing else ()
    return Delta(Seq(seq), Fence(seq), ReplicaId(replica), seq, (component,), audit=audit, unaudited=owed)


def logged(made: Delta, *, more: bool = False) -> fact.DeltaLogged:
    """Return that the log holds a delta, which is a step of its own when the state is whole with it."""
    return fact.DeltaLogged(made, 1, (), more, made if made.whole else None)


def hello(applied: int = 0, *unacknowledged: Delta, pid: int = 100, audit: int = 0) -> KernelHello:
    """Return a greeting."""
    return KernelHello(
        "token",
        KernelId("k"),
        ReplicaId("r1"),
        pid,
        Endpoints("s", "c", "i", "o"),
        Seq(applied),
        unacknowledged=unacknowledged,
        applied_audit=audit,
    )


def _mark(message: Committed | DeltaCommitted) -> str:
    owing = message.owing if isinstance(message, DeltaCommitted) else bool(message.unaudited)
    return f"{message.seq}{f'.{message.audit}' if message.audit else ''}{' owing' if owing else ''}"


def _message(message: object) -> str:
    match message:
        case ReplicaPrepared():
            return f"prepared {message.raft_address}"
        case ReplicaReady():
            return f"ready pid={message.pid} applied={message.applied}"
        case ReplicaLost(dormant=True):
            return "dormant"
        case ReplicaLost():
            return f"lost ({message.why}) {'returning' if message.returning else 'for good'}"
        case Committed():
            return f"committed {_mark(message)}"
        case ReplicaUnfaithful():
            return f"unfaithful {[pin.name for pin in message.pins]}"
        case CommitTrouble():
            return f"trouble {message.seq}: {message.why[:40] or 'over'}"
        case DurabilityTrouble():
            return f"durability: {message.why[:40] or 'fine'}"
        case ApplyDelta():
            return f"apply {message.delta.seq}"
        case DeltaCommitted():
            return f"delta committed {_mark(message)}"
        case BegunAfresh():
            ago = "?" if message.ago_s is None else f"{message.ago_s:g}"
            return f"begun afresh {message.seq} after cell {message.execution_count} ({ago} s)"
        case WentBack():
            return f"went back to {message.point} for {message.seq}"
        case ExecutionRefused():
            return f"refused {message.seq}: {message.why}"
        case BlobsReady():
            return f"blobs {message.request} missing={len(message.missing)}"
        case Elected():
            return f"elected {message.winner} for {message.seq}"
        case MemberBroken():
            return f"broken: {message.why}"
        case InterruptSent():
            return "interrupt sent"
        case RouteNotice():
            return f"notice [{message.severity}]"
        case SettleState():
            return "settle"
        case StopProcess():
            return f"stop ({message.reason})"
    raise AssertionError(message)


def line(effect: Effect) -> str:
    """Return one effect as text."""
    match effect:
        case want.ToProcess():
            return "process < " + _message(effect.message)
        case want.ToRouter():
            return "router  < " + _message(effect.message)
        case want.Propose():
            return f"propose {effect.proposal.key}"
        case want.UploadBlobs():
            return f"upload {effect.seq}{f'.{effect.audit}' if effect.audit else ''} ({len(effect.blobs)})"
        case want.FetchBlobs():
            return f"fetch {effect.request}"
        case want.ForkProcess():
            return f"fork {effect.birth}"
        case want.SignalProcess():
            return f"signal {int(effect.signum)}"
        case want.SendState():
            return f"send state after {effect.after}{f'.{effect.audit}' if effect.audit else ''}"
        case want.OpenGroup():
            return f"open group of {len(effect.peers)}"
        case want.SetPace():
            return "quicken" if effect.busy else "rest"
        case want.LeadElsewhere():
            return f"lead at {effect.address}"
        case want.SaveReplica():
            return "save"
        case want.ForgetReplica():
            return "forget"


class Story:
    """A keeper, told one event after the other; its invariants are checked after each."""

    def __init__(self) -> None:
        self.keeper = Keeper(ReplicaId("r1"), HostName("hosta"), "a:1", "/log")
        self.now = 0.0

    def tell(self, event: fact.Event) -> list[str]:
        """Return the effects as text, without the writing to disk, which is everywhere."""
        lines = [line(effect) for effect in self.keeper.handle(event, self.now)]
        self.keeper.check_invariants()
        return [text for text in lines if text != "save"]

    def at(self, now: float) -> Story:
        """Let time go by to `now`, without telling the keeper."""
        self.now = now
        return self

    def wait(self) -> list[str]:
        """Let time go by to the keeper's deadline, and tell it."""
        due = self.keeper.deadline()
        assert due is not None, "the keeper waits for nothing"
        assert due < float("inf")
        self.now = max(self.now, due)
        return self.tell(fact.TimeCame())

    def live(self) -> Story:
        """Bring the replica to where its process answers and its group is open."""
        self.tell(fact.ReplicaRequested())
        self.tell(fact.ProcessForked(1, 100))
        self.tell(fact.ProcessGreeted(1, hello()))
        self.tell(fact.GroupNamed(PEERS, "secret"))
        self.tell(fact.GroupOpened())
        self.tell(fact.MemberLogged(ReplicaId("r1")))
        return self
