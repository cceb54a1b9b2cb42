"""The kernel's replicas: prepared, started, ready, lost, put to rest; their hosts' agents are in `hosts.py`.

Pure. Law: a replica is used only while its four links are open and its output reaches us; the members of a
Raft group are told of each other only when all addresses are known, or the wait for a missing one is over;
and a kernel that had replicas gets others only from its checkpoint, once no host has any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from replkernel.protocol.agent_to_router import (
    AgentWelcome,
    CheckpointFound,
    MembersChanged,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
)
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.router_to_agent import (
    DismissReplica,
    HibernateKernel,
    PrepareReplica,
    StartReplica,
    StopReplica,
)
from replkernel.records import HostName, KernelId, ReplicaId
from replkernel.router.core.answers import Fault
from replkernel.router.core.events import ConnectReplica, DropReplica, Effect, Log, SpeakFor, ToAgent
from replkernel.router.core.hosts import Hosts
from replkernel.router.core.replica import Replica
from replkernel.router.core.revival import Revival
from replkernel.router.core.unavailable import NO_REPLICA_LIMIT_S, why_unavailable
from replkernel.router.core.wire import pack, unpack

PEERS_WAIT_S = 15.0
"""How long a Raft group waits for the address of a member whose host does not answer."""

TAKEN_OVER = (
    "This kernel goes on elsewhere: another server, which could not reach this one, has brought it back from "
    "its last checkpoint, and what was run here since then is not part of it. Open the notebook there, or "
    "restart the kernel here to begin anew."
)


def with_status(kernel_info: bytes) -> bytes:
    """Return the content of a kernel_info_reply with the status that the reply has to carry."""
    content = unpack(kernel_info)
    return pack({"status": "ok", **content})


class Fleet:
    """All replicas of one kernel, in order, and their hosts."""

    def __init__(
        self,
        spec: KernelSpec,
        hosts: Sequence[HostName],
        key_digest: str,
        pid: int,
        secret: str,
        now: float,
        *,
        resuming: bool = False,
        asleep: bool = False,
        guests: Sequence[HostName] = (),
    ) -> None:
        """`resuming`: this incarnation lived before; `asleep`: it hibernates until `wake`.

        `guests` are hosts beyond `hosts` that replicas have been moved to.
        """
        self._spec = spec
        self._secret = secret
        self._peers_deadline: float | None = None
        self._started = False
        self._attached = False
        self._lived = resuming or asleep
        """Whether this incarnation has had a group, so that another one must go on from its state."""
        self._bare_since: float | None = None
        self._revival: Revival | None = None
        self.asleep = asleep
        self.generation = 1
        self._served: set[HostName] = set()
        self.empty_since: float | None = None if asleep else now
        self.fault: Fault | None = None
        self.kernel_info = b""
        self.agents = Hosts(spec.kernel_id, hosts, guests, key_digest, pid, now)
        self.hosts = self.agents.known
        self.coming = ReplicaId("")
        """The replica that is on its way to take another one's place."""
        self.aside = ReplicaId("")
        """The one of these two that is given no cells, and goes if the group does."""
        self.departed: set[ReplicaId] = set()
        """Replicas that are no longer members, whose names are not used again."""
        self.replicas: dict[ReplicaId, Replica] = {}
        for index in range(spec.replicas if hosts else 0):
            host = hosts[index % len(hosts)]
            replica = ReplicaId(f"r{index + 1}")
            self.replicas[replica] = Replica(host)
            self.hosts[host].replicas.append(replica)

    @property
    def kernel_id(self) -> KernelId:
        """Return the kernel's id."""
        return self._spec.kernel_id

    @property
    def spec(self) -> KernelSpec:
        """Return what the kernel is made from."""
        return self._spec

    @property
    def settled(self) -> bool:
        """Tell whether `tick` has nothing to do: the Raft group has been started, or is not to be."""
        return self.asleep or (self._started and self._peers_deadline is None)

    @property
    def grouped(self) -> bool:
        """Tell whether there is a group, neither at rest nor about to be founded."""
        return self._started and self._revival is None and not self.asleep

    @property
    def unsure(self) -> bool:
        """Tell whether a host has lost replicas that it had, so that the group may be gone."""
        forgotten = any(replica.forgotten for replica in self.replicas.values())
        return (self._bare_since is not None or forgotten) and not self.asleep

    def ready(self) -> list[ReplicaId]:
        """Return the replicas that can be given messages, in order."""
        aside = self.aside
        return [name for name, replica in self.replicas.items() if replica.linked and name != aside]

    def process_of(self, name: ReplicaId) -> str:
        """Return the address of a replica's kernel process, which no other process will have."""
        replica = self.replicas.get(name)
        return "" if replica is None or replica.endpoints is None else replica.endpoints.shell

    def expects_more(self) -> bool:
        """Tell whether a replica that has not been ready yet is still on its way."""
        return any(
            replica.returning
            and not replica.linked
            and not replica.why_lost
            and not replica.dormant
            and self.hosts[replica.host].trouble is None
            for replica in self.replicas.values()
            if replica.host in self.hosts
        )

    def homes(self) -> tuple[HostName, ...]:
        """Return the hosts that have replicas, in order; what is on its way is nowhere yet."""
        coming = [self.coming]
        return tuple(name for name, host in self.hosts.items() if host.replicas and host.replicas != coming)

    def unavailable(self, now: float) -> Fault | None:
        """Return why cells cannot run at all, once that is certain or has lasted too long."""
        gives_up = self.gives_up_at()
        if gives_up is None:
            return None
        if self.fault is not None:
            return self.fault
        why = "" if self._revival is None else self._revival.why
        return why_unavailable(self.replicas, self.hosts, why, late=now >= gives_up)

    def put_aside(self, name: ReplicaId, now: float) -> None:
        """Give one replica no cells (empty: all are given some again)."""
        self.aside = name
        if not self.ready() and self.empty_since is None and not self.asleep:
            self.empty_since = now
        elif self.ready():
            self.empty_since = None

    def welcomed(self, name: HostName, welcome: AgentWelcome, now: float) -> list[Effect]:
        """Have this host's replicas prepared, or take over those that the agent already keeps."""
        host = self.hosts[name]
        host.welcomed, host.refused, host.away_since = True, False, None
        host.dismisses = welcome.dismisses
        host.keeps = bool(welcome.incarnation) and welcome.generation >= self.generation
        host.bare = not welcome.incarnation
        stale = self._take_members(welcome) if host.keeps else []
        if stale and len(stale) == len(welcome.replicas):
            host.keeps, host.bare = False, True
            return self._stop_stale(name, stale)
        if welcome.incarnation and not host.keeps:
            stop = HibernateKernel(self._spec.kernel_id, "stop")
            return [Log(f"host {name} keeps replicas of a group that was given up"), ToAgent(name, stop)]
        if welcome.incarnation:
            self._attached = self._started = True
            self.asleep, self.generation = False, welcome.generation
            if self.empty_since is None and not self.ready():
                self.empty_since = now
            another = self._spec.incarnation != welcome.incarnation
            self._spec = msgspec.structs.replace(self._spec, incarnation=welcome.incarnation)
            for replica in welcome.replicas:
                if replica not in stale:
                    self.enlist(replica, name).member = True
            return [
                *([SpeakFor(welcome.incarnation)] if another else []),
                *self._stop_stale(name, stale),
                *self._compare(name, welcome.replicas),
                Log(f"host {name} keeps {', '.join(welcome.replicas) or 'no replica'} of this kernel"),
            ]
        if not host.replicas:
            return []
        if self._revival is None and (self._lived or self._started):
            self._bare_since = now if self._bare_since is None else self._bare_since
            return [Log(f"host {name} has no replica of this kernel", "warning")]
        return self._prepare(name, now)

    def _compare(self, name: HostName, kept: Sequence[ReplicaId]) -> list[Effect]:
        """Note which of the host's members its agent does not keep: what it had of them on disk is lost."""
        effects: list[Effect] = []
        for replica in self.hosts[name].replicas:
            held = self.replicas[replica]
            held.forgotten = held.member and replica not in kept and replica not in self.departed
            if held.forgotten:
                effects.append(Log(f"host {name} has lost what it kept of {replica}", "warning"))
        return effects

    def is_bare(self, replica: Replica) -> bool:
        """Tell whether the replica's host answers and knows nothing of it any more."""
        return replica.forgotten or self.hosts[replica.host].bare

    def _prepare(self, name: HostName, now: float) -> list[Effect]:
        """Have a host's replicas prepared for the group that is about to be started."""
        if self._peers_deadline is None and not self._started:
            self._peers_deadline = now + PEERS_WAIT_S
        return [
            ToAgent(name, PrepareReplica(spec=self._spec, replica=replica))
            for replica in self.hosts[name].replicas
            if not self.replicas[replica].linked
        ]

    # -- members that come and go ---------------------------------------------------------------------

    def _take_members(self, welcome: AgentWelcome) -> list[ReplicaId]:
        """Take over what the log says of the members; return those of the host that are none any more."""
        self.departed.update(welcome.departed)
        for replica, host in welcome.members.items():
            if host in self.hosts and replica not in self.departed:
                self.enlist(replica, host).member = True
        return [replica for replica in welcome.replicas if replica in self.departed]

    def _stop_stale(self, host: HostName, stale: Sequence[ReplicaId]) -> list[Effect]:
        effects: list[Effect] = []
        for name in stale:
            effects.append(Log(f"host {host} still keeps {name}, which was replaced; it is stopped there"))
            effects.append(self.stop(name, host))
        return effects

    def stop(self, name: ReplicaId, host: HostName) -> Effect:
        """Return the effect that stops a replica which is no longer a member."""
        return ToAgent(host, StopReplica(self.kernel_id, name, "it was replaced"))

    def enlist(self, name: ReplicaId, host: HostName) -> Replica:
        """Count a replica among the kernel's, at this host."""
        replica = self.replicas.setdefault(name, Replica(host))
        if replica.host != host and name in self.hosts[replica.host].replicas:
            self.hosts[replica.host].replicas.remove(name)
        replica.host = host
        if name not in self.hosts[host].replicas:
            self.hosts[host].replicas.append(name)
        return replica

    def retire(self, name: ReplicaId) -> list[Effect]:
        """Let go of a replica for good; its host is told to stop it, if it hears us."""
        self.departed.add(name)
        replica = self.replicas.pop(name, None)
        if replica is None:
            return []
        host = self.hosts[replica.host]
        host.replicas.remove(name)
        if not host.replicas:
            host.keeps, host.bare = False, host.welcomed
        stopped = [self.stop(name, replica.host)] if host.welcomed else []
        return [*stopped, DropReplica(name)] if replica.endpoints is not None else stopped

    def new_name(self) -> ReplicaId:
        """Return a name that no replica of this kernel has had, as far as anybody knows."""
        numbers = [int(name[1:]) for name in (*self.replicas, *self.departed) if name[1:].isdigit()]
        return ReplicaId(f"r{max(numbers, default=0) + 1}")

    def prepare(self, name: ReplicaId) -> Effect:
        """Return the effect that has one replica prepared, which tells its address."""
        self.replicas[name].address = ""
        prepare = PrepareReplica(spec=self._spec, replica=name, joining=True)
        return ToAgent(self.replicas[name].host, prepare)

    def joined(self, name: ReplicaId, change: MembersChanged) -> Effect:
        """Count a prepared replica as a member; return the effect that starts it."""
        replica = self.replicas[name]
        host = self.hosts[replica.host]
        replica.member, host.keeps, host.bare = True, True, False
        start = StartReplica(
            kernel_id=self.kernel_id,
            replica=name,
            peers=change.peers,
            secret=change.secret,
            checkpoint=change.checkpoint,
            checkpoint_digest=change.checkpoint_digest,
            generation=change.generation,
            joining=True,
        )
        return ToAgent(replica.host, start)

    # -- the end of a group, and the next one ---------------------------------------------------------

    def keeping(self) -> list[HostName]:
        """Return the hosts that can be asked about the replicas that they keep."""
        return [name for name, host in self.hosts.items() if host.found and host.keeps]

    def stranded(self) -> list[ReplicaId]:
        """Return the replicas in use whose host knows nothing of them any more: nobody commits for them."""
        return [name for name, replica in self.replicas.items() if replica.ready and self.is_bare(replica)]

    def lost_majority(self) -> bool:
        """Tell whether most replicas are gone with their disks: their hosts know nothing of them."""
        members = [replica for replica in self.replicas.values() if replica.member]
        left = sum(not self.is_bare(replica) for replica in members)
        return self._started and left <= len(members) // 2 and bool(members) and bool(self.keeping())

    def is_gone(self, now: float) -> bool:
        """Tell whether no host has any replica of a kernel that had some; hosts that are late are awaited."""
        if self.asleep or self.fault is not None or self._revival is not None or self._bare_since is None:
            return False
        hosts = [host for host in self.hosts.values() if host.replicas]
        if any(host.keeps for host in hosts) or not any(host.bare for host in hosts):
            return False
        late = any(not host.welcomed and host.trouble is None for host in hosts)
        return not late or now >= self._bare_since + PEERS_WAIT_S

    def sleep(self) -> list[Effect]:
        """Forget the group: its replicas have been stopped, and nobody needs others for now."""
        effects = self._disband()
        self.asleep, self.empty_since = True, None
        self.generation += 1
        return effects

    def revive(self, now: float) -> list[Effect]:
        """Begin to found another group, from the newest checkpoint."""
        given_up = self._disband()
        self.asleep, self.empty_since = False, now
        self._revival = Revival(self._spec, self._secret)
        effects = [*given_up, Log("the kernel is brought back from its newest checkpoint")]
        for name, host in self.hosts.items():
            if host.welcomed:
                effects += self._prepare(name, now)
        return [*effects, *self.agents.search(now), *self.tick(now)]

    def yield_to(self, generation: int, now: float) -> list[Effect]:
        """Give the kernel up to a newer group, which is another router's: cells are answered with that."""
        effects = self._disband()
        self.generation, self.empty_since = generation, now
        self.fault = Fault("KernelTakenOver", TAKEN_OVER)
        return [*effects, Log(TAKEN_OVER, "warning")]

    def _disband(self) -> list[Effect]:
        aside = self.retire(self.aside) if self.aside in self.replicas else []
        self.aside = self.coming = ReplicaId("")
        surplus = len(self.replicas) - self._spec.replicas
        outsiders = [name for name, replica in self.replicas.items() if not replica.member]
        gone = [effect for name in outsiders[: max(0, surplus)] for effect in self.retire(name)]
        effects = [*aside, *gone]
        self._started = self._attached = False
        self._lived = True
        self._peers_deadline = self._bare_since = self._revival = None
        for replica in self.replicas.values():
            replica.begin_anew()
        for host in self.hosts.values():
            host.keeps, host.bare = False, host.welcomed
        return effects

    @property
    def awaits_group(self) -> bool:
        """Tell whether the members of the group that is to be founded are those that have run the cells."""
        return self._revival is not None and self._revival.awaited

    def checkpoint_found(self, message: CheckpointFound, now: float) -> bool:
        """Take what a host found in the store; return whether the group will start from it."""
        return self._revival is not None and self._revival.take(message, now)

    def serves(self, name: HostName) -> bool:
        """Tell whether a replica on this host has been linked to this router."""
        return name in self._served

    def prepared(self, message: ReplicaPrepared, now: float) -> list[Effect]:
        """Note a member's address; start the group when it was the last one missing.

        Replicas that a router before us had prepared and not started tell their addresses once more. Only
        when all do is nobody in a group already.
        """
        replica = self.replicas.get(message.replica)
        if replica is None:
            return []
        replica.address = message.raft_address
        if self._attached and all(other.address for other in self.replicas.values()):
            self._started = False
            if self._lived and self._revival is None:
                self._revival = Revival(self._spec, self._secret, awaited=True)
        return self.tick(now)

    def tick(self, now: float) -> list[Effect]:
        """Start the Raft group when all addresses are known or the wait is over."""
        known = {name: replica.address for name, replica in self.replicas.items() if replica.address}
        if self._revival is not None and self._revival.found is None and not self._started:
            hosts = [name for name, host in self.hosts.items() if host.welcomed]
            return self._revival.ask(hosts, now)
        overdue = self._peers_deadline is not None and now >= self._peers_deadline
        if self._started or not known or not (overdue or self._complete(known)):
            if overdue:
                self._peers_deadline = None
            return []
        self._started, self._peers_deadline = True, None
        revival, self._revival = self._revival, None
        if revival is not None:
            self.generation = revival.generation
        for name in known:
            self.replicas[name].member = True
            host = self.hosts[self.replicas[name].host]
            host.keeps, host.bare = True, False
        return [ToAgent(self.replicas[name].host, self._start(name, known, revival)) for name in known]

    def _complete(self, known: Mapping[ReplicaId, str]) -> bool:
        """Tell whether all members' addresses are known; a revival waits for no host that cannot be had."""
        missing = [replica for name, replica in self.replicas.items() if name not in known]
        if self._revival is None:
            return not missing
        return all(self.hosts[replica.host].trouble is not None for replica in missing)

    def _start(
        self, replica: ReplicaId, peers: dict[ReplicaId, str], revival: Revival | None
    ) -> StartReplica:
        if revival is not None:
            return revival.start(replica, peers)
        return StartReplica(self._spec.kernel_id, replica, peers, self._secret)

    def as_reached(self, name: HostName, message: ReplicaReady) -> ReplicaReady:
        """Return what a replica says of itself as it looks from here: another machine's process is none."""
        if not self.hosts[name].far or message.endpoints.far is None:
            return message
        return msgspec.structs.replace(message, pid=0, endpoints=message.endpoints.far)

    def replaces(self, message: ReplicaReady) -> bool:
        """Tell whether a replica's process is another one than we have used, of whose end nobody told us."""
        replica = self.replicas.get(message.replica)
        if replica is None or not replica.ready:
            return False
        return not replica.is_linked_to(message)

    def became_ready(self, message: ReplicaReady) -> list[Effect]:
        """Open the links to a replica's kernel process, unless it is the process that we are linked to."""
        if message.replica in self.departed:
            return []
        replica = self.replicas.setdefault(message.replica, Replica(message.host))
        replica.applied = message.applied
        if message.kernel_info:
            self.kernel_info = with_status(message.kernel_info)
        if replica.linked and replica.is_linked_to(message):
            return []
        replica.has_process(message)
        return [ConnectReplica(message.replica, message.endpoints, message.pid)]

    def became_linked(self, name: ReplicaId) -> None:
        """Take note that a replica's output reaches us: it can be used."""
        replica = self.replicas.get(name)
        if replica is not None and replica.ready:
            replica.linked, replica.recalled = True, False
            self._served.add(replica.host)
            if name != self.aside:
                self.empty_since = None

    def leaves(self, name: ReplicaId, now: float) -> None:
        """Give no more to a replica whose process is about to end, as one of its cells wished."""
        replica = self.replicas.get(name)
        if replica is not None:
            replica.linked = False
            if not self.ready() and self.empty_since is None:
                self.empty_since = now

    def dormant(self) -> list[ReplicaId]:
        """Return the replicas whose processes have been told to end until they are wanted again."""
        return [name for name, replica in self.replicas.items() if replica.dormant]

    def recalled(self) -> list[ReplicaId]:
        """Return the replicas whose processes are on their way back."""
        return [name for name, replica in self.replicas.items() if replica.recalled]

    def dismiss(self, name: ReplicaId, *, recalled: bool = False) -> Effect:
        """Have a replica's process end until it is wanted again, or be there again (`recalled`)."""
        replica = self.replicas[name]
        replica.dormant, replica.recalled = not recalled, recalled
        replica.linked = replica.linked and recalled
        return ToAgent(replica.host, DismissReplica(self.kernel_id, name, recalled))

    def lost(self, message: ReplicaLost, now: float) -> list[Effect]:
        """Close the links to a replica whose kernel process died."""
        replica = self.replicas.get(message.replica)
        if replica is None:
            return []
        replica.lost_process(message)
        if not self.ready() and self.empty_since is None:
            self.empty_since = now
        return [Log(f"replica {message.replica} is gone: {message.why}"), DropReplica(message.replica)]

    def gives_up_at(self) -> float | None:
        """Return when waiting for a first replica ends, or None while one is ready."""
        return None if self.empty_since is None else self.empty_since + NO_REPLICA_LIMIT_S

    def deadline(self) -> float | None:
        """Return when `tick` or `is_gone` has something to do."""
        if self.asleep or self.fault is not None:
            return None
        times: list[float | None] = [self._peers_deadline]
        if self._revival is not None and self._revival.found is None:
            asks = any(host.welcomed for host in self.hosts.values())
            times = [self._revival.deadline()] if asks else []
        elif self._bare_since is not None and not any(host.keeps for host in self.hosts.values()):
            times.append(self._bare_since + PEERS_WAIT_S)
        return min([time for time in times if time is not None], default=None)

    def check_invariants(self) -> None:
        """Assert that only ready replicas are linked and that emptiness is dated."""
        assert all(replica.ready for replica in self.replicas.values() if replica.linked)
        assert not any(replica.linked for replica in self.replicas.values() if replica.dormant)
        assert (self.empty_since is None) == (self.asleep or bool(self.ready()))
        assert not (self.asleep and self.ready()), "a kernel at rest has replicas"
