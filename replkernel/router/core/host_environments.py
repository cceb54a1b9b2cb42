"""Which hosts have what the kernel needs: its working directory, and the versions that its first host has.

Pure. Laws: a host without the directory gets no replica, by name; one with other versions gets none where the
setting refuses them, and is named else; a host that keeps replicas already is never turned away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from replkernel.protocol.agent_to_router import AgentWelcome, GroundDescribed
from replkernel.protocol.host_environment import differences
from replkernel.protocol.router_to_agent import DescribeGround
from replkernel.records import HostName
from replkernel.router.core.answers import Fault
from replkernel.router.core.events import Effect, Log, ToAgent
from replkernel.router.core.fleet import Fleet

FIRST_WAIT_S = 5.0
"""Where other versions are refused, others wait so long for the first host, with which they are compared."""

Versions = Literal["warn", "refuse"]


class HostEnvironments:
    """What the hosts have told. `admit` goes on with a host's welcome; `tell` reaches the user."""

    def __init__(
        self,
        fleet: Fleet,
        admit: Callable[[HostName, AgentWelcome, float], list[Effect]],
        tell: Callable[[str], list[Effect]],
        versions: Versions = "warn",
    ) -> None:
        self._fleet = fleet
        self._admit = admit
        self._tell = tell
        self._strict = versions == "refuse"
        self._known: dict[HostName, GroundDescribed] = {}
        self._held: dict[HostName, tuple[AgentWelcome, float]] = {}
        self._said: dict[HostName, str] = {}
        """The last that was told of each host, which is not told again."""

    def ask(self, host: HostName, request: int = 0) -> Effect:
        """Return the effect that has a host tell what it has."""
        return ToAgent(host, DescribeGround(self._fleet.kernel_id, self._fleet.spec, request))

    def welcomed(self, host: HostName, welcome: AgentWelcome, now: float) -> list[Effect]:
        """Take in a host that listens: at once if nothing is to be compared, else once it has told."""
        if len(self._fleet.hosts) < 2 or not welcome.describes:
            return self._admit(host, welcome, now)
        if welcome.incarnation:
            return [*self._admit(host, welcome, now), self.ask(host)]
        self._held[host] = (welcome, now)
        self._known.pop(host, None)  # It may have changed since.
        first = next(iter(self._fleet.hosts))
        # A kernel that had one host, or another router, has asked nobody yet.
        unasked = first not in self._known and first != host and self._fleet.hosts[first].welcomed
        return [self.ask(host), *([self.ask(first)] if unasked else [])]

    def gone(self, host: HostName) -> None:
        """Forget a welcome whose agent went away."""
        self._held.pop(host, None)

    def described(self, host: HostName, told: GroundDescribed, now: float) -> list[Effect]:
        """Take what a host tells."""
        self._known[host] = told
        if told.request:
            return []  # The others have not repeated an installation yet: whoever asked compares in the end.
        if host not in self._held:
            return self._named(host)
        return self.advance(now)

    def advance(self, now: float) -> list[Effect]:
        """Decide about the hosts that wait, as far as that can be done."""
        effects: list[Effect] = []
        for host in [host for host in self._held if host in self._known]:
            welcome, since = self._held[host]
            if self._strict and self._awaits_first(host, since, now):
                continue
            del self._held[host]
            why = self._refusal(host)
            if why:
                effects += self._refuse(host, why)
            else:
                effects += [*self._named(host), *self._admit(host, welcome, now)]
        return effects

    def _awaits_first(self, host: HostName, since: float, now: float) -> bool:
        first = next(iter(self._fleet.hosts))
        late = now >= since + FIRST_WAIT_S or self._fleet.hosts[first].trouble is not None
        return host != first and first not in self._known and not late

    def _refusal(self, host: HostName) -> str:
        told = self._known[host]
        if told.no_directory:
            return (
                f"Host {host} gets no replica of this kernel: {told.no_directory}, and the notebook works "
                "there. Make it, or share the directory with that host."
            )
        if not self._strict:
            return ""
        other, what = self._compared(host)
        if not what:
            return ""
        return (
            f"Host {host} gets no replica of this kernel: other than {other} it has {what}. Install the same "
            "there, or set REPLKERNEL_VERSIONS=warn."
        )

    def _compared(self, host: HostName) -> tuple[HostName, str]:
        """Return the first host that has told, and how this one differs from it."""
        first = next((name for name in self._fleet.hosts if name in self._known), host)
        one, other = self._known[first], self._known[host]
        if first == host or one.why or other.why:
            return first, ""
        return first, differences(one.python, one.packages, other.python, other.packages)

    def _refuse(self, host: HostName, why: str) -> list[Effect]:
        effects = self._fleet.agents.missing(host, Fault("HostUnfit", why))
        return [*effects, *self._tell(why)] if self._is_new(host, why) else []

    def _named(self, host: HostName) -> list[Effect]:
        """Tell of what differs at a host that is used all the same, and at those compared with it."""
        if self._known[host].why and self._is_new(host, self._known[host].why):
            return [Log(f"host {host}: {self._known[host].why}", "warning")]
        first, _ = self._compared(host)
        effects: list[Effect] = []
        for name in [host] if first != host else [name for name in self._known if name != host]:
            other, what = self._compared(name)
            text = f"Other than {other}, host {name} has {what}." if what else ""
            if text and name not in self._held and self._is_new(name, text):
                effects += self._tell(f"{text} What works on one may fail on the other: install the same.")
        return effects

    def _is_new(self, host: HostName, text: str) -> bool:
        new = self._said.get(host) != text
        self._said[host] = text
        return new

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        if not self._strict:
            return None
        times = [since + FIRST_WAIT_S for host, (_, since) in self._held.items() if host in self._known]
        return min(times, default=None)

    def check_invariants(self) -> None:
        """Assert that only hosts of the kernel wait."""
        assert set(self._held) <= set(self._fleet.hosts)
