"""What pages are told of what is heard: one snapshot, then each change once, in numbers without a gap."""

from __future__ import annotations

from typing import Any

import msgspec
from replkernel_server.live.account import account_of
from replkernel_server.live.documents import EXECUTIONS_MAX, Account
from replkernel_server.live.state import LiveState
from replkernel_server.scheduling.accounting import SumRow
from replkernel_server.scheduling.documents import QuotaAnswer

from replkernel.protocol.progress import Execution, Holding, Moving, ProgressAnswer
from replkernel.protocol.remote_status import NO_ANSWER
from replkernel.protocol.status import (
    GpuStatus,
    HostStatus,
    KernelStatus,
    LeaseStatus,
    PinnedSection,
    RaftSection,
    ReplicaStatus,
    SchedulerStatus,
    StatusDocument,
    WaitingStatus,
)


def answer(*executions: Execution, now: float = 100.0, **said: Any) -> ProgressAnswer:
    version = max((one.version for one in executions), default=said.pop("version", 0))
    kept = said.pop("kept", tuple(one.msg_id for one in executions))
    return ProgressAnswer(now=now, version=version, executions=executions, kept=kept, **said)


def run(msg_id: str = "m", **said: Any) -> Execution:
    return Execution(msg_id=msg_id, cell_id="cell", **{"version": 1, **said})


def replica(name: str, applied: int, commit: int, **said: Any) -> ReplicaStatus:
    return ReplicaStatus(name, raft=RaftSection("follower", 1, commit, applied), **said)


def test_times_of_a_router_become_unix_times_and_do_not_tremble() -> None:
    state = LiveState()
    state.kernel_told("k", answer(run(accepted_at=90.0)), 1_000.0)
    assert state.snapshot(0).executions[0].accepted_at == 990.0
    state.flush(0)
    state.kernel_told("k", answer(run(accepted_at=90.0), now=101.0), 1_001.1)
    assert state.flush(0) is None
    state.kernel_told("k", answer(run(accepted_at=90.0), now=101.0), 1_011.0)
    changes = state.flush(0)
    assert changes is not None and changes.executions[0].accepted_at == 1_000.0


def test_a_change_is_told_once_under_the_next_number() -> None:
    state = LiveState()
    assert state.flush(0) is None
    state.kernel_told("k", answer(run()), 0)
    first = state.flush(1)
    state.kernel_told("k", answer(run(state="running", version=2)), 0)
    state.kernel_told("k", answer(run(state="done", version=3)), 0)
    second = state.flush(2)
    assert first is not None and second is not None
    assert (first.seq, second.seq) == (1, 2)
    assert [one.state for one in second.executions] == ["done"]
    assert state.flush(3) is None
    assert state.snapshot(4).seq == 2


def test_executions_that_a_kernel_forgets_are_gone_and_so_is_all_of_one_that_ends() -> None:
    state = LiveState()
    state.kernel_told("k", answer(run("a"), run("b")), 0)
    state.flush(0)
    state.kernel_told("k", answer(kept=("b",), version=5), 0)
    changes = state.flush(0)
    assert changes is not None and changes.gone.executions == ["a"]
    state.agents_told(StatusDocument(), [])
    changes = state.flush(0)
    assert changes is not None
    assert (changes.gone.kernels, changes.gone.executions) == (["k"], ["b"])
    assert state.snapshot(0).executions == []


def test_no_more_executions_of_a_kernel_than_the_bound_are_told() -> None:
    state = LiveState()
    runs = [run(f"m{number}", version=number + 1) for number in range(EXECUTIONS_MAX + 30)]
    names = tuple(one.msg_id for one in runs)
    for begin in range(0, len(runs), 40):
        state.kernel_told("k", answer(*runs[begin : begin + 40], kept=names), 0)
    told = [one.msg_id for one in state.snapshot(0).executions]
    assert told == list(names[-EXECUTIONS_MAX:])


def test_a_router_that_counts_anew_is_asked_for_everything() -> None:
    state = LiveState()
    state.kernel_told("k", answer(run(version=9)), 0)
    assert state.version_of("k") == 9
    state.kernel_told("k", answer(kept=("m", "other"), version=2), 0)
    assert state.version_of("k") == 0
    state.kernel_told("k", answer(run(), run("other", version=2)), 0)
    assert state.version_of("k") == 2


def test_a_kernel_is_unsettled_until_its_last_cells_are_safe() -> None:
    state = LiveState()
    for safety, unsettled in (("pending", True), ("durable", False), ("lost", False), ("nothing", False)):
        state.kernel_told("k", answer(run(state="done", safety=safety)), 0)
        assert state.unsettled("k") is unsettled
    state.kernel_told("k", answer(run(state="running", safety="durable")), 0)
    assert state.unsettled("k")


def test_replicas_tell_how_far_behind_they_are_and_what_pins_them() -> None:
    state = LiveState()
    pin = PinnedSection("sock", "socket", "an open socket")
    replicas = (replica("r1", 10, 10, role="executor", pinned=(pin,)), replica("r2", 7, 9))
    state.agents_told(StatusDocument(kernels=(KernelStatus("k", "idle", 3, replicas=replicas),)), ["mine"])
    mine, other = state.snapshot(0).kernels
    assert (mine.kernel_id, mine.replicas, other.kernel_id) == ("mine", [], "k")
    assert [one.lag for one in other.replicas] == [0, 3]
    assert other.replicas[0].pins[0].reason == "an open socket"


def test_what_an_agent_told_of_a_kernel_stays_while_it_is_late() -> None:
    state = LiveState()
    replicas = (replica("r1", 10, 10, role="executor"),)
    told = StatusDocument((HostStatus("h"),), (KernelStatus("mine", "idle", 3, replicas=replicas),))
    state.agents_told(told, ["mine"])
    state.agents_told(StatusDocument((HostStatus("h", NO_ANSWER),)), ["mine", "new"])
    mine, new = state.snapshot(0).kernels
    assert ([one.replica for one in mine.replicas], new.replicas) == (["r1"], [])
    state.agents_told(StatusDocument((HostStatus("h"),)), ["mine"])
    (mine,) = state.snapshot(0).kernels
    assert mine.replicas == [], "it answers, and has the kernel no more"


def test_hosts_leases_and_queue_are_told_when_they_change() -> None:
    state = LiveState()
    gpu = GpuStatus("g0", "H100", 80, utilisation=0.5, state="active", lease="l")
    document = StatusDocument(
        hosts=(HostStatus("h1", "up", (gpu,)), HostStatus("h2")),
        leases=(LeaseStatus("l", "k", "h1", ("g0",), 1, "alice", "a.ipynb", False),),
        waiting=(WaitingStatus("w", "k2", 2, "", "bob", "b.ipynb", False),),
    )
    state.agents_told(document, [])
    changes = state.flush(0)
    assert changes is not None and changes.leases is not None and changes.queue is not None
    assert (changes.leases[0].gpus, changes.queue[0].gpus) == (["g0"], 2)
    assert [(one.user, one.notebook, one.yours) for one in (*changes.leases, *changes.queue)] == [
        ("alice", "a.ipynb", False),
        ("bob", "b.ipynb", False),
    ]
    state.agents_told(document, [])
    assert state.flush(0) is None
    state.agents_told(msgspec.structs.replace(document, hosts=document.hosts[:1], waiting=()), [])
    changes = state.flush(0)
    assert changes is not None
    assert (changes.gone.hosts, changes.hosts, changes.queue, changes.leases) == (["h2"], [], [], None)


def test_since_when_a_lease_is_held_and_a_cell_waits_does_not_change_while_it_does() -> None:
    state = LiveState()
    for wall, ago_s in ((1_000.0, 5.0), (1_002.0, 7.03)):
        lease = LeaseStatus("l", "k", "h1", ("g0",), held_s=ago_s)
        wish = WaitingStatus("w", "k2", 2, position=1, waited_s=ago_s, estimate_s=29.6)
        state.agents_told(StatusDocument(leases=(lease,), waiting=(wish,)), [], wall)
        told = state.snapshot(0)
        assert (told.leases[0].since, told.queue[0].since) == (995.0, 995.0)
        assert (told.queue[0].position, told.queue[0].estimate_s) == (1, 30)
    assert state.flush(0) is not None and state.flush(0) is None
    state.agents_told(StatusDocument(leases=(LeaseStatus("other"),)), [], 1_004.0)
    assert state.snapshot(0).leases[0].since == 0.0, "an older scheduler does not tell"


def test_a_move_of_a_replica_is_told_and_others_are_asked_when_it_begins_and_ends() -> None:
    state = LiveState()
    state.kernel_told("k", answer(), 0)
    assert not state.kernel_told("k", answer(), 0)
    for move in (Moving("h4"), Moving("h4", "no host h4 is up"), None):
        assert state.kernel_told("k", answer(move=move), 0)
        (kernel,) = state.snapshot(0).kernels
        expected = None if move is None else (move.host, move.trouble)
        assert (kernel.move and (kernel.move.host, kernel.move.trouble)) == expected


def test_a_silent_router_is_told_until_it_answers() -> None:
    state = LiveState()
    held = Holding("l", "h", ("g0",), "", 90.0)
    state.kernel_told("k", answer(holdings=(held,), rest="asleep"), 1_000.0)
    state.kernel_silent("k")
    kernel = state.snapshot(0).kernels[0]
    assert (kernel.answers, kernel.rest, kernel.holdings[0].since) == (False, "asleep", 990.0)
    state.kernel_told("k", answer(), 1_000.0)
    assert state.snapshot(0).kernels[0].answers


def test_the_account_is_ones_own() -> None:
    quotas = [QuotaAnswer("ann", 4, 100.0, 0, 1, 0, 12.5), QuotaAnswer("bob", None, None, 0, 0, 0, 0.0)]
    sums = [SumRow("ann", "", 3, 0.0, 0.0, 0.0, 2.0, 9.0, 7.0)]
    assert account_of("ann", quotas, sums) == Account("ann", 2.0, 7.0, 12.5, 100.0, 1, 4, None, None, "")
    assert account_of("", quotas, sums) is None
    assert account_of("", quotas[:1], sums) == account_of("ann", quotas, sums)
    assert account_of("eve", quotas, sums) is None


def test_an_account_has_the_months_money_where_there_are_prices() -> None:
    quotas = [QuotaAnswer("ann", None, None, 0, 0, 0, 0.0, 50.0, 12.25, "EUR")]
    account = account_of("ann", quotas, [])
    assert account is not None
    assert (account.spent_month, account.budget_month, account.currency) == (12.25, 50.0, "EUR")


def test_a_lease_that_is_no_more_has_the_account_asked_for_again() -> None:
    state = LiveState()
    mine, other = (LeaseStatus(name, "k", "h1", ("g",), yours=name == "mine") for name in ("mine", "other"))
    both = StatusDocument(leases=(mine, other), scheduler=SchedulerStatus("u"))
    assert not state.has_ended(both)
    state.agents_told(both, [])
    assert not state.has_ended(both)
    assert not state.has_ended(msgspec.structs.replace(both, leases=(mine,)))
    assert state.has_ended(msgspec.structs.replace(both, leases=(other,)))


def test_the_gpus_of_an_account_are_those_of_the_grid_beside_it() -> None:
    state = LiveState()
    leases = tuple(LeaseStatus(name, "k", "h1", (f"g{name}",)) for name in "ab")
    document = StatusDocument(leases=leases, scheduler=SchedulerStatus("u"))
    state.account_told(Account("ann", 0.0, 0.0, 0.0, None, 2, 4, None, None, ""))
    for held in (leases, leases[:1], ()):
        state.agents_told(msgspec.structs.replace(document, leases=held), [])
        account = state.snapshot(0).account
        assert account is not None and account.gpus_held == len(held)
    state.account_told(Account("ann", 0.0, 0.0, 0.0, None, 2, 4, None, None, ""))
    account = state.snapshot(0).account
    assert account is not None and account.gpus_held == 0


def test_a_router_that_has_not_looked_since_does_not_call_a_scheduler_away_that_answers() -> None:
    state = LiveState()
    away = answer(scheduler="There is no scheduler to lease GPUs from.")
    state.agents_told(StatusDocument(), ["k"])
    state.kernel_told("k", away, 0)
    assert state.snapshot(0).kernels[0].scheduler_trouble
    answers = StatusDocument(scheduler=SchedulerStatus("u"))
    state.agents_told(answers, ["k"])
    assert not state.snapshot(0).kernels[0].scheduler_trouble
    waits = run(state="waiting", trouble="There is no scheduler to lease GPUs from.")
    state.kernel_told("k", answer(waits, scheduler=waits.trouble), 0)
    assert state.snapshot(0).kernels[0].scheduler_trouble == waits.trouble
