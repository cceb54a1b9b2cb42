"""The keeper's core: this host's part of one replica, as facts in and effects out. Pure.

It owns what its replica's process is told and what is committed for it; it knows no clock, socket or disk.
Law: the process is told of each execution once and in order, and of durability only what the log holds.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from replkernel.agent.core import effects as want
from replkernel.agent.core import events as fact
from replkernel.agent.core.commit_trouble import CommitTroubles
from replkernel.agent.core.effects import Effect, Propose, SaveReplica, ToProcess, ToRouter
from replkernel.agent.core.group_member import GroupMember
from replkernel.agent.core.group_pace import GroupPace
from replkernel.agent.core.held_back import HeldBack
from replkernel.agent.core.outbox import Outbox
from replkernel.agent.core.process_life import YOUNG_DEATHS_MAX, Phase, ProcessLife
from replkernel.protocol.agent_to_process import (
    ApplyDelta,
    BegunAfresh,
    BlobsReady,
    DeltaCommitted,
    DurabilityTrouble,
    ExecutionRefused,
    FreeGpus,
    SettleState,
    StandStill,
)
from replkernel.protocol.agent_to_router import (
    Committed,
    CommitTrouble,
    Elected,
    InterruptSent,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaUnfaithful,
    RouteNotice,
    WentBack,
)
from replkernel.records import Delta, Fence, HostName, Mark, ReplicaId, Seq, holds_back
from replkernel.replication.election import ELECTION_LIMIT_S

DORMANT = "its process has ended until a cell runs"
"""Why a standby that nobody needs for now has no process."""

DROPPED = "the kernel went on from an earlier cell on another replica"
"""Why a process has to end that holds what the log has dropped."""

CAPTURES_MAX = 256
"""Of no more executions than this it is remembered how long their captures took."""

UNAUDITED_TOLD_MAX = 100
"""A router hears of no more variables than this that are left to an audit."""

_Handlers = dict[type, Callable[[Any, float], list[Effect]]]


class Keeper:
    """One replica on this host.

    `holds`: proposals may wait a moment, to be made together. `sticky`: so may deltas for a standby's
    process, which else takes the processor from the one whose commit is being told.
    """

    def __init__(
        self,
        replica: ReplicaId,
        host: HostName,
        raft_address: str,
        log_path: str = "",
        *,
        holds: bool = False,
        sticky: bool = False,
    ) -> None:
        self.replica = replica
        self.host = host
        self.log_path = log_path
        self.life = ProcessLife()
        self.outbox = Outbox(holds=holds)
        self.member = GroupMember(replica, raft_address)
        self.held = fact.StateTaken(Seq(0), 0, 0, 0)
        self._running: tuple[Seq, Fence] | None = None
        self._told = Mark(Seq(0))
        self._logged = Mark(Seq(0))
        self._whole_at: float | None = None
        """When the newest whole point came, None while that is not known."""
        self._holds = holds
        self._capture_s: dict[Seq, float] = {}
        self._held_back = HeldBack(sticky=sticky)
        self._adopted = 0
        self._unseen = ""
        """Why the process that an earlier agent left ended, when it was not there any more."""
        self._troubles = CommitTroubles()
        self._pace = GroupPace()
        self._election: tuple[Seq, float] | None = None
        self._handlers: _Handlers = {**self._of_process(), **self._of_log(), **self._of_others()}

    def _of_process(self) -> _Handlers:
        """Return what is done about the replica's coming, its process and what that says."""
        return {
            fact.ReplicaRequested: self._on_requested,
            fact.GroupNamed: self._on_group,
            fact.GroupOpened: self._on_group_opened,
            fact.GroupTrouble: self.member.troubled,
            fact.ReplicaRestored: self._on_restored,
            fact.RouterCame: lambda event, now: [
                *self.member.say_address(),
                *self.member.say_broken(),
                *self._introduce(),
            ],
            fact.ProcessForked: lambda event, now: self.life.forked(event.birth, event.pid, now),
            fact.BirthFailed: self._on_ended,
            fact.ProcessGreeted: self._on_greeted,
            fact.ProcessEnded: self._on_ended,
            fact.ExecutionClaimed: self._on_claimed,
            fact.DeltaArrived: self._on_delta,
            fact.StateTaken: self._on_taken,
            fact.BlobsWanted: lambda event, now: [want.FetchBlobs(event.request, event.blobs)],
            fact.BlobsFetched: lambda event, now: self._to_process(
                BlobsReady(event.request, event.missing, event.why)
            ),
        }

    def _of_log(self) -> _Handlers:
        """Return what is done about what is on its way to the log, and what the log says."""
        return {
            fact.UploadEnded: lambda event, now: self.outbox.upload_ended(
                Mark(event.seq, event.audit), event.why, now
            ),
            fact.UploadDelayed: lambda event, now: self.outbox.upload_delayed(
                Mark(event.seq, event.audit), event.why
            ),
            fact.ProposalFailed: lambda event, now: self.outbox.proposal_failed(event.key, event.why, now),
            fact.StateSent: self._on_state_sent,
            fact.ElectionAsked: self._on_election,
            fact.ClaimLogged: self._on_claim_logged,
            fact.DeltaLogged: self._on_delta_logged,
            fact.FellBack: self._on_fell_back,
            fact.FailureLogged: self._on_failure_logged,
            fact.TableRestored: self._on_table_restored,
            fact.EntryRefused: self._on_refused,
            fact.EntryKnown: self._on_known,
            fact.ExecutionOverruled: self._on_overruled,
            fact.MemberLogged: self._on_member,
            fact.MemberGone: lambda event, now: self.member.other_left(event),
            fact.ElectionLogged: self._on_elected,
        }

    def _of_others(self) -> _Handlers:
        """Return what is done about the majority, the router's wishes and the time."""
        return {
            fact.MajoritySeen: self._on_majority,
            fact.InterruptAsked: self._on_interrupt,
            fact.LeaseWanted: self._on_lease_wanted,
            fact.PauseWanted: self._on_pause_wanted,
            fact.SettleAsked: self._on_settle_asked,
            fact.DismissalAsked: self._on_dismissal_asked,
            fact.EndAsked: lambda event, now: self.life.end(event.reason, now),
            fact.TimeCame: self._on_time,
        }

    def handle(self, event: fact.Event, now: float) -> list[Effect]:
        """Take one event at time `now` (seconds, monotonic); return what is to be done, in order."""
        if self.life.phase is Phase.ENDED:
            return []
        made = self._handlers[type(event)](event, now)
        return made + self._report_trouble()

    def _on_interrupt(self, event: fact.InterruptAsked, now: float) -> list[Effect]:
        """Signal the process, unless it runs a later execution by now, for which that was not meant."""
        void = not self.life.is_live or (event.seq and self.pending()[0] > event.seq)
        number = signal.SIGKILL if event.ends else signal.SIGINT
        sent: list[Effect] = [] if void else [want.SignalProcess(int(number))]
        return [*sent, ToRouter(InterruptSent(self.replica))]

    def _on_lease_wanted(self, event: fact.LeaseWanted, now: float) -> list[Effect]:
        """Have the process free a lease's GPUs; without one the router asks again, or hears of its end."""
        return [ToProcess(FreeGpus(event.lease))] if self.life.is_live else []

    def _on_pause_wanted(self, event: fact.PauseWanted, now: float) -> list[Effect]:
        """Have the process's cell stand still; without one the router hears of its end."""
        if not self.life.is_live:
            return []
        return [ToProcess(StandStill(event.lease, event.within_s, event.gpu_model))]

    def _on_settle_asked(self, event: fact.SettleAsked, now: float) -> list[Effect]:
        """Have the process propose what its user wants kept seldom as well."""
        return [ToProcess(SettleState())] if self.life.is_live else []

    def _on_dismissal_asked(self, event: fact.DismissalAsked, now: float) -> list[Effect]:
        """End a standby's process until it is wanted again, or have it forked anew."""
        if event.recalled:
            return self.life.recall(now) or self._introduce()
        dismissed = [] if self.running else self.life.dismiss(DORMANT, now)
        return dismissed or self._introduce()  # The router hears that the process is still there.

    def deadline(self) -> float | None:
        """Return when `TimeCame` must be told, or None: never when all is over."""
        if self.life.phase is Phase.ENDED:
            return None
        times = (
            self.life.deadline(),
            self.outbox.deadline(),
            self._pace.deadline(),
            self.member.deadline(),
            self._held_back.due_at,
            self._troubles.deadline(),
            None if self._election is None else self._election[1],
        )
        return min([time for time in times if time is not None], default=None)

    @property
    def running(self) -> bool:
        """Tell whether its process runs an execution."""
        return self._running is not None

    def pending(self) -> tuple[Seq, Fence]:
        """Return the last execution that runs or is on its way into the log, and the highest fence."""
        return max([self.outbox.newest(), self._running or (Seq(0), Fence(0))])

    def check_invariants(self) -> None:
        """Raise AssertionError when a law of the keeper is broken."""
        self.life.check_invariants()
        self.outbox.check_invariants()
        assert not (self.outbox.open and not self.member.peers), "the group is open without members"
        self._held_back.check_invariants()

    # -- birth and greeting ----------------------------------------------------------------------------

    def _on_requested(self, event: fact.ReplicaRequested, now: float) -> list[Effect]:
        self.member.requested(joining=event.joining)
        prepared = ToRouter(ReplicaPrepared(self.replica, self.member.raft_address))
        return [*self.life.begin(now), prepared]

    def _on_group(self, event: fact.GroupNamed, now: float) -> list[Effect]:
        if self.member.peers:
            return []
        early = self.member.joining and not event.joining
        self.member.named(event)
        return [SaveReplica(), self.member.open(), *(self._introduce() if early else [])]

    def _on_group_opened(self, event: fact.GroupOpened, now: float) -> list[Effect]:
        self.member.opened()
        return self.outbox.group_opened(self.member.raft_address, now)

    def _on_restored(self, event: fact.ReplicaRestored, now: float) -> list[Effect]:
        life = self.life.adopt(event.alive, now)
        self._adopted = self.life.birth if event.alive else 0
        self._unseen = event.why
        if not self.member.peers:
            return life
        return [self.member.open(), *life]

    def restore(self, group: fact.GroupNamed, birth: int, pid: int, *, dormant: bool = False) -> None:
        """Take over what an earlier agent wrote down; `ReplicaRestored` follows."""
        self.member.named(group)
        self.life.birth, self.life.pid = birth, pid
        self.life.phase = Phase.DORMANT if dormant else self.life.phase

    def _introduce(self) -> list[Effect]:
        hello = self.life.hello
        if self.life.is_dormant:
            return [ToRouter(ReplicaLost(self.replica, DORMANT, returning=True, dormant=True))]
        if not self.life.is_live or hello is None or self.member.joining:
            return []
        applied = max(hello.applied, self._told.seq)
        made: list[Effect] = [
            ToRouter(
                ReplicaReady(
                    self.replica,
                    self.host,
                    hello.pid,
                    hello.endpoints,
                    applied,
                    hello.kernel_info,
                    self._unseen,
                )
            )
        ]
        if self._troubles.told is not None:
            made.append(ToRouter(CommitTrouble(self.replica, *self._troubles.told)))
        if self.held.unfaithful:
            made += self._say_unfaithful()
        return made

    def _on_greeted(self, event: fact.ProcessGreeted, now: float) -> list[Effect]:
        if not self.life.greeted(event.birth, event.hello, now):
            return []
        made: list[Effect] = []
        for delta in event.hello.unacknowledged:
            made += self._on_delta(fact.DeltaArrived(delta), now)
        self._told = Mark(event.hello.applied, event.hello.applied_audit)
        return [SaveReplica(), *self._introduce(), want.SendState(*self._told), *made]

    def _on_state_sent(self, event: fact.StateSent, now: float) -> list[Effect]:
        self._told = max(self._told, Mark(event.seq, event.audit))
        return []

    def _on_taken(self, event: fact.StateTaken, now: float) -> list[Effect]:
        before, self.held = self.held, event
        return self._say_unfaithful() if event.unfaithful != before.unfaithful else []

    def _say_unfaithful(self) -> list[Effect]:
        """Tell routers what the process rebuilt otherwise than it was captured."""
        return [ToRouter(ReplicaUnfaithful(self.replica, self.held.unfaithful))]

    # -- death -----------------------------------------------------------------------------------------

    def _on_ended(self, event: fact.ProcessEnded | fact.BirthFailed, now: float) -> list[Effect]:
        following = self.life.lost(event.birth, now)
        if following is None or self.life.phase is Phase.ENDED:
            return following or []
        self._told, self._unseen = Mark(Seq(0)), ""
        self._held_back.take()
        self.held = fact.StateTaken(Seq(0), 0, 0, 0)
        returning = self.life.phase is not Phase.GIVEN_UP
        at = event.at if isinstance(event, fact.ProcessEnded) else 0.0
        ago_s = max(0.0, now - at) if at else 0.0
        kept, newest = self.outbox.newest_whole(), self.outbox.newest()[0]
        dormant = self.life.phase is Phase.DORMANT
        why = DORMANT if dormant else event.why
        lost = ReplicaLost(self.replica, why, returning, ago_s, kept, newest, dormant)
        made: list[Effect] = [ToRouter(lost)]
        if not returning:
            made.append(ToRouter(RouteNotice(self._given_up(event.why), "error")))
        return [*made, *self._fail_running(event.why, now), *following]

    def _given_up(self, why: str) -> str:
        return (
            f"Replica {self.replica} on host {self.host} is not started again, because its process died "
            f"{YOUNG_DEATHS_MAX} times in a row (the last time: {why}); its log is {self.log_path}."
        )

    def _fail_running(self, why: str, now: float) -> list[Effect]:
        if self._running is None:
            return []
        (seq, fence), self._running = self._running, None
        return self.outbox.add_failure(seq, fence, why, now)

    # -- what the process does ---------------------------------------------------------------------------

    def _on_claimed(self, event: fact.ExecutionClaimed, now: float) -> list[Effect]:
        abandoned = self._fail_before(event.seq, now)
        self._running = (event.seq, event.fence)
        claimed = self.outbox.add_claim(event.seq, event.fence, self.life.birth, now, afresh=event.afresh)
        # A held claim quickens all members together, once it is in the log.
        return [*([] if self._holds else self._pace.quicken()), *abandoned, *claimed]

    def _fail_before(self, seq: Seq, now: float) -> list[Effect]:
        """Give up an execution before `seq` that runs as far as is known: its process has gone on."""
        if self._running is None or self._running[0] >= seq:
            return []
        return self._fail_running("its process went on without a result", now)

    def _on_delta(self, event: fact.DeltaArrived, now: float) -> list[Effect]:
        """Take what an execution changed; a short one was not claimed before."""
        delta = event.delta
        if event.capture_s and not delta.audit and len(self._capture_s) < CAPTURES_MAX:
            self._capture_s[delta.seq] = event.capture_s
        abandoned = self._fail_before(delta.seq, now)
        self._not_running(delta.seq)
        if delta.mark <= self._logged:
            return [*abandoned, *self._to_process(_committed(delta))]
        if delta.replica != self.replica:
            why = f"it names replica {delta.replica}, not {self.replica}"
            return [*abandoned, ToProcess(ExecutionRefused(delta.seq, why))]
        return [*abandoned, *self.outbox.add_delta(delta, self.life.birth, now)]

    def _not_running(self, seq: Seq) -> None:
        """Note that no execution up to `seq` runs any more."""
        if self._running is not None and self._running[0] <= seq:
            self._running = None

    def _on_election(self, event: fact.ElectionAsked, now: float) -> list[Effect]:
        self._election = (event.seq, now + ELECTION_LIMIT_S)
        vote = want.VoteProposal(event.seq, event.fence, self.life.is_live)
        return [*self._give_held_back(), Propose(vote)]

    def _on_elected(self, event: fact.ElectionLogged, now: float) -> list[Effect]:
        self._election = None
        return [ToRouter(Elected(event.seq, event.winner))]

    # -- what the log says ---------------------------------------------------------------------------------

    def _on_claim_logged(self, event: fact.ClaimLogged, now: float) -> list[Effect]:
        if event.replica != self.replica:
            return self._pace.quicken()
        settled = self.outbox.claim_settled(event.seq, now)
        if self._running is None and event.seq > self._logged.seq and not self.outbox.holds(event.seq):
            settled += self._take_up_claim(event, now)
        return [*self._pace.quicken(), *settled]

    def _take_up_claim(self, event: fact.ClaimLogged, now: float) -> list[Effect]:
        """Answer for an execution that an earlier agent saw start: it still runs, or it died unseen."""
        self._running = (event.seq, event.fence)
        if self._adopted == self.life.birth and self.life.pid:
            return []
        return self._fail_running(f"{self._unseen or 'its process ended'} while its host agent was away", now)

    def _on_table_restored(self, event: fact.TableRestored, now: float) -> list[Effect]:
        self._logged = max(self._logged, Mark(event.seq, event.audit))
        self._whole_at = None
        behind = self.life.is_live and event.whole > self._told
        return [want.SendState(*self._told)] if behind else []

    def _on_delta_logged(self, event: fact.DeltaLogged, now: float) -> list[Effect]:
        delta = event.delta
        self._pace.calm_down(now)
        self._logged = max(self._logged, delta.mark)
        self._whole_at = self._whole_at if event.step is None else now
        if delta.replica != self.replica:
            self._pace.ran_at(delta.replica, now)
            return self._hand_over(event.step, now)
        self._pace.ran_here()
        self._not_running(delta.seq)
        capture_s = self._capture_s.get(delta.seq, 0.0)
        self._capture_s = {seq: took for seq, took in self._capture_s.items() if seq > delta.seq}
        done, following = self.outbox.settled(delta.mark, now)
        made: list[Effect] = []
        if any(waiting.birth == self.life.birth for waiting in done):
            made += self._give_held_back()
            made += [] if event.more else self._to_process(_committed(delta))
            self._told = max(self._told, delta.mark)
        else:
            made += self._hand_over(event.step, now)
        if not event.more:
            said = Committed(
                self.replica,
                delta.seq,
                delta.execution_count,
                event.state_bytes,
                event.pins,
                delta.audit,
                tuple(left.name for left in delta.unaudited if holds_back(left))[:UNAUDITED_TOLD_MAX],
                capture_s,
            )
            made.append(ToRouter(said))
        return [*made, *following]

    def _hand_over(self, step: Delta | None, now: float) -> list[Effect]:
        """Let the process have what another's made whole: at once, or with what comes right after it.

        What is not whole is not handed over: should its author die, it will never have been.
        """
        if step is None or step.mark <= self._told or not self.life.is_live:
            return []
        return [] if self._held_back.add(step, now) else self._give_held_back()

    def _give_held_back(self) -> list[Effect]:
        """Hand over what was held back, but for what the process has got in another way."""
        made: list[Effect] = []
        for delta in self._held_back.take():
            if delta.mark > self._told:
                self._told = delta.mark
                made += self._to_process(ApplyDelta(delta))
        return made

    def _on_fell_back(self, event: fact.FellBack, now: float) -> list[Effect]:
        """Have the process go on that waits for it, and end the one that holds what was dropped."""
        made = self.outbox.overtaken(event.seq, now)
        if self._told > event.mark:
            made += self._to_process(ExecutionRefused(self._told.seq, DROPPED))
        if event.replica != self.replica:
            return made
        ago_s = None if self._whole_at is None else now - self._whole_at
        begun = BegunAfresh(event.seq, event.execution_count, event.executor, event.reached, ago_s)
        told = ToRouter(WentBack(self.replica, event.seq, event.mark.seq))
        return [*made, *self._give_held_back(), *self._to_process(begun), told]

    def _on_failure_logged(self, event: fact.FailureLogged, now: float) -> list[Effect]:
        self._pace.calm_down(now)
        if event.replica != self.replica:
            return []
        self._not_running(event.seq)
        return self.outbox.settled(Mark(event.seq), now)[1]

    def _on_refused(self, event: fact.EntryRefused, now: float) -> list[Effect]:
        waiting = self.outbox.refused(event.key)
        following = self.outbox.tick(now)
        if waiting is None or not isinstance(waiting.proposal, want.ClaimProposal | want.DeltaProposal):
            return following
        if self._running is not None and self._running[0] == waiting.seq:
            self._running = None
        mine = waiting.birth == self.life.birth
        told = self._to_process(ExecutionRefused(waiting.seq, event.why)) if mine else []
        return [*told, *following]

    def _on_known(self, event: fact.EntryKnown, now: float) -> list[Effect]:
        """Settle what the log has had, and told before this could hear it: in a snapshot, or as it opened."""
        waiting = self.outbox.find(event.key)
        if waiting is None:
            return []
        if event.dropped:
            return self._on_refused(fact.EntryRefused(event.key, DROPPED), now)
        match waiting.proposal:
            case want.DeltaProposal(delta):
                return self._on_delta_logged(fact.DeltaLogged(delta, event.state_bytes, event.pins), now)
            case want.FailureProposal():
                return self._on_failure_logged(fact.FailureLogged(waiting.seq, self.replica), now)
            case want.ClaimProposal():
                return self.outbox.claim_settled(waiting.seq, now)
            case want.JoinProposal():
                return self._on_member(fact.MemberLogged(self.replica), now)

    def _on_overruled(self, event: fact.ExecutionOverruled, now: float) -> list[Effect]:
        if event.replica != self.replica:
            return []
        if self._running is not None and self._running[0] == event.seq:
            self._running = None
        told = self._to_process(ExecutionRefused(event.seq, event.why))
        return [*told, *self.outbox.withdraw(event.seq, now)]

    def _on_member(self, event: fact.MemberLogged, now: float) -> list[Effect]:
        if event.replica != self.replica:
            return self.member.other_joined(event)
        self.outbox.joined()
        return [SaveReplica(), *self._introduce()] if self.member.joined() else []

    # -- time, trouble ---------------------------------------------------------------------------------------

    def _on_time(self, event: fact.TimeCame, now: float) -> list[Effect]:
        made = [*self.life.tick(now), *self.outbox.tick(now)]
        if self._held_back.due_at is not None and self._held_back.due_at <= now:
            made += self._give_held_back()
        made += self._pace.tick(self.member.peers, now)
        self._troubles.tick(now)
        made += self.member.tick(now)
        if self._election is not None and self._election[1] <= now:
            made.append(ToRouter(Elected(self._election[0], None)))
            self._election = None
        return made

    def _to_process(self, message: Any) -> list[Effect]:
        return [ToProcess(message)] if self.life.is_live else []

    def _on_majority(self, event: fact.MajoritySeen, now: float) -> list[Effect]:
        self._troubles.majority_seen(now, seen=event.seen)
        return []

    def _report_trouble(self) -> list[Effect]:
        if self.life.phase in (Phase.ENDING, Phase.ENDED):
            return []  # the members of a kernel that ends close one by one: no majority is left to the last
        news = self._troubles.news(self.outbox.trouble(), self.pending()[0])
        if news is None:
            return []
        return [ToRouter(CommitTrouble(self.replica, *news)), *self._to_process(DurabilityTrouble(news[1]))]


def _committed(delta: Delta) -> DeltaCommitted:
    """Return what a process is told of its own delta that the log holds."""
    return DeltaCommitted(delta.seq, delta.audit, not delta.whole)
