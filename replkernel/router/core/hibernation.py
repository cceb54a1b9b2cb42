"""A kernel put to rest and woken: no replica process while nobody needs one, all of its state in the store.

Pure. Laws: replicas are stopped only when a checkpoint holds every cell that has run; what comes meanwhile
waits or calls it off, and is never lost; a kernel at rest is woken by the first message that needs a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from replkernel.protocol.agent_to_router import CheckpointWritten
from replkernel.protocol.router_to_agent import HibernateKernel
from replkernel.records import HostName
from replkernel.router.core import answers
from replkernel.router.core.answers import Fault
from replkernel.router.core.doubts import said_of
from replkernel.router.core.events import ClientRequest, Effect, Exit, Log, Register, ToAgent
from replkernel.router.core.parts import Parts
from replkernel.router.core.wire import pack

REQUEST = "replkernel_hibernate_request"
RECOVER = "replkernel_recover_request"
SAVE = "replkernel_save_request"
"""Has all that is done so far written to the store, for somebody who copies it; nothing is stopped."""
SAVE_LIMIT_S = 45.0
"""How long the hosts may take to write a checkpoint of everything."""
RECOVER_LIMIT_S = 10.0
"""How long a recovery waits for a host's answer before it gives up the replicas there."""
STOP_LIMIT_S = 10.0
"""How long they may take to stop their replicas; those of a host that is late are stopped when it is back."""
LEADER_LIMIT_S = 10.0
"""How long hosts are asked again for a checkpoint while none leads: the lead is on its way between two."""
LEADER_LOOK_S = 0.25
AGAIN_S = 600.0
"""A kernel that nobody uses and that could not hibernate is tried again after so long."""
HIBERNATED_LINGER_S = 60.0
"""So long a router of a kernel at rest stays without any client, where it will be found again."""
ASKERS_MAX = 100


class Phase(Enum):
    """How far a hibernation has come."""

    AWAKE = "awake"
    WANTED = "wanted"
    SAVING = "saving"
    STOPPING = "stopping"
    ASLEEP = "asleep"


class Hibernation:
    """The rest of one kernel. `put_down` ends what is under way at its replicas, before they are stopped."""

    def __init__(
        self,
        parts: Parts,
        put_down: Callable[[str, float], list[Effect]],
        *,
        idle_s: float = 0.0,
        linger_s: float | None = None,
        now: float = 0.0,
    ) -> None:
        self.phase = Phase.ASLEEP if parts.fleet.asleep else Phase.AWAKE
        self._parts = parts
        self._put_down = put_down
        self._idle_s = idle_s
        self._linger_s = linger_s
        self._used_at = now
        self._clients = 0
        self._alone_since = now
        self._deadline: float | None = None
        self._hosts: set[HostName] = set()
        self._ask_at: float | None = None
        """When hosts of which none led are asked again, and until when."""
        self._led_until = 0.0
        self._page_until: float | None = None
        """Until when a rest waits for what pages had widgets do to be durable."""
        self._saved = False
        self._whys: list[str] = []
        self._recovering = False
        self._unused = False
        """Whether it is put to rest because nobody uses it."""
        self._askers: list[ClientRequest] = []
        self._savers: list[ClientRequest] = []
        """Who wants a checkpoint and no rest."""

    @property
    def attentive(self) -> bool:
        """Tell whether `advance` may have something to do."""
        return self.phase is not Phase.AWAKE or self._idle_s > 0

    @property
    def holds(self) -> bool:
        """Tell whether cells must wait: the replicas are being saved or stopped."""
        return self.phase in (Phase.SAVING, Phase.STOPPING)

    def used(self, now: float) -> None:
        """Note that a client spoke or a cell ran."""
        self._used_at = now

    def clients(self, count: int, now: float) -> None:
        """Note how many connections of clients there are."""
        if not count and self._clients:
            self._alone_since = now
        self._clients = count

    # -- who wants it ----------------------------------------------------------------------------------

    def want(self, request: ClientRequest | None, why: str, *, unused: bool = False) -> list[Effect]:
        """Take a wish for hibernation: it begins once no cell runs or waits. `unused`: no person wished."""
        if self.phase is Phase.ASLEEP:
            return _slept(request)
        if request is not None:
            if len(self._askers) >= ASKERS_MAX:
                return answers.refusal(request, Fault("RuntimeError", "too many ask for it already"))
            self._askers.append(request)
        if self.phase is Phase.AWAKE:
            self.phase, self._unused = Phase.WANTED, unused
        return [Log(f"the kernel is to hibernate: {why}")]

    def recover(self, request: ClientRequest | None, now: float) -> list[Effect]:
        """Give up a group that has lost its majority for good; the kernel goes on from what is left."""
        if self.holds:
            return (
                [] if request is None else answers.refusal(request, Fault("RuntimeError", "it is under way"))
            )
        if request is not None:
            self._askers.append(request)
        effects: list[Effect] = [
            Log("the kernel's group is given up; what is left of it is saved", "warning")
        ]
        self._recovering = True
        return effects + self._save(now)

    def save(self, request: ClientRequest, now: float, *, busy: bool) -> list[Effect]:
        """Have everything written, and go on; the answer says whether something runs, and nothing was."""
        written = self.phase in (Phase.STOPPING, Phase.ASLEEP)
        if written or busy or self.phase is Phase.WANTED:
            return answers.whole(request, pack({"status": "ok", "busy": not written}))
        if self.phase is not Phase.AWAKE or len(self._savers) >= ASKERS_MAX:
            return answers.refusal(request, Fault("RuntimeError", "it is being saved already; ask again"))
        if not self._parts.fleet.ready():
            return answers.refusal(
                request, Fault("RuntimeError", "its replicas have not started yet; ask again")
            )
        self._savers.append(request)
        return self._save(now)

    # -- what hosts say --------------------------------------------------------------------------------

    def saved(self, host: HostName, message: CheckpointWritten, now: float) -> list[Effect]:
        """Take a host's answer to the wish for a checkpoint."""
        if self.phase is not Phase.SAVING or host not in self._hosts:
            return []
        self._hosts.discard(host)
        self._saved = self._saved or bool(message.name)
        if message.why:
            self._whys.append(message.why)
        return self._when_saved(now)

    def stopped(self, host: HostName, now: float) -> list[Effect]:
        """Take note that a host has stopped its replicas, or is gone."""
        self._hosts.discard(host)
        return self._when_saved(now) if self.phase is Phase.SAVING else self._when_stopped(now)

    def awoken(self) -> None:
        """Take note that the fleet has been revived, or found alive."""
        if self.phase is Phase.ASLEEP:
            self.phase = Phase.AWAKE

    # -- moving on -------------------------------------------------------------------------------------

    def advance(self, now: float, *, busy: bool, needed: bool) -> list[Effect]:
        """Take the step that can be taken; `busy`: a cell runs or waits, `needed`: something waits."""
        until = self._parts.succession.page_waits_until()
        page_waits = until is not None and now < until
        self._page_until = until if page_waits else None
        if self.phase is Phase.AWAKE and (busy or page_waits):
            self._used_at = now
        match self.phase:
            case Phase.AWAKE if self._idle_s and now >= self._used_at + self._idle_s:
                why = f"unused for {self._idle_s:g} s (REPLKERNEL_HIBERNATE_IDLE_S)"
                wanted = self.want(None, why, unused=True)
                return wanted + self.advance(now, busy=busy, needed=needed)
            case Phase.WANTED if page_waits and not busy:
                return self._parts.succession.have_settled(now)
            case Phase.WANTED if not busy and self._parts.fleet.ready():
                return self._begin(now)
            case Phase.SAVING if self._is_due(now):
                return self._unsaved(now)
            case Phase.SAVING if self._ask_at is not None and now >= self._ask_at:
                return self._ask_hosts(now)
            case Phase.STOPPING if self._is_due(now):
                self._hosts.clear()
                return self._when_stopped(now)
            case Phase.ASLEEP if needed:
                return self._wake(now)
            case Phase.ASLEEP if self._lingered(now):
                return [Log("nobody needs this kernel for now; its router leaves"), Exit(0)]
        return []

    def _begin(self, now: float) -> list[Effect]:
        if self._parts.held():
            why = "Figures, a subshell or a debugger live in its process; close them, then hibernate."
            return self._call_off(why, now)
        if self._parts.succession.page_waits_until() is not None:
            return self._call_off("What its widgets changed is not durable yet.", now)
        return self._save(now)

    def _save(self, now: float) -> list[Effect]:
        self.phase, self._saved, self._whys = Phase.SAVING, False, []
        self._deadline = now + (RECOVER_LIMIT_S if self._recovering else SAVE_LIMIT_S)
        self._led_until = now + LEADER_LIMIT_S
        return self._ask_hosts(now)

    def _ask_hosts(self, now: float) -> list[Effect]:
        fleet = self._parts.fleet
        self._hosts, self._ask_at = set(fleet.keeping()), None
        completed, gone = self._parts.succession.completed, self._parts.placement.gone
        copied = bool(self._savers)
        wish = HibernateKernel(fleet.kernel_id, "checkpoint", completed, self._recovering, gone, copied)
        effects: list[Effect] = [ToAgent(host, wish) for host in sorted(self._hosts)]
        return [*self._parts.succession.have_settled(now), *effects] if effects else self._when_saved(now)

    def _unsaved(self, now: float) -> list[Effect]:
        """Go on without the hosts that have not answered: they hinder a rest, but no recovery."""
        silent, self._hosts = sorted(self._hosts), set()
        self._whys.append(f"The hosts have not written a checkpoint within {SAVE_LIMIT_S:g} s.")
        given_up = silent if self._recovering else []
        effects = [effect for host in given_up for effect in self._parts.fleet.agents.silence(host)]
        return effects + self._when_saved(now)

    def _when_saved(self, now: float) -> list[Effect]:
        if self._hosts:
            return []
        if not self._recovering and (self._whys or not self._saved):
            if not self._whys and now + LEADER_LOOK_S < self._led_until:
                self._ask_at = now + LEADER_LOOK_S
                return []
            missing = "No host leads the replicas just now."
            if not self._parts.fleet.keeping():
                missing = "Its group of replicas is not founded yet; ask again in a moment."
            return self._call_off(next(iter(self._whys), missing), now)
        if self._savers:
            return self._copied()
        fleet = self._parts.fleet
        if not self._recovering and (doubted := self._doubted()):
            return self._call_off(doubted, now)
        self.phase, self._deadline, self._ask_at = Phase.STOPPING, now + STOP_LIMIT_S, None
        self._hosts = set(fleet.keeping())
        why = "most replicas of its kernel were given up" if self._recovering else "the kernel was hibernated"
        effects = self._put_down(why, now)
        stop = HibernateKernel(fleet.kernel_id, "stop")
        effects += [ToAgent(host, stop) for host in sorted(self._hosts)]
        return effects + self._when_stopped(now)

    def _copied(self) -> list[Effect]:
        body = pack({"status": "ok", "busy": False})
        return [effect for request in self._go_on() for effect in answers.whole(request, body)]

    def _not_copied(self, why: str) -> list[Effect]:
        fault = Fault("CannotSave", f"This kernel cannot be copied now: {why}")
        return [effect for request in self._go_on() for effect in answers.refusal(request, fault)]

    def _go_on(self) -> list[ClientRequest]:
        """Go on as before, unless somebody wants a rest by now; return who wanted a checkpoint only."""
        self.phase, self._deadline, self._ask_at = (Phase.WANTED if self._askers else Phase.AWAKE), None, None
        savers, self._savers = self._savers, []
        return savers

    def _doubted(self) -> str:
        """Say what a process has that no other could make of a checkpoint; else nothing."""
        doubts = self._parts.placement.doubts
        said = said_of(doubts.binding(self._parts.fleet.ready()))
        return f"{said}; mend or delete it, then hibernate (`%replkernel pins` lists all)." if said else ""

    def _when_stopped(self, now: float) -> list[Effect]:
        if self.phase is not Phase.STOPPING or self._hosts:
            return []
        slept = self._parts.fleet.sleep()
        self.phase, self._deadline, self._alone_since = Phase.ASLEEP, None, now
        effects: list[Effect] = [
            *slept,
            Register("hibernated", self._parts.succession.state_bytes),
            Log("the kernel hibernates"),
        ]
        askers, self._askers = self._askers, []
        effects += [effect for request in askers for effect in _slept(request)]
        if self._recovering:
            return effects + self._wake(now)
        return effects

    def _call_off(self, why: str, now: float) -> list[Effect]:
        """Go on as before, and say why there is no hibernation."""
        if self._savers:
            return self._not_copied(why)
        self.phase, self._deadline, self._ask_at = Phase.AWAKE, None, None
        self._used_at = now + (AGAIN_S if self._unused else 0.0)
        sentence = f"This kernel does not hibernate: {why}"
        askers, self._askers = self._askers, []
        if not askers and not self._unused:
            self._parts.notices.add(sentence)
        fault = Fault("CannotHibernate", sentence)
        refused = [effect for request in askers for effect in answers.refusal(request, fault)]
        return [Log(sentence, "warning"), *refused]

    def _wake(self, now: float) -> list[Effect]:
        self.phase, self._used_at, self._recovering = Phase.AWAKE, now, False
        return [Register("live"), *self._parts.fleet.revive(now)]

    # -- time ------------------------------------------------------------------------------------------

    def _is_due(self, now: float) -> bool:
        return self._deadline is not None and now >= self._deadline

    def _lingered(self, now: float) -> bool:
        due = self._leaves_at()
        return due is not None and now >= due

    def _leaves_at(self) -> float | None:
        if self.phase is not Phase.ASLEEP or self._linger_s is None or self._clients:
            return None
        return self._alone_since + self._linger_s

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        if self.phase is Phase.AWAKE:
            return self._used_at + self._idle_s if self._idle_s else None
        if self.phase is Phase.WANTED:
            return self._page_until
        if self._deadline is not None and self._ask_at is not None:
            return min(self._deadline, self._ask_at)
        return self._deadline if self.holds else self._leaves_at()

    def check_invariants(self) -> None:
        """Assert that whoever waits for hosts has a limit, and that rest is rest."""
        assert self.holds == (self._deadline is not None), "a wait without a limit"
        assert self.holds or not self._hosts, "hosts are awaited for nothing"
        assert (self.phase is Phase.ASLEEP) == self._parts.fleet.asleep, "asleep, and not"
        assert len(self._askers) <= ASKERS_MAX + 1, "too many askers"


def _slept(request: ClientRequest | None) -> list[Effect]:
    if request is None:
        return []
    return answers.whole(request, pack({"status": "ok", "state": "hibernated"}))
