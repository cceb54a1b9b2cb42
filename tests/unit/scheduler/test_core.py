"""What hosts and kernels notice of the scheduler's decisions; the laws are checked after every event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler import core as core_module
from replkernel_scheduler.core import GPUS_PER_HOST_MAX, InvariantBroken, SchedulerCore
from replkernel_scheduler.effects import (
    Effect,
    HostRefused,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    LeaseUnknown,
)
from replkernel_scheduler.events import (
    Event,
    HostDown,
    HostUp,
    LeaseAsked,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    TimeReached,
)
from replkernel_scheduler.types import (
    Fence,
    GpuUuid,
    HostName,
    KernelId,
    Lease,
    LeaseId,
    LeaseRequest,
    RequestId,
)


class Bench:
    """A core with a clock that the test turns; its invariants are checked after every event."""

    def __init__(self, fence: int = 0) -> None:
        self.core = SchedulerCore(Fence(fence))
        self.now = 0.0

    def feed(self, event: Event, *, after_s: float = 1.0) -> list[Effect]:
        self.now += after_s
        effects = self.core.handle(event, self.now)
        self.core.check_invariants()
        return effects

    def host(self, name: str, gpus: int) -> list[Effect]:
        return self.feed(HostUp(HostName(name), tuple(GpuUuid(f"GPU-{name}-{i}") for i in range(gpus))))

    def ask(self, request: str, gpus: int = 1, ttl_s: float = 100.0, hosts: str = "") -> list[Effect]:
        allowed = frozenset(HostName(host) for host in hosts.split())
        wish = LeaseRequest(RequestId(request), KernelId(f"kernel-{request}"), gpus, ttl_s, allowed)
        return self.feed(LeaseAsked(wish))

    def release(self, lease: Lease) -> list[Effect]:
        return self.feed(LeaseReleased(lease.lease, lease.fence))


def granted(effects: list[Effect]) -> Lease:
    leases = [effect.lease for effect in effects if isinstance(effect, LeaseGranted)]
    assert len(leases) == 1, effects
    return leases[0]


def test_a_request_gets_the_idle_gpus_of_one_host_at_once() -> None:
    bench = Bench()
    bench.host("a", 4)
    lease = granted(bench.ask("one", gpus=2))
    assert lease.host == "a"
    assert lease.gpus == ("GPU-a-0", "GPU-a-1")
    assert lease.expires_at == bench.now + 100.0


def test_two_leases_never_share_a_gpu_and_the_newer_has_the_larger_fence() -> None:
    bench = Bench(fence=41)
    bench.host("a", 2)
    first, second = granted(bench.ask("one")), granted(bench.ask("two"))
    assert set(first.gpus).isdisjoint(second.gpus)
    assert 41 < first.fence < second.fence


def test_the_host_with_most_idle_gpus_serves_and_names_decide_among_equals() -> None:
    bench = Bench()
    bench.host("b", 2)
    bench.host("a", 2)
    hosts = [granted(bench.ask(name)).host for name in ("one", "two", "three", "four")]
    assert hosts == ["a", "b", "a", "b"]


def test_a_request_is_served_by_the_hosts_it_names_only() -> None:
    bench = Bench()
    bench.host("a", 8)
    bench.host("b", 1)
    assert granted(bench.ask("one", hosts="b")).host == "b"
    assert bench.ask("two", hosts="b") == [LeaseQueued(RequestId("two"), 1)]


def test_requests_are_served_first_come_first_served_and_a_small_one_never_overtakes() -> None:
    bench = Bench()
    bench.host("a", 4)
    three = granted(bench.ask("three", gpus=3))
    assert bench.ask("four", gpus=4) == [LeaseQueued(RequestId("four"), 1)]
    assert bench.ask("one", gpus=1) == [LeaseQueued(RequestId("one"), 2)]
    ended, then = bench.release(three)
    assert isinstance(ended, LeaseEnded)
    assert ended.why == "released"
    assert granted([then]).request == "four"
    assert [wish.request for wish in bench.core.queued()] == ["one"]


def test_asking_again_is_the_same_request() -> None:
    bench = Bench()
    bench.host("a", 1)
    lease = granted(bench.ask("one"))
    assert granted(bench.ask("one")) == lease
    bench.ask("two")
    assert bench.ask("two") == [LeaseQueued(RequestId("two"), 1)]
    assert len(bench.core.queued()) == 1


def test_a_lease_that_is_not_renewed_expires_when_its_time_is_up() -> None:
    bench = Bench()
    bench.host("a", 1)
    lease = granted(bench.ask("one", ttl_s=10.0))
    bench.ask("two")
    assert bench.core.deadline() == lease.expires_at
    bench.now = lease.expires_at - 1.0
    ended, then = bench.feed(TimeReached())
    assert ended == LeaseEnded(lease, "expired")
    assert granted([then]).request == "two"


def test_nothing_is_due_when_nothing_is_leased() -> None:
    bench = Bench()
    bench.host("a", 1)
    assert bench.core.deadline() is None


def test_a_renewal_lets_the_time_begin_anew_and_keeps_gpus_and_fence() -> None:
    bench = Bench()
    bench.host("a", 1)
    lease = granted(bench.ask("one", ttl_s=10.0))
    renewed = granted(bench.feed(LeaseRenewed(lease.lease, lease.fence), after_s=9.0))
    assert renewed.expires_at == bench.now + 10.0
    assert (renewed.gpus, renewed.fence) == (lease.gpus, lease.fence)


@pytest.mark.parametrize("change", [LeaseRenewed, LeaseReleased])
def test_a_lease_is_changed_by_its_fence_only(change: type[LeaseRenewed] | type[LeaseReleased]) -> None:
    bench = Bench()
    bench.host("a", 1)
    lease = granted(bench.ask("one"))
    stale = bench.feed(change(lease.lease, Fence(lease.fence - 1)))
    gone = bench.feed(change(LeaseId("lease-none"), lease.fence))
    assert [type(effect) for effect in stale + gone] == [LeaseUnknown, LeaseUnknown]
    assert bench.core.leases() == [lease]


def test_an_expired_lease_cannot_be_renewed_even_before_the_timer_fires() -> None:
    bench = Bench()
    bench.host("a", 1)
    lease = granted(bench.ask("one", ttl_s=5.0))
    effects = bench.feed(LeaseRenewed(lease.lease, lease.fence), after_s=5.0)
    assert [type(effect) for effect in effects] == [LeaseEnded, LeaseUnknown]


def test_a_host_that_goes_down_ends_its_leases_and_refuses_what_only_it_could_serve() -> None:
    bench = Bench()
    bench.host("a", 4)
    bench.host("b", 1)
    lease = granted(bench.ask("one", gpus=4))
    bench.ask("big", gpus=4)
    ended, refused = bench.feed(HostDown(HostName("a")))
    assert ended == LeaseEnded(lease, "host down")
    assert isinstance(refused, LeaseRefused)
    assert refused.request == "big"
    assert "the most is 1" in refused.why


def test_a_host_that_reports_again_without_a_gpu_ends_the_leases_on_it() -> None:
    bench = Bench()
    bench.host("a", 2)
    first, second = granted(bench.ask("one")), granted(bench.ask("two"))
    assert bench.host("a", 1) == [LeaseEnded(second, "gpu gone")]
    assert bench.core.leases() == [first]


def test_a_host_that_reports_again_unchanged_changes_nothing() -> None:
    bench = Bench()
    bench.host("a", 2)
    lease = granted(bench.ask("one"))
    assert bench.host("a", 2) == []
    assert bench.core.leases() == [lease]


def test_new_gpus_serve_those_that_wait() -> None:
    bench = Bench()
    bench.host("a", 1)
    bench.ask("one")
    bench.ask("two")
    assert granted(bench.host("b", 1)).request == "two"


def test_a_withdrawn_request_is_not_served_and_no_longer_blocks() -> None:
    bench = Bench()
    bench.host("a", 2)
    bench.ask("one")
    bench.ask("both", gpus=2)
    bench.ask("last")
    assert granted(bench.feed(LeaseWithdrawn(RequestId("both")))).request == "last"


@pytest.mark.parametrize(
    ("gpus", "ttl_s", "said"),
    [
        (0, 10.0, "1 to 64 GPUs"),
        (65, 10.0, "1 to 64 GPUs"),
        (1, 0.0, "up to"),
        (1, 1e9, "up to"),
        (3, 10.0, "No host"),
    ],
)
def test_a_wish_that_cannot_come_true_is_refused_in_a_sentence(gpus: int, ttl_s: float, said: str) -> None:
    bench = Bench()
    bench.host("a", 2)
    (refused,) = bench.ask("one", gpus=gpus, ttl_s=ttl_s)
    assert isinstance(refused, LeaseRefused)
    assert said in refused.why


def test_the_queue_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "QUEUE_MAX", 1)
    bench = Bench()
    bench.host("a", 1)
    bench.ask("one")
    bench.ask("two")
    (refused,) = bench.ask("three")
    assert isinstance(refused, LeaseRefused)
    assert "try again later" in refused.why


def test_hosts_that_cannot_be_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.host("a", 1)
    one = GpuUuid("GPU-a-0")
    taken = bench.feed(HostUp(HostName("b"), (one,)))
    twice = bench.feed(HostUp(HostName("c"), (GpuUuid("x"), GpuUuid("x"))))
    many = bench.host("d", GPUS_PER_HOST_MAX + 1)
    monkeypatch.setattr(core_module, "HOSTS_MAX", 1)
    full = bench.host("e", 1)
    whys = [effect.why for effect in taken + twice + many + full if isinstance(effect, HostRefused)]
    assert len(whys) == 4
    assert "offered by host a" in whys[0]
    assert [host.name for host in bench.core.hosts()] == ["a"]


def test_a_clock_that_goes_back_is_a_fault_of_the_driver() -> None:
    bench = Bench()
    bench.host("a", 1)
    with pytest.raises(ValueError, match="went back"):
        bench.core.handle(TimeReached(), bench.now - 0.1)


def test_a_broken_law_is_found() -> None:
    bench = Bench()
    bench.host("a", 1)
    lease = granted(bench.ask("one"))
    bench.core._leases[LeaseId("stolen")] = lease
    with pytest.raises(InvariantBroken, match="two leases"):
        bench.core.check_invariants()


names = st.sampled_from(["a", "b", "c"])
requests = st.sampled_from([f"r{number}" for number in range(6)])


@st.composite
def events(draw: st.DrawFn) -> tuple[str, tuple[object, ...], float]:
    kind = draw(st.sampled_from(["up", "down", "ask", "withdraw", "renew", "release", "time"]))
    step = draw(st.sampled_from([0.0, 0.5, 3.0, 20.0]))
    match kind:
        case "up":
            return kind, (draw(names), draw(st.integers(0, 4))), step
        case "down":
            return kind, (draw(names),), step
        case "ask":
            wanted = draw(st.sets(names, max_size=2))
            return (
                kind,
                (draw(requests), draw(st.integers(0, 5)), draw(st.sampled_from([1.0, 10.0])), wanted),
                step,
            )
        case "withdraw":
            return kind, (draw(requests),), step
        case "renew" | "release":
            return kind, (draw(st.integers(0, 5)), draw(st.integers(-1, 0))), step
    return kind, (), step


def play(story: list[tuple[str, tuple[object, ...], float]]) -> list[list[Effect]]:
    bench = Bench()
    told: list[list[Effect]] = []
    for kind, given_, step in story:
        bench.now += step
        held = bench.core.leases()
        match kind, given_:
            case "up", (str(name), int(count)):
                told.append(bench.host(name, count))
            case "down", (str(name),):
                told.append(bench.feed(HostDown(HostName(name))))
            case "ask", (str(name), int(gpus), float(ttl_s), set(wanted)):
                told.append(bench.ask(name, gpus, ttl_s, " ".join(wanted)))
            case "withdraw", (str(name),):
                told.append(bench.feed(LeaseWithdrawn(RequestId(name))))
            case (("renew" | "release"), (int(which), int(off))):
                lease = held[which % len(held)] if held else None
                name, fence = (lease.lease, lease.fence + off) if lease else (LeaseId("none"), 0)
                change = LeaseRenewed if kind == "renew" else LeaseReleased
                told.append(bench.feed(change(name, Fence(fence))))
            case _:
                told.append(bench.feed(TimeReached()))
    return told


@settings(max_examples=150, deadline=None)
@given(st.lists(events(), max_size=40))
def test_the_laws_hold_in_every_story_and_the_same_story_has_the_same_effects(
    story: list[tuple[str, tuple[object, ...], float]],
) -> None:
    told = play(story)
    assert play(story) == told
    fences = [
        effect.lease.fence for effects in told for effect in effects if isinstance(effect, LeaseGranted)
    ]
    new = list(dict.fromkeys(fences))
    assert new == sorted(new)
