"""Which hosts holder pods make, which pods of users belong beside them, and what is to be made or deleted.

Pure. Laws: a host is a node with a holder; it counts until its pod is gone or has ended. A pod that was told
to end is told of as HostEnding once, unless it was given back. What ends at once is not asked for time and
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from replkernel.agent.io.start import is_host_name
from replkernel_server.launchers.kubernetes_pods import (
    HOLDER,
    USER,
    Json,
    KubernetesOptions,
    Pod,
    agent_name,
    running,
    user_agent,
    user_of,
)
from replkernel_server.launchers.protocol import HostComing, HostEnding, HostJoined, HostLost, Word

PAUSE_S = 10.0
"""After a holder ended by itself, none is asked for before."""
AGENTS_MAX = 2_000


class Todo(msgspec.Struct, frozen=True):
    """Pods to be deleted, holders to be made, and agents of users."""

    delete: tuple[str, ...] = ()
    holders: int = 0
    agents: tuple[Json, ...] = ()


class KubernetesHosts:
    """The pods of one release as hosts."""

    def __init__(self, options: KubernetesOptions) -> None:
        """Begin without any."""
        self._options = options
        self._pods: dict[str, Pod] = {}
        self._of_host: dict[str, str] = {}
        self._floor, self._more = options.hosts, 0
        self._given_back: set[str] = set()
        self._ending: set[str] = set()
        self._coming: dict[str, str] = {}
        self._not_before = 0.0
        self.ever: set[str] = set()

    @property
    def awaits(self) -> bool:
        """Say whether something is to change soon."""
        return bool(self._coming or self._more or self._ending)

    def hosts(self) -> list[str]:
        """Return the hosts that are there."""
        return sorted(self._of_host)

    def pod_of(self, host: str) -> Pod | None:
        """Return the holder that makes a host."""
        return self._pods.get(self._of_host.get(host, ""))

    def want(self, more: int) -> None:
        """Want so many hosts beyond those that are there."""
        self._more = more

    def again(self) -> None:
        """Want a host again that was given back."""
        self._floor += 1

    def room(self) -> int:
        """Return how many more hosts there may be."""
        return self._options.most - len(self._of_host)

    def give_back(self, host: str) -> list[Word]:
        """Note that a host's pod was deleted because nobody wants it, or because it ends and is empty."""
        pod = self._of_host.pop(host, None)
        if pod is None:
            return []
        self._given_back.add(pod)
        if pod not in self._ending:  # Kubernetes ended that one, be it empty by now: it is replaced.
            self._floor = max(0, self._floor - 1)
        return [HostLost(host, "it was given back")]

    def told(self, pods: Sequence[Pod], now: float) -> list[Word]:
        """Take all pods of the release that there are by now; return what is new about hosts."""
        before, self._pods = self._pods, {pod.name: pod for pod in pods}
        known = set(self._pods)
        self._given_back &= known
        self._ending &= known
        words: list[Word] = []
        for host, name in list(self._of_host.items()):
            pod = self._pods.get(name)
            if pod is None or pod.phase == "ended":
                del self._of_host[host]
                words.append(HostLost(host, _said_of_end(name, pod)))
        for pod in pods:
            words += self._of_pod(pod)
            was = before.get(pod.name)
            if pod.phase == "ended" and HOLDER in pod.labels and was is not None and was.phase != "ended":
                self._not_before = now + PAUSE_S
        waits = {pod.name for pod in pods if pod.phase == "coming"}
        for name in [name for name in self._coming if name not in waits]:
            del self._coming[name]
            words.append(HostComing(name, "", over=True))
        return words

    def todo(self, servers: Iterable[Json], now: float) -> Todo:
        """Return what is to be done, once: what is done shows in the next `told`."""
        holders = [pod for pod in self._pods.values() if HOLDER in pod.labels]
        coming = [pod.name for pod in holders if pod.phase == "coming" and pod.name not in self._given_back]
        lasting = [name for name in self._of_host.values() if name not in self._ending]
        wanted = max(0, min(max(self._floor - len(lasting), self._more), self.room()))
        over = [pod.name for pod in self._pods.values() if pod.phase == "ended"]
        make = max(0, wanted - len(coming)) if now >= self._not_before else 0
        return Todo((*over, *coming[wanted:]), make, tuple(self._agents(servers)))

    def _agents(self, servers: Iterable[Json]) -> list[Json]:
        """Return the agents that are missing: of each user with a server, beside each holder that lasts."""
        if not self._options.users:
            return []
        made: list[Json] = []
        for server in running(servers):
            for name in self._of_host.values():
                held = self._pods[name]
                wanted = agent_name(self._options, user_of(server), held.node)
                if (
                    held.phase == "up"
                    and wanted not in self._pods
                    and len(self._pods) + len(made) < AGENTS_MAX
                ):
                    made.append(user_agent(self._options, server, held))
        return made

    def _of_pod(self, pod: Pod) -> list[Word]:
        if pod.phase == "coming" and pod.name not in self._given_back:
            why = pod.why or "it has no node yet"
            if self._coming.get(pod.name) == why:
                return []
            self._coming[pod.name] = why
            whose = f"an agent of a user ({pod.labels[USER]}): " if USER in pod.labels else ""
            return [HostComing(pod.name, whose + why)]
        if HOLDER not in pod.labels or not pod.node or pod.name in self._given_back:
            return []
        host = f"{self._options.host_prefix}{pod.node}"
        if pod.phase == "up" and host not in self._of_host and is_host_name(host):
            self._of_host[host] = pod.name
            self.ever.add(host)
            self._more = max(0, self._more - 1)
            return [HostJoined(host, self._options.gpus)]
        if pod.phase == "ending" and self._of_host.get(host) == pod.name and pod.name not in self._ending:
            self._ending.add(pod.name)
            return [HostEnding(host, pod.ends_in_s, pod.why or "its pod is deleted")]
        return []


def _said_of_end(name: str, pod: Pod | None) -> str:
    return f"its pod {name} is gone" if pod is None else f"its pod {name} has ended: {pod.why or 'by itself'}"
