"""The laws of leased cells under any order of events: none runs without its lease or twice, none leaks."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.leasing.wire import (
    Denied,
    FromClient,
    Granted,
    GrantedLease,
    KernelGone,
    KernelHere,
    LeaseBack,
    LeaseKept,
    LeaseLingers,
    LeaseOver,
    LeaseWanted,
    LeaseWish,
    Waiting,
    WishOver,
)
from replkernel.protocol.envelope import read_envelope
from replkernel.records import HostName
from replkernel.router.core import events
from replkernel.router.core.placement import Policy
from tests.support.examples import examples
from tests.support.router_world import HOST
from tests.unit.router.test_laws import STEP, Play

HOSTS = (HOST, HostName("there"))
LEASED = st.one_of(
    st.tuples(st.just("needs"), st.integers(1, 3)),
    st.tuples(st.just("grant"), st.sampled_from(HOSTS)),
    st.tuples(st.just("place"), st.integers(0, 3)),
    st.tuples(st.just("deny"), st.none()),
    st.tuples(st.just("over"), st.integers(0, 3)),
    st.tuples(st.just("wanted"), st.integers(0, 3)),
    st.tuples(st.just("down"), st.none()),
    st.tuples(st.just("up"), st.none()),
)


class Model:
    """A scheduler as its clients see it: what waits, and which leases are in force, lingering ones marked."""

    def __init__(self) -> None:
        self.waiting: dict[str, LeaseWish] = {}
        self.leases: dict[str, GrantedLease] = {}
        self.lingering: set[str] = set()
        self.up = False
        self.fence = 0

    def take(self, message: FromClient) -> list[Any]:
        """Take what the router says; return what is answered at once."""
        assert self.up, f"{message} is said to nobody"
        match message:
            case LeaseWish():
                held = [lease for lease in self.leases.values() if lease.request == message.request]
                if held:
                    return [Granted(held[0])]
                self.waiting[message.request] = message
            case WishOver():
                self.waiting.pop(message.request, None)
            case LeaseBack():
                assert self.leases.get(message.lease, message).fence == message.fence
                self.leases.pop(message.lease, None)
                self.lingering.discard(message.lease)
            case LeaseLingers() if message.lease in self.leases:
                self.lingering.add(message.lease)
            case LeaseKept():
                if message.lease not in self.leases:
                    return [LeaseOver(message.lease, "never known")]
            case KernelHere():
                told = {held.lease for held in message.leases}
                return [LeaseOver(lease, "never known") for lease in sorted(told - set(self.leases))]
            case KernelGone():
                self.leases.clear()
                self.waiting.clear()
        return []

    def grant(self, host: HostName) -> Granted | None:
        """Serve the first who waits, where he can be served."""
        for request, wish in self.waiting.items():
            if wish.hosts and host not in wish.hosts:
                continue
            del self.waiting[request]
            self.fence += 1
            gpus = tuple(f"g{number}" for number in range(wish.gpus))
            lease = GrantedLease(f"l{self.fence}", request, host, gpus, self.fence, 60.0)
            self.leases[lease.lease] = lease
            return Granted(lease)
        return None


class LeasePlay(Play):
    """Plays steps against a router on two hosts, between its replicas and a scheduler."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy, HOSTS)
        self.model = Model()
        self.needy: dict[str, int] = {}
        self.heard = 0
        self.change("up")

    def step(self, kind: str, value: Any) -> None:
        """Play one step, and let the scheduler hear what came of it."""
        model = self.model
        if kind == "needs":
            cell = self.world.needs(value)
            self.cells.append(cell)
            self.needy[cell] = value
        elif kind in ("up", "down"):
            self.change(kind)
        elif kind == "grant" and model.up:
            self.say(model.grant(value))
        elif kind == "place" and model.up and model.waiting:
            self.say(Waiting(next(iter(model.waiting)), value, None))
        elif kind == "deny" and model.up and model.waiting:
            request = next(iter(model.waiting))
            del model.waiting[request]
            self.say(Denied(request, "no"))
        elif kind in ("over", "wanted") and model.up and value < len(model.leases):
            lease = list(model.leases.values())[value]
            if kind == "wanted" and lease.lease in model.lingering:
                self.say(LeaseWanted(lease.lease, lease.fence, 30.0))
            elif kind == "over":
                del model.leases[lease.lease]
                model.lingering.discard(lease.lease)
                self.say(LeaseOver(lease.lease, "expired"))
        elif kind == "again" and value < len(self.cells) and self.cells[value] in self.needy:
            if "execute_reply:aborted" not in self.world.seen(self.cells[value]):
                self.world.needs(self.needy[self.cells[value]], msg_id=self.cells[value])
        else:
            super().step(kind, value)
        self.hear()

    def change(self, kind: str) -> None:
        """Have the scheduler come or go."""
        self.hear()
        if self.model.up != (kind == "up"):
            self.model.up = kind == "up"
            self.world.leases.scheduler.open()
            self.world.feed(events.SchedulerUp() if self.model.up else events.SchedulerDown("away"))

    def say(self, message: Any) -> None:
        if message is not None:
            self.hear()
            self.world.scheduler(message)

    def hear(self) -> None:
        """Let the scheduler hear what the router has said by now; look at what replicas were sent."""
        while self.heard < len(self.world.all):
            effect = self.world.all[self.heard]
            self.heard += 1
            if isinstance(effect, events.ToReplica) and effect.channel in ("shell", "executions"):
                self.look(effect)
            if isinstance(effect, events.ToScheduler):
                for answer in self.model.take(effect.message):
                    self.world.scheduler(answer)

    def look(self, sent: events.ToReplica) -> None:
        """Assert that a cell which needs GPUs goes to the host of a lease that is in hand."""
        cell = next((c for c in self.needy if self.world.header_frame(c) in sent.frames), None)
        envelope = read_envelope(sent.frames)
        if cell is None or envelope is None:
            return
        assert envelope.gpus is not None and len(envelope.gpus) == self.needy[cell]
        held = self.world.leases.held_leases.of_cell(cell)
        assert held is None or held.lease.gpus == envelope.gpus
        request = [lease for lease in self.model.leases.values() if lease.request.split(":")[1] == cell]
        assert any(lease.host == self.world.fleet.replicas[sent.replica].host for lease in request), cell

    def settle(self) -> None:
        """Bring everybody up, serve everybody, and let everything finish."""
        self.step("up", None)
        for name in ("r1", "r2", "r3"):
            self.step("ready", name)
        for _ in range(4 * len(self.cells) + 4):
            for host in HOSTS:
                self.step("grant", host)
            self.step("wait", 41)
            self.run_cell("finish", "ok")
            self.hear()
            self.step("commit", None)

    def check_told(self, told: list[str]) -> None:
        """Assert that a line which showed the cell to wait was taken away."""
        assert told.count("display_data") == told.count("clear_output"), told


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.one_of(STEP, LEASED), max_size=40), st.sampled_from(["sticky", "rotate", "random"]))
def test_leased_cells_run_under_their_lease_once_and_router_and_scheduler_agree(
    steps: list[tuple[str, Any]], policy: Policy
) -> None:
    play = LeasePlay(policy)
    play.play(steps)
    assert set(play.world.leases.held_leases.by_id) == set(play.model.leases)
    assert set(play.model.leases) == play.model.lingering
    assert not play.model.waiting
