"""What a front end is told of executions: the step that each is at, and whether what it changed is safe."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from replkernel.leasing.wire import Denied, Waiting
from replkernel.protocol.agent_to_router import (
    AgentWelcome,
    CheckpointFound,
    Elected,
    ReplicaLost,
    ReplicaPrepared,
    WentBack,
)
from replkernel.protocol.progress import GPU_REQUEST, REQUEST, TOLD_MAX
from replkernel.records import Fence, KernelId, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.progress import EXECUTIONS_MAX
from tests.support.router_world import HOST, World


def told(world: World, since: int = 0) -> dict[str, Any]:
    """Return what a front end is answered."""
    return world.answer(world.request(REQUEST, {"since": since}, channel="control"))


def of(world: World, msg_id: str) -> dict[str, Any]:
    return next(known for known in told(world)["executions"] if known["msg_id"] == msg_id)


def cell(world: World, gpus: int = 0, code: str = "pass") -> str:
    return world.execute(code, metadata={"cellId": "cell", "replkernel": {"gpus": gpus}})


def ran(world: World, name: str = "r1") -> str:
    msg_id = cell(world)
    world.begin(name, msg_id)
    world.finish(name, msg_id)
    return msg_id


def test_a_cell_is_told_step_by_step_and_durable_only_once_it_is_committed() -> None:
    world = World().up()
    world.now = 1.0
    msg_id = cell(world)
    assert (of(world, msg_id)["state"], of(world, msg_id)["host"]) == ("moving", "here")
    world.now = 2.0
    world.begin("r1", msg_id)
    assert of(world, msg_id)["state"] == "running"
    world.now = 5.0
    world.finish("r1", msg_id, count=7)
    over = of(world, msg_id)
    assert (over["state"], over["safety"], over["count"]) == ("done", "pending", 7)
    world.now = 6.0
    world.commit("r1", 1)
    safe = of(world, msg_id)
    assert safe["safety"] == "durable"
    steps = ("accepted_at", "sent_at", "began_at", "ended_at", "durable_at")
    assert [safe[step] for step in steps] == [1.0, 1.0, 2.0, 5.0, 6.0]


def test_the_code_that_runs_is_told_by_its_digest_for_a_copy_of_the_cell_may_hold_other_code() -> None:
    world = World().up()
    msg_id = cell(world, code="x = 'é'")
    assert of(world, msg_id)["code_digest"] == hashlib.sha256("x = 'é'".encode()).hexdigest()


def test_an_election_is_a_step_of_the_cell_for_which_it_was_held_and_of_no_other() -> None:
    world = World().up()
    before = ran(world)
    world.commit("r1", 1)
    world.lose("r1")
    world.now = 3.0
    msg_id = cell(world)
    world.now = 4.0
    world.say(Elected(Seq(2), ReplicaId("r2")))
    held = of(world, msg_id)
    assert (held["election_at"], held["sent_at"], held["replica"]) == (3.0, 4.0, "r2")
    world.begin("r2", msg_id)
    world.finish("r2", msg_id)
    assert [of(world, one)["election_at"] for one in (before, cell(world))] == [None, None]


def test_why_gpus_were_refused_stays_with_the_cell() -> None:
    world = World().up()
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    msg_id = cell(world, gpus=2)
    world.scheduler(Denied(f"k:{msg_id}", "The gpu_quota of carol is 1 GPUs at once."))
    over = of(world, msg_id)
    assert (over["status"], over["ename"]) == ("error", "GpusDenied")
    assert over["trouble"] == "The gpu_quota of carol is 1 GPUs at once."


def test_how_long_the_gpus_took_to_be_bound_is_told_with_the_reply() -> None:
    world = World().up()
    msg_id = cell(world)
    world.begin("r1", msg_id)
    assert of(world, msg_id)["bind_s"] is None
    said = {"replkernel": {"replica": "r1", "host": "here", "bind_s": 0.25}}
    world.output("r1", "execute_reply", msg_id, {"status": "ok", "execution_count": 1}, "shell", said)
    assert of(world, msg_id)["bind_s"] == 0.25


def test_the_leases_cost_is_told_with_the_reply() -> None:
    world = World().up()
    msg_id = cell(world)
    said = {"replkernel": {"replica": "r1", "host": "here", "cost": 0.25, "currency": "EUR and more"}}
    world.output("r1", "execute_reply", msg_id, {"status": "ok", "execution_count": 1}, "shell", said)
    over = of(world, msg_id)
    assert (over["cost"], over["currency"]) == (0.25, "EUR and ")


def test_a_reply_that_overtakes_the_news_that_its_cell_began_takes_no_step_from_it() -> None:
    world = World().up()
    world.now = 1.0
    msg_id = cell(world)
    world.now = 2.0
    said = {"replkernel": {"replica": "r1", "host": "here", "bind_s": 0.25}}
    world.output("r1", "execute_reply", msg_id, {"status": "ok", "execution_count": 1}, "shell", said)
    world.now = 3.0
    world.output("r1", "execute_input", msg_id, {"code": "pass", "execution_count": 1})
    over = of(world, msg_id)
    assert (over["state"], over["began_at"], over["ended_at"]) == ("done", 2.0, 2.0)


def test_a_commit_that_comes_before_the_reply_counts_with_it() -> None:
    world = World().up()
    msg_id = cell(world)
    world.begin("r1", msg_id)
    world.commit("r1", 1)
    assert of(world, msg_id)["safety"] == "pending"
    world.finish("r1", msg_id)
    assert of(world, msg_id)["safety"] == "durable"


def test_variables_that_are_still_checked_keep_a_cell_pending() -> None:
    world = World().up()
    msg_id = ran(world)
    world.commit("r1", 1, owing=("big",))
    assert (of(world, msg_id)["safety"], of(world, msg_id)["unaudited"]) == ("pending", ["big"])
    world.commit("r1", 1, audit=1)
    assert (of(world, msg_id)["safety"], of(world, msg_id)["unaudited"]) == ("durable", [])


def test_a_cell_whose_process_died_first_is_lost_whatever_that_replica_commits_later() -> None:
    world = World().up()
    lost = ran(world)
    world.lose("r1")
    assert of(world, lost)["safety"] == "lost"
    world.ready("r1")
    later = cell(world)
    world.wait(60)
    name = world.sent_to(later)[-1]
    world.begin(name, later)
    world.finish(name, later)
    for replica in ("r1", "r2", "r3"):
        world.commit(replica, world.envelope(later).seq)
    assert of(world, lost)["safety"] == "lost"
    assert of(world, later)["safety"] == "durable"


def test_a_change_that_the_keeper_of_a_dead_process_has_is_not_lost() -> None:
    world = World().up()
    msg_id = ran(world)
    world.say(ReplicaLost(ReplicaId("r1"), "killed", returning=True, kept=Seq(1)))
    assert of(world, msg_id)["safety"] == "pending"
    world.commit("r1", 1)
    assert of(world, msg_id)["safety"] == "durable"


def test_no_cell_since_the_last_whole_point_is_durable_and_all_of_them_go_with_their_process() -> None:
    world = World().up()
    first, second, third = ran(world), ran(world), ran(world)
    world.commit("r1", 1)
    world.commit("r1", 2, owing=("model",))
    world.commit("r1", 3, owing=("model",))
    assert [of(world, one)["safety"] for one in (first, second, third)] == ["durable", "pending", "pending"]
    world.say(ReplicaLost(ReplicaId("r1"), "killed", returning=True, newest=Seq(0)))
    assert [of(world, one)["safety"] for one in (first, second, third)] == ["durable", "lost", "lost"]


def test_a_change_that_the_log_did_not_take_is_lost_once_another_goes_on() -> None:
    world = World(replicas=2).up()
    first, second = ran(world), ran(world)
    world.commit("r1", 1)
    world.say(ReplicaLost(ReplicaId("r1"), "killed", returning=True, kept=Seq(2), newest=Seq(2)))
    assert of(world, second)["safety"] == "pending"
    later = cell(world)
    world.wait(6)
    world.say(WentBack(ReplicaId("r2"), world.envelope(later).seq, Seq(1)))
    assert [of(world, one)["safety"] for one in (first, second)] == ["durable", "lost"]


def founded(world: World) -> World:
    """Have a group founded, or the next one, whose members then are ready."""
    for number, name in enumerate(("r1", "r2", "r3")):
        world.say(ReplicaPrepared(ReplicaId(name), f"127.0.0.1:{number}"))
    return world.up()


def brought_back(world: World, seq: int) -> None:
    """Have all replicas gone with their disk, and the kernel go on from the checkpoint as of a cell."""
    found = CheckpointFound(KernelId("k"), "k/checkpoint", "digest", 1, Seq(seq), Seq(seq), Fence(seq), 1)
    world.feed(events.AgentGone(HOST))
    world.feed(events.AgentFound(HOST, "token"))
    world.say(AgentWelcome(HOST, 2))
    world.wait(60)
    world.say(found)
    founded(world)


def test_a_cell_that_the_checkpoint_lacks_is_lost_whatever_the_next_group_commits() -> None:
    world = founded(World().up())
    first, second, third, fourth = ran(world), ran(world), ran(world), ran(world)
    world.commit("r1", 1)
    brought_back(world, 2)
    assert [of(world, one)["safety"] for one in (first, second)] == ["durable", "durable"]
    assert [of(world, one)["safety"] for one in (third, fourth)] == ["lost", "lost"]
    later = cell(world)
    world.begin("r1", later)
    world.finish("r1", later)
    assert of(world, later)["safety"] == "pending"
    world.commit("r1", world.envelope(later).seq)
    assert [of(world, one)["safety"] for one in (third, fourth, later)] == ["lost", "lost", "durable"]


def test_a_cell_that_was_durable_is_lost_where_all_disks_went_before_a_checkpoint_had_it() -> None:
    world = founded(World().up())
    first, second = ran(world), ran(world)
    world.commit("r1", 2)
    brought_back(world, 1)
    assert [of(world, one)["safety"] for one in (first, second)] == ["durable", "lost"]


@pytest.mark.parametrize(("pending", "safety"), [(1, "lost"), (2, "pending")])
def test_a_cell_whose_process_died_unseen_is_lost_unless_its_change_is_on_its_way(
    pending: int, safety: str
) -> None:
    world = World().up()
    first, second = ran(world), ran(world)
    world.commit("r1", 1)
    world.feed(events.AgentGone(HOST))
    world.now += 1.0
    world.feed(events.AgentFound(HOST, "token"))
    replicas = tuple(ReplicaId(name) for name in ("r1", "r2", "r3"))
    world.say(
        AgentWelcome(
            HOST,
            2,
            "one",
            world.fleet.spec,
            replicas,
            Seq(1),
            Fence(1),
            newest_seq=Seq(2),
            executor=ReplicaId("r1"),
            pending_seq=Seq(pending),
        )
    )
    world.ready("r1", 1)
    assert [of(world, one)["safety"] for one in (first, second)] == ["durable", safety]
    world.commit("r1", 2)
    assert of(world, second)["safety"] == ("durable" if safety == "pending" else "lost")


def test_a_cell_that_dies_in_the_middle_is_an_error_and_nothing_of_it_is_kept() -> None:
    world = World().up()
    msg_id = cell(world)
    world.begin("r1", msg_id)
    world.lose("r1")
    over = of(world, msg_id)
    assert (over["state"], over["status"], over["ename"]) == ("done", "error", "ExecutorLost")
    assert over["safety"] == "lost"


def test_a_cell_that_never_reached_a_process_is_sent_again_and_becomes_durable() -> None:
    world = World().up()
    msg_id = cell(world)
    world.lose("r1", ago_s=1.0)
    world.wait(30)
    name = world.sent_to(msg_id)[-1]
    assert name != "r1"
    world.begin(name, msg_id)
    world.finish(name, msg_id)
    world.commit(name, world.envelope(msg_id).seq)
    assert (of(world, msg_id)["replica"], of(world, msg_id)["safety"]) == (name, "durable")


def test_a_cell_behind_another_is_queued_and_one_that_is_aborted_has_nothing_to_commit() -> None:
    world = World().up()
    first, second = cell(world), cell(world)
    assert of(world, second)["state"] == "queued"
    world.begin("r1", first)
    world.lose("r1")
    over = of(world, second)
    assert (over["state"], over["status"], over["safety"]) == ("done", "aborted", "nothing")


def test_a_cell_that_waits_for_gpus_tells_its_place() -> None:
    world = World().up()
    world.leases.scheduler.open()
    world.feed(events.SchedulerUp())
    world.now = 3.0
    msg_id = cell(world, gpus=2)
    assert (of(world, msg_id)["state"], of(world, msg_id)["wanted"]) == ("waiting", 2)
    world.scheduler(Waiting(f"k:{msg_id}", 4, 60.0))
    assert (of(world, msg_id)["position"], of(world, msg_id)["estimate_s"]) == (4, 60.0)
    world.now = 9.0
    world.grant(f"k:{msg_id}", ("g0", "g1"))
    served = of(world, msg_id)
    assert (served["state"], served["position"], served["gpus"]) == ("moving", None, ["g0", "g1"])
    assert (served["wished_at"], served["granted_at"]) == (3.0, 9.0)
    holding = told(world)["holdings"][0]
    assert (holding["gpus"], holding["cell"]) == (["g0", "g1"], msg_id)


def test_asking_publishes_nothing_and_sends_nothing_to_a_replica() -> None:
    world = World().up()
    told(world)
    assert world.of(events.Publish) == world.of(events.ToReplica) == []


def test_only_what_changed_since_is_told_again() -> None:
    world = World().up()
    first = ran(world)
    version = told(world)["version"]
    assert told(world, version)["executions"] == []
    world.commit("r1", 1)
    assert [known["msg_id"] for known in told(world, version)["executions"]] == [first]


def test_no_more_than_the_bound_is_remembered_and_an_answer_is_a_portion() -> None:
    world = World().up()
    world.checks = False
    for seq in range(1, EXECUTIONS_MAX + 20):
        ran(world)
        world.commit("r1", seq)
    seen: list[dict[str, Any]] = []
    version = 0
    while True:
        answer = told(world, version)
        if not answer["executions"]:
            break
        assert len(answer["executions"]) <= TOLD_MAX
        seen += answer["executions"]
        version = answer["version"]
    assert len(seen) == EXECUTIONS_MAX
    assert all(known["safety"] == "durable" for known in seen)
    world.checks = True
    told(world)


def test_a_lost_execution_is_remembered_longer_than_a_durable_one() -> None:
    world = World().up()
    gone = ran(world)
    world.lose("r1")
    world.ready("r1")
    world.checks = False
    for number in range(EXECUTIONS_MAX + 20):
        msg_id = cell(world)
        if number == 0:
            world.wait(60)
        name = world.sent_to(msg_id)[-1]
        world.begin(name, msg_id)
        world.finish(name, msg_id)
        world.commit(name, world.envelope(msg_id).seq)
    assert of(world, gone)["safety"] == "lost"


@pytest.mark.parametrize("up", [True, False])
def test_a_page_may_set_what_the_notebooks_cells_ask_for(up: bool) -> None:
    world = World().up()
    if up:
        world.leases.scheduler.open()
        world.feed(events.SchedulerUp())
    msg_id = world.request(GPU_REQUEST, {"verb": "default", "gpus": 2}, channel="control")
    if not up:
        world.feed(events.SchedulerMissing("none runs"))
        assert world.answer(msg_id)["status"] == "error"
        return
    assert "2 GPUs" in world.answer(msg_id)["text"]
    assert told(world)["default_gpus"] == 2


def test_an_execution_of_the_router_before_this_one_goes_on_without_times() -> None:
    world = World()
    msg_id = cell(World())
    frames = [b"<IDS|MSG>", b"", b'{"msg_id": "m1"}', b"{}", b'{"cellId": "cell"}', b'{"code": "x"}']
    header = events.Header(msg_id, "execute_request", "s", None)
    request = events.ClientRequest(
        channel="shell", identities=(b"c",), header=header, header_frame=frames[2],
        content=frames[5], frames=frames, repeated=False,
    )  # fmt: skip
    world.feed(events.Resumed(request, ReplicaId("r1"), "ipc://p", Seq(4), Fence(4), True))
    known = of(world, msg_id)
    assert (known["state"], known["replica"], known["began_at"]) == ("running", "r1", None)
    assert known["code_digest"] == hashlib.sha256(b"x").hexdigest()
