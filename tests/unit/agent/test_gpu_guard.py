"""Whose GPUs are open on a host: what the hook is asked, in which order, and what follows where it fails."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.agent.core.gpu_guard import AGAIN_MAX_S, AGAIN_S, GpuAccess, GpuGuard, HookCall
from replkernel.leasing.wire import LeaseHere, LeasesOpen


def lease(name: str, user: str, *gpus: str, kernel: str = "k") -> LeaseHere:
    return LeaseHere(name, user, kernel, gpus)


def runs(guard: GpuGuard, now: float = 0.0, failing: dict[str, str] | None = None) -> list[HookCall]:
    """Do what the guard wants until it wants nothing; `failing` are clauses by action."""
    calls = []
    while (call := guard.next(now)) is not None:
        calls.append(call)
        guard.done(call, (failing or {}).get(call.action, ""), now)
        assert len(calls) < 100
    return calls


def test_nothing_is_opened_or_closed_before_the_scheduler_has_told() -> None:
    assert GpuGuard({GpuAccess("alice", "0"): "k"}).next(0.0) is None


def test_a_lease_is_opened_answered_and_closed() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0", "1")])
    assert runs(guard) == [HookCall("bind", "alice", "k", "l", ("0", "1"), ("0", "1"))]
    assert guard.answer() == LeasesOpen(("l",)) and guard.answer() is None
    guard.told([])
    assert runs(guard) == [HookCall("release", "alice", "k", "", ("0", "1"), ())]
    assert guard.accesses == {}


def test_the_former_holder_is_shut_out_before_the_next_comes_in() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([lease("m", "bob", "0")])
    assert [(call.action, call.owner) for call in runs(guard)] == [("release", "alice"), ("bind", "bob")]


def test_two_holders_of_parts_have_one_gpu_open_at_the_same_time_and_each_is_closed_for_itself() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([lease("l", "alice", "0"), lease("m", "bob", "0", kernel="k2")])
    assert [(call.action, call.owner) for call in runs(guard)] == [("bind", "bob")]
    guard.told([lease("m", "bob", "0", kernel="k2")])
    assert [(call.action, call.owner) for call in runs(guard)] == [("release", "alice")]
    assert guard.accesses == {GpuAccess("bob", "0"): "k2"}


def test_a_newer_lease_of_the_same_owner_on_the_same_gpu_asks_the_hook_nothing() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([lease("m", "alice", "0")])
    assert runs(guard) == [] and guard.answer() == LeasesOpen(("m",))


def test_a_lease_that_cannot_be_opened_is_refused_and_its_doors_are_closed() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    calls = runs(guard, failing={"bind": "it says no"})
    assert [call.action for call in calls] == ["bind", "release"]
    answer = guard.answer()
    assert answer is not None and answer.leases == () and answer.failed[0].why == "it says no"


def test_a_gpu_that_could_not_be_closed_is_opened_for_nobody_else_and_closed_again_later() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([lease("m", "bob", "0")])
    assert [call.action for call in runs(guard, failing={"release": "setfacl failed"})] == ["release"]
    answer = guard.answer()
    assert answer is not None and "0 could not be closed" in answer.failed[0].why
    assert "setfacl failed" in answer.failed[0].why
    guard.told([])
    assert guard.next(AGAIN_S - 1) is None and guard.deadline() == AGAIN_S
    assert [call.owner for call in runs(guard, AGAIN_S)] == ["alice"]
    guard.told([lease("n", "bob", "0")])
    assert [call.owner for call in runs(guard, AGAIN_S)] == ["bob"]


def test_a_gpu_that_cannot_be_closed_is_tried_ever_more_slowly_up_to_a_bound() -> None:
    guard, now, waits = GpuGuard(), 0.0, []
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([])
    for _ in range(8):
        assert runs(guard, now, failing={"release": "no"})
        waits.append(guard.deadline() - now)
        now = guard.deadline()
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (AGAIN_S, AGAIN_MAX_S)


def test_a_gpu_that_could_not_be_closed_is_named_until_it_was() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([])
    guard.answer()
    runs(guard, failing={"release": "no"})
    assert guard.answer() == LeasesOpen(stuck=("0",)) and guard.answer() is None
    runs(guard, AGAIN_S)
    assert guard.answer() == LeasesOpen() and guard.answer() is None


def test_after_a_bind_that_failed_the_same_owner_gets_no_gpu_without_one_that_did_not() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard, failing={"bind": "it says no", "release": "nor that"})
    guard.told([lease("m", "alice", "0")])
    assert [call.action for call in runs(guard, failing={"bind": "it says no", "release": "nor that"})][
        :1
    ] == ["bind"]
    answer = guard.answer()
    assert answer is not None and answer.leases == () and answer.failed[0].why == "it says no"
    guard.told([lease("n", "alice", "0")])
    assert [call.action for call in runs(guard)] == ["bind"] and guard.answer() == LeasesOpen(("n",))


def test_after_a_release_that_failed_the_same_owner_s_gpu_is_opened_again() -> None:
    """The hook may have closed it and failed after that."""
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([])
    runs(guard, failing={"release": "a process keeps it open"})
    guard.told([lease("m", "alice", "0")])
    assert [call.action for call in runs(guard)] == ["bind"]


def test_who_is_let_in_to_one_gpu_is_not_let_in_to_one_that_is_to_be_closed() -> None:
    guard = GpuGuard()
    guard.told([lease("l", "alice", "0")])
    runs(guard)
    guard.told([])
    runs(guard, failing={"release": "no"})
    guard.told([lease("m", "alice", "1")])
    assert runs(guard) == [HookCall("bind", "alice", "k", "m", ("1",), ("1",))]


def test_a_new_agent_closes_what_the_one_before_left_open_and_opens_again_what_is_leased() -> None:
    """The one before may have ended between writing down that it opens a GPU and having it opened."""
    guard = GpuGuard({GpuAccess("alice", "0"): "k", GpuAccess("bob", "1"): "k2"})
    guard.told([lease("l", "bob", "1", kernel="k2")])
    assert runs(guard) == [
        HookCall("release", "alice", "k", "", ("0",), ()),
        HookCall("bind", "bob", "k2", "l", ("1",), ("1",)),
    ]
    assert guard.answer() == LeasesOpen(("l",))


step = st.tuples(
    st.dictionaries(st.sampled_from("0123"), st.sampled_from(["alice", "bob"])), st.booleans(), st.booleans()
)


@settings(deadline=None)
@given(st.lists(step, max_size=8))
def test_no_gpu_is_ever_open_to_two(steps: list[tuple[dict[str, str], bool, bool]]) -> None:
    guard, number, now = GpuGuard(), 0, 0.0
    really: set[GpuAccess] = set()  # May be open.
    surely: set[GpuAccess] = set()  # Are open.
    for holders, bind_fails, release_fails in steps:
        number, now = number + 1, now + 1.0
        guard.told([lease(f"{number}-{gpu}", user, gpu) for gpu, user in holders.items()])
        while (call := guard.next(now)) is not None:
            accesses = {GpuAccess(call.owner, gpu) for gpu in call.gpus}
            fails = bind_fails if call.action == "bind" else release_fails
            surely = surely | accesses if call.action == "bind" and not fails else surely - accesses
            if call.action == "bind":
                really |= accesses  # A bind that fails may have opened them all the same.
            elif not fails:
                really -= accesses
            guard.done(call, "no" if fails else "", now)
            assert len({gpu for _, gpu in really}) == len(really), "two users can open one GPU"
            assert really <= guard.accesses.keys()
        answer = guard.answer()
        assert answer is not None
        for name in answer.leases:
            gpu = name.partition("-")[2]
            assert GpuAccess(holders[gpu], gpu) in surely, "said to be open and is not"
