"""The kernel's replicas and the agents that keep them: found, prepared, started, ready, lost.

Pure. Law: a replica is used only while its four links are open and its output reaches us; the members of a
Raft group are told of each other only when all addresses are known, or the wait for a missing one is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from replkernel import protocol
from replkernel.protocol import Endpoints, KernelSpec
from replkernel.records import HostName, KernelId, ReplicaId
from replkernel.router.answers import Fault
from replkernel.router.events import ConnectReplica, DropReplica, Effect, FindAgent, Log, ToAgent
from replkernel.router.wire import pack, unpack

NO_REPLICA_LIMIT_S = 60.0
"""How long cells wait for the first replica to become ready before they answer with an error."""
PEERS_WAIT_S = 15.0
"""How long a Raft group waits for the address of a member whose host does not answer."""
RETRY_S = 5.0
"""How long after a failed search a new cell has the agents searched for again."""


@dataclass(slots=True)
class Replica:
    """One replica as the router sees it."""

    host: HostName
    address: str = ""
    ready: bool = False
    linked: bool = False
    returning: bool = True
    applied: int = 0
    why_lost: str = ""
    endpoints: Endpoints | None = None


@dataclass(slots=True)
class Host:
    """One host's agent as the router sees it."""

    token: str = ""
    found: bool = False
    welcomed: bool = False
    trouble: Fault | None = None
    searched_at: float = 0.0
    replicas: list[ReplicaId] = field(default_factory=list)


def with_status(kernel_info: bytes) -> bytes:
    """Return the content of a kernel_info_reply with the status that the reply has to carry."""
    content = unpack(kernel_info)
    return pack({"status": "ok", **content})


class Fleet:
    """All replicas of one kernel, in order, and their hosts."""

    def __init__(
        self, spec: KernelSpec, hosts: Sequence[HostName], key_digest: str, pid: int, secret: str, now: float
    ) -> None:
        self._spec = spec
        self._key_digest = key_digest
        self._pid = pid
        self._secret = secret
        self._peers_deadline: float | None = None
        self._started = False
        self._attached = False
        self._served: set[HostName] = set()
        self.empty_since: float | None = now
        self.fault: Fault | None = None
        self.kernel_info = b""
        self.hosts: dict[HostName, Host] = {host: Host() for host in hosts}
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
    def settled(self) -> bool:
        """Tell whether the Raft group has been started and `tick` has nothing to do."""
        return self._started and self._peers_deadline is None

    def ready(self) -> list[ReplicaId]:
        """Return the replicas that can be given messages, in order."""
        return [name for name, replica in self.replicas.items() if replica.linked]

    def reachable(self) -> list[HostName]:
        """Return the hosts whose agents listen to us."""
        return [name for name, host in self.hosts.items() if host.found]

    def unavailable(self, now: float) -> Fault | None:
        """Return why cells cannot run at all, once that is certain or has lasted too long."""
        if self.empty_since is None:
            return None
        if self.fault is not None:
            return self.fault
        troubles = [host.trouble for host in self.hosts.values() if host.trouble is not None]
        if len(troubles) == len(self.hosts) and troubles:
            return troubles[0]
        if not any(replica.returning for replica in self.replicas.values()):
            return Fault(
                "NoReplicaReady", f"All replicas of this kernel are gone{self._why()}; restart the kernel."
            )
        if now - self.empty_since < NO_REPLICA_LIMIT_S:
            return None
        waited = f"No replica of this kernel became ready within {NO_REPLICA_LIMIT_S:.0f} s{self._why()}"
        return Fault("NoReplicaReady", f"{waited}; run `replkernel status`, then restart the kernel.")

    def _why(self) -> str:
        lost = [f"{name}: {replica.why_lost}" for name, replica in self.replicas.items() if replica.why_lost]
        troubles = [host.trouble.evalue for host in self.hosts.values() if host.trouble is not None]
        return f" ({'; '.join(lost or troubles)})" if lost or troubles else ""

    def search(self, now: float) -> list[Effect]:
        """Return the effects that find the agents we have no link to (again, some time after a failure)."""
        effects: list[Effect] = []
        for name, host in self.hosts.items():
            if not host.found and (host.searched_at == 0.0 or now - host.searched_at >= RETRY_S):
                host.searched_at = now
                effects.append(FindAgent(name))
        return effects

    def found(self, name: HostName, token: str, now: float) -> list[Effect]:
        """Introduce ourselves to an agent whose link is open."""
        host = self.hosts[name]
        host.token, host.found, host.trouble = token, True, None
        hello = protocol.RouterHello(
            token=token, kernel_id=self._spec.kernel_id, key_digest=self._key_digest, pid=self._pid
        )
        return [ToAgent(name, hello)]

    def missing(self, name: HostName, fault: Fault) -> list[Effect]:
        """Take note that a host has no agent for us."""
        host = self.hosts[name]
        host.found, host.trouble = False, fault
        return [Log(fault.evalue, "warning")]

    def gone(self, name: HostName, now: float) -> list[Effect]:
        """Look for an agent again whose link broke; its kernel processes live on meanwhile."""
        host = self.hosts[name]
        host.found = host.welcomed = False
        host.searched_at = now
        return [Log(f"the agent of host {name} went away"), FindAgent(name)]

    def welcomed(self, name: HostName, welcome: protocol.AgentWelcome, now: float) -> list[Effect]:
        """Have this host's replicas prepared, or take over those that the agent already keeps."""
        host = self.hosts[name]
        host.welcomed = True
        if welcome.incarnation:
            self._attached = self._started = True
            return [Log(f"host {name} keeps {', '.join(welcome.replicas) or 'no replica'} of this kernel")]
        if self._attached:
            return [Log(f"host {name} has lost its replicas of this kernel", "warning")]
        if self._peers_deadline is None and not self._started:
            self._peers_deadline = now + PEERS_WAIT_S
        return [
            ToAgent(name, protocol.PrepareReplica(spec=self._spec, replica=replica))
            for replica in host.replicas
            if not self.replicas[replica].linked
        ]

    def serves(self, name: HostName) -> bool:
        """Tell whether a replica on this host has been linked to this router."""
        return name in self._served

    def refused(self, name: HostName, why: str) -> list[Effect]:
        """Take note that an agent will not serve us, or (once it does) that it refused one wish."""
        if self.hosts[name].welcomed:
            return [Log(f"host {name} refused: {why}", "warning")]
        return self.missing(name, Fault("AgentUnavailable", why))

    def prepared(self, message: protocol.ReplicaPrepared, now: float) -> list[Effect]:
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
        return self.tick(now)

    def tick(self, now: float) -> list[Effect]:
        """Start the Raft group when all addresses are known or the wait is over."""
        known = {name: replica.address for name, replica in self.replicas.items() if replica.address}
        overdue = self._peers_deadline is not None and now >= self._peers_deadline
        if self._started or not known or not (overdue or len(known) == len(self.replicas)):
            if overdue:
                self._peers_deadline = None
            return []
        self._started, self._peers_deadline = True, None
        return [
            ToAgent(
                self.replicas[name].host,
                protocol.StartReplica(
                    kernel_id=self._spec.kernel_id, replica=name, peers=known, secret=self._secret
                ),
            )
            for name in known
        ]

    def became_ready(self, message: protocol.ReplicaReady) -> list[Effect]:
        """Open the links to a replica's kernel process, unless it is the process that we are linked to."""
        replica = self.replicas.setdefault(message.replica, Replica(message.host))
        replica.applied = message.applied
        if message.kernel_info:
            self.kernel_info = with_status(message.kernel_info)
        if replica.linked and replica.endpoints == message.endpoints:
            return []
        replica.ready, replica.linked, replica.returning, replica.why_lost = True, False, True, ""
        replica.endpoints = message.endpoints
        return [ConnectReplica(message.replica, message.endpoints)]

    def became_linked(self, name: ReplicaId) -> None:
        """Take note that a replica's output reaches us: it can be used."""
        replica = self.replicas.get(name)
        if replica is not None and replica.ready:
            replica.linked = True
            self._served.add(replica.host)
            self.empty_since = None

    def lost(self, message: protocol.ReplicaLost, now: float) -> list[Effect]:
        """Close the links to a replica whose kernel process died."""
        replica = self.replicas.get(message.replica)
        if replica is None:
            return []
        replica.ready = replica.linked = False
        replica.returning, replica.why_lost = message.returning, message.why
        if not self.ready() and self.empty_since is None:
            self.empty_since = now
        return [Log(f"replica {message.replica} is lost: {message.why}"), DropReplica(message.replica)]

    def gives_up_at(self) -> float | None:
        """Return when waiting for a first replica ends, or None while one is ready."""
        return None if self.empty_since is None else self.empty_since + NO_REPLICA_LIMIT_S

    def deadline(self) -> float | None:
        """Return when `tick` has something to do."""
        return self._peers_deadline

    def check_invariants(self) -> None:
        """Assert that only ready replicas are linked and that emptiness is dated."""
        assert all(replica.ready for replica in self.replicas.values() if replica.linked)
        assert (self.empty_since is None) == bool(self.ready())
