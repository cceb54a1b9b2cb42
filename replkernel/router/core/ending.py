"""The end of a kernel: hosts are told and waited for, the client is answered, the router exits.

Pure. Laws: an end that has begun always ends, after ENDING_LIMIT_S at the latest; no GPUs are given back
before each host that can be reached has confirmed that nothing is left there.
"""

from __future__ import annotations

from replkernel.protocol.router_to_agent import EndKernel
from replkernel.records import HostName
from replkernel.router.core import answers
from replkernel.router.core.contents import ShutdownContent, read
from replkernel.router.core.events import ClientRequest, Effect, Exit, Log, Publish, Register, ToAgent
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.leases import Leases
from replkernel.router.core.wire import pack

ENDING_LIMIT_S = 5.0
"""How long the hosts may take to stop a kernel's replicas before the router leaves."""


class Ending:
    """The end of one kernel: once it has begun, nothing else is decided."""

    def __init__(self, fleet: Fleet, leases: Leases) -> None:
        self._fleet = fleet
        self._leases = leases
        self._request: ClientRequest | None = None
        self._hosts: set[HostName] = set()
        self._confirmed = True
        """Whether all of them have said that nothing is left there."""
        self._over = False
        self.begun = False
        self.deadline: float | None = None

    def begin(self, request: ClientRequest | None, reason: str, now: float) -> list[Effect]:
        """Tell every host that the kernel ends, as a client's `request` or, without one, a signal wants it.

        Whoever wants it once more has waited long enough.
        """
        if self.begun:
            return self.leave()
        fleet = self._fleet
        self.begun, self.deadline, self._request = True, now + ENDING_LIMIT_S, request
        self._hosts = set(fleet.agents.reachable())
        effects: list[Effect] = [] if request is None else [answers.busy(request)]
        effects.append(Log(f"the kernel ends: {reason}"))
        end = EndKernel(kernel_id=fleet.kernel_id, reason=reason, spec=fleet.spec)
        effects += [ToAgent(host, end) for host in sorted(self._hosts)]
        return effects + self._when_over()

    def ended_by(self, host: HostName, now: float) -> list[Effect]:
        """Take note of a host's end of the kernel; unasked (its agent was stopped), it is the end of it all.

        A host without a replica of ours speaks of a kernel before this one, under the same id.
        """
        effects: list[Effect] = []
        if not self.begun:
            if not self._fleet.serves(host):
                return []
            effects = self.begin(None, f"the agent of host {host} has ended it", now)
        return effects + self.ended(host)

    def ended(self, host: HostName) -> list[Effect]:
        """Take note that a host has stopped everything."""
        self._hosts.discard(host)
        return self._when_over()

    def gone(self, host: HostName) -> list[Effect]:
        """Take note that a host can no longer be asked: its processes outlive its agent."""
        self._confirmed = self._confirmed and host not in self._hosts
        return self.ended(host)

    def advance(self, now: float) -> list[Effect]:
        """Leave without the hosts that did not answer in time."""
        return self.leave() if self.deadline is not None and now >= self.deadline else []

    def leave(self) -> list[Effect]:
        """Answer and exit now, whoever is missing: its agent tells the scheduler when nothing is left."""
        late = [
            Log(f"host {host} did not confirm the end in time", "warning") for host in sorted(self._hosts)
        ]
        self._confirmed = self._confirmed and not self._hosts
        self._hosts.clear()
        return [*late, *self._when_over()]

    def _when_over(self) -> list[Effect]:
        if self._hosts or self._over:
            return []
        self._over, self.deadline = True, None
        given_back = self._leases.kernel_rests() if self._confirmed else []
        if self._request is None:
            return [*given_back, Register("ended"), Exit(0)]
        content = pack({"status": "ok", "restart": read(ShutdownContent, self._request.content).restart})
        return [
            *given_back,
            answers.reply(self._request, content),
            Publish("shutdown_reply", self._request.header_frame, content),
            answers.idle(self._request),
            Register("ended"),
            Exit(0),
        ]
