"""The hosts of a run: those of the beginning, those that are provisioned, failures and returns, warm
processes.

Law: what is answered about a host is answered to the host that was asked; one that went in between is
another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from replkernel_scheduler.effects import CancelHost, HostRefused, Prewarm, ProvisionHost, ReleaseHost
from replkernel_scheduler.events import FREES, HOSTS, Event, HostDown, HostNotProvisioned, HostUp, Prewarmed
from replkernel_scheduler.sim.costs import CostDice
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.faults import Faults
from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.sim.nodes import Hosts
from replkernel_scheduler.sim.plan import Plan, gpus_of
from replkernel_scheduler.sim.replicas import Replicas
from replkernel_scheduler.types import HostName, ReservationId

Feed: TypeAlias = Callable[[Event, float], None]


class Machines:
    """Hosts that are up, by name, each with the number of its coming."""

    def __init__(
        self,
        plan: Plan,
        event_queue: EventQueue,
        feed: Feed,
        costs: CostDice,
        faults: Faults,
        figures: Figures,
        replicas: Replicas,
    ) -> None:
        """Have the hosts of the beginning come at time 0."""
        self._plan, self._event_queue, self._feed = plan, event_queue, feed
        self._costs, self._faults, self._figures, self._replicas = costs, faults, figures, replicas
        self._up: dict[HostName, int] = {}
        self._came = 0
        self._cancelled: set[ReservationId] = set()
        self.shapes: dict[HostName, Hosts] = {}
        """What each host of the beginning is; those that are provisioned are as the first."""
        for number, shape in enumerate(plan.host_list()):
            name = HostName(f"host-{number:04}")
            self.shapes[name] = shape
            event_queue.post(0.0, HOSTS, self._come, (name, None))
        self._usual = Hosts(1, plan.gpus_per_host)

    def shape(self, name: HostName) -> Hosts:
        """Return what a host is."""
        return self.shapes.get(name, self._usual)

    def names(self) -> list[HostName]:
        """Return the hosts that are up, in the order in which they came."""
        return list(self._up)

    def provision(self, effect: ProvisionHost, now: float) -> None:
        """Have a host come after a while, or say that it will not."""
        at = now + self._costs.boot()
        if self._faults.boot_fails():
            self._event_queue.post(at, FREES, self._tell, HostNotProvisioned(effect.reservation))
        else:
            name = HostName(f"new-{effect.reservation}")
            self._event_queue.post(at, HOSTS, self._come, (name, effect.reservation))
            self._figures.host_added(now)

    def cancel(self, effect: CancelHost, now: float) -> None:
        """Have a host not come."""
        self._cancelled.add(effect.reservation)

    def release(self, effect: ReleaseHost, now: float) -> None:
        """Have a host go after a while."""
        came = self._up.get(effect.host)
        if came is not None:
            self._event_queue.post(now + self._costs.release(), FREES, self._leave, (effect.host, came))

    def prewarm(self, effect: Prewarm, now: float) -> None:
        """Have warm processes ready after a while."""
        about = (effect.host, self._up.get(effect.host))
        for _ in range(effect.count):
            self._event_queue.post(now + self._costs.prewarm(), FREES, self._warm, about)

    def refused(self, effect: HostRefused, now: float) -> None:
        """Stop: the cluster that was planned cannot be."""
        shape = self.shape(effect.host)
        where = "--nodes" if self._plan.nodes else f"--hosts {self._plan.hosts}x{shape.gpus}"
        raise SimulationError(f"{where}: {effect.why}")

    def _come(self, about: tuple[HostName, ReservationId | None], now: float) -> None:
        name, reservation = about
        if reservation is not None and reservation in self._cancelled:
            return
        self._came += 1
        self._up[name] = self._came
        shape = self.shape(name)
        self._figures.host_up(name, shape, now)
        lasts_s = self._faults.host_lasts_s(name)
        if lasts_s is not None:
            self._event_queue.post(now + lasts_s, FREES, self._fail, (name, self._came))
        cpus = shape.cpus if self._plan.counts("cpus") else 0.0
        memory_gb = shape.memory_gb if self._plan.counts("memory_gb") else 0.0
        up = HostUp(name, gpus_of(name, shape), cpus, memory_gb, reservation=reservation, watched=True)
        self._feed(up, now)

    def _fail(self, about: tuple[HostName, int], now: float) -> None:
        name, came = about
        if self._up.get(name) == came:
            self._figures.host_failed(now)
            self._event_queue.post(now + self._faults.host_away_s(name), HOSTS, self._come, (name, None))
            self._go(name, now)

    def _leave(self, about: tuple[HostName, int], now: float) -> None:
        name, came = about
        if self._up.get(name) == came:
            self._figures.host_released(now)
            self._go(name, now)

    def _go(self, name: HostName, now: float) -> None:
        del self._up[name]
        self._figures.host_down(name, self.shape(name), now)
        self._replicas.host_gone(name, now)
        self._feed(HostDown(name), now)

    def _warm(self, about: tuple[HostName, int | None], now: float) -> None:
        name, came = about
        if came is not None and self._up.get(name) == came:
            self._feed(Prewarmed(name), now)

    def _tell(self, event: Event, now: float) -> None:
        self._feed(event, now)
