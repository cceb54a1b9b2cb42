"""The hosts' agents as the router knows them: looked for, greeted, missing, away.

Pure. Law: an agent that goes away is looked for at once; that of a guest is found, and never started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from replkernel.protocol.router_to_agent import RouterHello
from replkernel.records import HostName, KernelId, ReplicaId
from replkernel.router.core.answers import Fault
from replkernel.router.core.events import Effect, FindAgent, Log, ToAgent

HOSTS_MAX = 64
"""A kernel knows no more hosts than these, those that it was moved away from included."""
RETRY_S = 5.0
"""How long after a failed search a new cell has the agents searched for again."""


@dataclass(slots=True)
class Host:
    """One host's agent as the router sees it."""

    token: str = ""
    found: bool = False
    welcomed: bool = False
    refused: bool = False
    """Whether it has refused us since it last welcomed us."""
    trouble: Fault | None = None
    searched_at: float = 0.0
    replicas: list[ReplicaId] = field(default_factory=list)
    keeps: bool = False
    """Whether its agent, when last asked, kept replicas of this kernel's group; one that is away may."""
    bare: bool = False
    """Whether its agent knows nothing of the kernel."""
    dismisses: bool = False
    """Whether its agent can end a standby's process until it is wanted again."""
    away_since: float | None = None
    """Since when its agent has not been reachable."""
    far: bool = False
    """Whether it is another machine: its processes are reached by sealed connections, and never seen."""
    guest: bool = False
    """Whether it is none of the settings': its agent is found, and never started."""


class Hosts:
    """The hosts that a kernel knows, in order, and the way to the agent of each."""

    def __init__(
        self,
        kernel_id: KernelId,
        names: Sequence[HostName],
        guests: Sequence[HostName],
        key_digest: str,
        pid: int,
        now: float,
    ) -> None:
        """`guests` are hosts beyond `names`, those of the settings, that replicas have been moved to."""
        self._kernel_id = kernel_id
        self._key_digest = key_digest
        self._pid = pid
        self.known: dict[HostName, Host] = {host: Host(away_since=now) for host in names}
        for guest in guests:
            self.known.setdefault(guest, Host(away_since=now, guest=True))

    def guests(self) -> tuple[HostName, ...]:
        """Return the hosts beyond the settings' that have replicas."""
        return tuple(name for name, host in self.known.items() if host.guest and host.replicas)

    def reachable(self) -> list[HostName]:
        """Return the hosts whose agents listen to us."""
        return [name for name, host in self.known.items() if host.found]

    def voters(self) -> list[HostName]:
        """Return the hosts with replicas whose agents listen to us."""
        return [name for name, host in self.known.items() if host.found and host.replicas]

    def search(self, now: float) -> list[Effect]:
        """Return the effects that find the agents we have no link to (again, some time after a failure)."""
        effects: list[Effect] = []
        for name, host in self.known.items():
            if not host.found and (host.searched_at == 0.0 or now - host.searched_at >= RETRY_S):
                host.searched_at = now
                effects.append(self._find(name))
        return effects

    def _find(self, name: HostName) -> Effect:
        return FindAgent(name, starts=not self.known[name].guest)

    def invite(self, name: HostName, now: float) -> str:
        """Count a host among ours; return why not, or an empty string."""
        if name in self.known:
            return ""
        if len(self.known) >= HOSTS_MAX:
            return f"this kernel has been to {HOSTS_MAX} hosts already"
        self.known[name] = Host(away_since=now, guest=True)
        return ""

    def look_for(self, name: HostName, now: float) -> list[Effect]:
        """Return the effects that find a host's agent, if we have no link to it."""
        host = self.known[name]
        if host.found:
            return []
        host.searched_at, host.trouble = now, None
        return [self._find(name)]

    def search_again(self, now: float, after_s: float) -> list[Effect]:
        """Return the effects that look once more for agents that were searched for in vain."""
        effects: list[Effect] = []
        for name, host in self.known.items():
            if not host.found and host.trouble is not None and now >= host.searched_at + after_s:
                host.searched_at = now
                effects.append(self._find(name))
        return effects

    def found(self, name: HostName, token: str, now: float, *, far: bool = False) -> list[Effect]:
        """Introduce ourselves to an agent whose link is open."""
        host = self.known[name]
        host.token, host.found, host.trouble, host.far = token, True, None, far
        hello = RouterHello(
            token=token,
            kernel_id=self._kernel_id,
            key_digest=self._key_digest,
            pid=0 if far else self._pid,
        )
        return [ToAgent(name, hello)]

    def missing(self, name: HostName, fault: Fault) -> list[Effect]:
        """Take note that a host has no agent for us."""
        host = self.known[name]
        said = host.guest or host.trouble == fault
        host.found, host.trouble = False, fault
        return [Log(fault.evalue, "info" if said else "warning")]

    def gone(self, name: HostName, now: float) -> list[Effect]:
        """Look for an agent again whose link broke; its kernel processes live on meanwhile."""
        host = self.known[name]
        host.found = host.welcomed = False
        host.away_since = now if host.away_since is None else host.away_since
        host.searched_at = now
        return [Log(f"the agent of host {name} went away"), self._find(name)]

    def silence(self, name: HostName) -> list[Effect]:
        """Listen no more to a host that does not answer; its agent is asked anew, if it ever comes back."""
        host = self.known[name]
        host.found = host.welcomed = host.keeps = False
        return [Log(f"host {name} does not answer; its replicas are given up", "warning"), self._find(name)]

    def refused(self, name: HostName, why: str) -> list[Effect]:
        """Take note that an agent will not serve us, or (once it does) that it refused one wish."""
        if self.known[name].welcomed:
            return [Log(f"host {name} refused: {why}", "warning")]
        if not self.known[name].refused:
            # Its file may have been read just before a new agent took the place of the one that it names.
            self.known[name].refused = True
            return [Log(f"host {name} refused: {why}"), self._find(name)]
        return self.missing(name, Fault("AgentUnavailable", why))
