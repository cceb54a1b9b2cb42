"""What a cell installs: repeated where it is missing, not where it is shared, and told in the cell."""

from __future__ import annotations

import msgspec

from replkernel.leasing.notebook import GpuAnswer
from replkernel.protocol.agent_to_router import AgentWelcome, GroundDescribed, InstallEnded
from replkernel.protocol.installing import ANSWER_TYPE, HOST_LIMIT_S, QUESTION_TYPE, InstallQuestion
from replkernel.protocol.router_to_agent import DescribeGround, InstallHere
from replkernel.records import HostName, ReplicaId
from replkernel.router.core import events
from replkernel.router.core.events import ReplicaMessage
from tests.support.router_world import World

ONE, TWO, THREE = HostName("one"), HostName("two"), HostName("three")
HAS, LACKS = {"toy": "1.0"}, {"other": "2.0"}


def cell(made: World, replica: str = "r1") -> list[events.Effect]:
    question = InstallQuestion("pip", ("install", "toy"))
    content = msgspec.json.encode(question)
    frames = [b"<IDS|MSG>", b"signature", b"{}", b"{}", b"{}", content]
    return made.feed(ReplicaMessage(ReplicaId(replica), "stdin", QUESTION_TYPE, "p", (), content, frames))


def described(made: World, host: HostName, packages: dict[str, str], request: int = 1) -> list[events.Effect]:
    return made.say(GroundDescribed(made.fleet.kernel_id, request, "3.12", packages), host)


def ended(made: World, host: HostName, said: str, *, well: bool = True) -> list[events.Effect]:
    return made.say(InstallEnded(made.fleet.kernel_id, 1, well, said), host)


def to(effects: list[events.Effect], kind: type) -> list[HostName]:
    return [e.host for e in effects if isinstance(e, events.ToAgent) and isinstance(e.message, kind)]


def answer(effects: list[events.Effect]) -> GpuAnswer | None:
    found = [effect for effect in effects if isinstance(effect, events.AnswerReplica)]
    assert len(found) < 2, "it was answered twice"
    if not found:
        return None
    assert (found[0].replica, found[0].msg_type) == ("r1", ANSWER_TYPE)
    return msgspec.json.decode(found[0].content, type=GpuAnswer)


def test_on_one_host_nothing_is_repeated_and_nothing_told() -> None:
    assert answer(cell(World().up())) == GpuAnswer()


def test_an_install_is_repeated_on_hosts_that_lack_it_and_the_cell_hears_of_each() -> None:
    made = World(hosts=(ONE, TWO, THREE)).up()
    assert sorted(to(cell(made), DescribeGround)) == [ONE, THREE, TWO]
    assert to(described(made, TWO, LACKS), InstallHere) == [], "what the first host has now is not known yet"
    assert to(described(made, ONE, HAS), InstallHere) == [TWO]
    assert to(described(made, THREE, HAS), InstallHere) == [], "it shares the environment"
    assert to(ended(made, TWO, "…\nSuccessfully installed toy-1.0\n"), DescribeGround) == [TWO]
    told = answer(described(made, TWO, HAS | LACKS))
    assert told == GpuAnswer("Repeated on host two: Successfully installed toy-1.0")


def test_an_install_that_failed_or_still_differs_elsewhere_is_told() -> None:
    made = World(hosts=(ONE, TWO, THREE)).up()
    cell(made)
    for host, packages in ((ONE, HAS), (TWO, LACKS), (THREE, LACKS)):
        described(made, host, packages)
    assert answer(ended(made, TWO, "ERROR: no route", well=False)) is None
    ended(made, THREE, "Successfully installed toy-0.9")
    told = answer(described(made, THREE, {"toy": "0.9"}))
    assert told is not None
    assert "NOT repeated on host two, where it failed:\nERROR: no route" in told.text
    assert "Successfully installed toy-0.9 It still has toy 0.9 (not 1.0)." in told.text


def test_a_host_that_is_away_or_goes_away_costs_the_cell_no_time() -> None:
    made = World(hosts=(ONE, TWO, THREE))
    for host in (ONE, TWO):
        made.feed(events.AgentFound(host, "token"))
        made.say(AgentWelcome(host, 2), host)
    made.ready("r1")
    cell(made)
    described(made, ONE, HAS)
    described(made, TWO, LACKS)
    told = answer(made.feed(events.AgentGone(TWO)))
    assert told is not None
    assert told.text.count("is away: run `pip install toy` there") == 2


def test_a_host_that_does_not_end_is_told_of_after_a_while() -> None:
    made = World(hosts=(ONE, TWO)).up()
    cell(made)
    described(made, ONE, HAS)
    described(made, TWO, LACKS)
    told = answer(made.wait(HOST_LIMIT_S + 1))
    assert told is not None and "host two" in told.text and "not ended in time" in told.text


def test_a_second_one_at_the_same_time_and_nonsense_are_refused() -> None:
    made = World(hosts=(ONE, TWO)).up()
    cell(made)
    told = answer(cell(made))
    assert told is not None and "Another installation" in told.error
    frames = [b"<IDS|MSG>", b"s", b"{}", b"{}", b"{}", b"5"]
    told = answer(made.feed(ReplicaMessage(ReplicaId("r1"), "stdin", QUESTION_TYPE, "p", (), b"5", frames)))
    assert told is not None and "cannot read" in told.error
