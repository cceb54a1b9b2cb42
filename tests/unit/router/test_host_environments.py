"""What hosts have: a missing directory and other versions are named, or refused where that is wanted."""

from __future__ import annotations

from replkernel.leasing.wire import MoveFailed
from replkernel.protocol.agent_to_router import AgentWelcome, GroundDescribed
from replkernel.protocol.host_environment import NAMED_MAX, differences
from replkernel.protocol.router_to_agent import DescribeGround, PrepareReplica
from replkernel.records import HostName, ReplicaId
from replkernel.router.core import events
from replkernel.router.core.host_environments import FIRST_WAIT_S
from tests.support.router_world import World
from tests.unit.router.test_relocation import ORDER, A, D, answers, world_of

ONE, TWO, THREE = HostName("one"), HostName("two"), HostName("three")
PACKAGES = {"numpy": "2.1.0", "pandas": "2.3.0"}


def world(versions: str = "warn") -> World:
    made = World(hosts=(ONE, TWO, THREE), versions=versions)
    for host in made.hosts:
        made.feed(events.AgentFound(host, "token"))
    return made


def welcome(made: World, host: HostName, incarnation: str = "") -> list[events.Effect]:
    return made.say(AgentWelcome(host, 2, incarnation, describes=True), host)


def ground(made: World, host: HostName, **said: object) -> list[events.Effect]:
    told = {"python": "3.12.1", "packages": PACKAGES} | said
    return made.say(GroundDescribed(made.fleet.kernel_id, **told), host)  # type: ignore[arg-type]


def sent(effects: list[events.Effect], kind: type) -> list[HostName]:
    return [
        effect.host
        for effect in effects
        if isinstance(effect, events.ToAgent) and isinstance(effect.message, kind)
    ]


def text(effects: list[events.Effect]) -> str:
    return " ".join(effect.text for effect in effects if isinstance(effect, events.Log))


def test_a_host_gets_its_replica_once_it_has_told_what_it_has() -> None:
    made = world()
    asked = welcome(made, ONE)
    assert (sent(asked, DescribeGround), sent(asked, PrepareReplica)) == ([ONE], [])
    assert sent(ground(made, ONE), PrepareReplica) == [ONE]


def test_a_kernel_of_one_host_asks_nothing_and_so_does_one_whose_agent_tells_nothing() -> None:
    alone = World(hosts=(ONE,))
    alone.feed(events.AgentFound(ONE, "token"))
    assert sent(welcome(alone, ONE), DescribeGround) == []
    made = world()
    assert sent(made.say(AgentWelcome(ONE, 2), ONE), PrepareReplica) == [ONE]


def test_other_versions_are_named_once_and_the_replica_is_made() -> None:
    made = world()
    for host in (ONE, TWO):
        welcome(made, host)
    ground(made, ONE)
    effects = ground(made, TWO, python="3.11.2", packages={"numpy": "2.0.0", "extra": "1.0"})
    assert sent(effects, PrepareReplica) == [TWO]
    told = (
        "Other than one, host two has Python 3.11.2 (not 3.12.1), numpy 2.0.0 (not 2.1.0), no pandas (2.3.0)."
    )
    assert told in text(effects)
    assert text(ground(made, TWO, python="3.11.2", packages={"numpy": "2.0.0"})) == ""


def test_the_first_host_counts_also_when_it_tells_last() -> None:
    made = world()
    for host in (ONE, TWO):
        welcome(made, host)
    ground(made, TWO, packages={})
    assert "Other than one, host two has no numpy" in text(ground(made, ONE))


def test_where_other_versions_are_refused_the_odd_host_gets_no_replica_whoever_tells_first() -> None:
    made = world("refuse")
    for host in made.hosts:
        welcome(made, host)
    assert sent(ground(made, TWO, python="3.11.2"), PrepareReplica) == []
    assert sent(ground(made, THREE), PrepareReplica) == []
    effects = ground(made, ONE)
    assert sorted(sent(effects, PrepareReplica)) == [ONE, THREE]
    assert "Host two gets no replica of this kernel: other than one it has Python 3.11.2" in text(effects)
    assert "REPLKERNEL_VERSIONS" in text(effects)


def test_a_first_host_that_never_tells_is_not_awaited_for_ever() -> None:
    made = world("refuse")
    for host in (ONE, TWO):
        welcome(made, host)
    ground(made, TWO)
    assert sent(made.wait(FIRST_WAIT_S - 0.1), PrepareReplica) == []
    assert sent(made.wait(0.2), PrepareReplica) == [TWO]


def test_a_host_without_the_notebooks_directory_gets_no_replica_by_name_and_is_asked_again() -> None:
    made = world()
    welcome(made, TWO)
    effects = ground(made, TWO, no_directory="the directory /data is not there")
    assert sent(effects, PrepareReplica) == []
    assert "Host two gets no replica of this kernel: the directory /data is not there" in text(effects)
    assert made.fleet.hosts[TWO].trouble is not None
    made.feed(events.AgentFound(TWO, "token"))
    welcome(made, TWO)
    assert sent(ground(made, TWO), PrepareReplica) == [TWO], "the directory has been made meanwhile"


def test_where_the_directory_is_nowhere_cells_say_so() -> None:
    made = world()
    for host in made.hosts:
        welcome(made, host)
        ground(made, host, no_directory="the directory /data is not there")
    assert "the directory /data is not there" in str(made.execute("1") and made.last)


def test_a_host_that_keeps_replicas_is_never_turned_away() -> None:
    made = world("refuse")
    known = AgentWelcome(ONE, 2, "one", replicas=(ReplicaId("r1"),), describes=True)
    assert sent(made.say(known, ONE), DescribeGround) == [ONE]
    effects = ground(made, ONE, no_directory="the directory /data is not there")
    assert made.fleet.hosts[ONE].trouble is None
    assert effects == []


def test_more_differences_than_can_be_read_are_counted() -> None:
    many = {f"p{number:03}": "1" for number in range(NAMED_MAX + 5)}
    told = differences("3", many, "3", {})
    assert told.endswith("5 more packages") and told.count("no p") == NAMED_MAX
    assert differences("3", {}, "3", many) == ""


def test_a_replica_does_not_move_to_a_host_without_the_directory_and_the_scheduler_hears_why() -> None:
    made = world_of()
    made.scheduler(ORDER)
    made.feed(events.AgentFound(D, "token"))
    asked = made.say(AgentWelcome(D, 2, describes=True), D)
    assert (sent(asked, DescribeGround), sent(asked, PrepareReplica)) == ([D, A], [])
    ground(made, A)
    ground(made, D, no_directory="the directory /data is not there")
    (failed,) = answers(made)
    assert isinstance(failed, MoveFailed)
    assert "the directory /data is not there" in failed.why


def test_a_move_to_a_host_with_other_versions_is_made_and_names_them() -> None:
    made = world_of()
    made.scheduler(ORDER)
    made.feed(events.AgentFound(D, "token"))
    made.say(AgentWelcome(D, 2, describes=True), D)
    ground(made, A)
    effects = ground(made, D, packages={})
    assert sent(effects, PrepareReplica) == [D]
    assert "Other than a, host d has no numpy" in text(effects)
