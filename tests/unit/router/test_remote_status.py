"""What a cell is told of the replicas on other hosts: of every host, once, in time."""

from __future__ import annotations

import msgspec

from replkernel.protocol.agent_to_router import StatusAnswer
from replkernel.protocol.remote_status import ANSWER_TYPE, HOSTS_LIMIT_S, QUESTION_TYPE, StatusReply
from replkernel.protocol.router_to_agent import StatusQuery
from replkernel.protocol.status import of_all, read_document
from replkernel.records import HostName, ReplicaId
from replkernel.router.core import events
from replkernel.router.core.events import ReplicaMessage
from tests.support.router_world import World

ONE, TWO, THREE = HostName("one"), HostName("two"), HostName("three")


def asked(made: World, replica: str = "r1") -> list[events.Effect]:
    frames = [b"<IDS|MSG>", b"signature", b"{}", b"{}", b"{}", b"{}"]
    return made.feed(ReplicaMessage(ReplicaId(replica), "stdin", QUESTION_TYPE, "p", (), b"{}", frames))


def queries(effects: list[events.Effect]) -> dict[HostName, int]:
    return {
        effect.host: effect.message.request
        for effect in effects
        if isinstance(effect, events.ToAgent) and isinstance(effect.message, StatusQuery)
    }


def answer(effects: list[events.Effect]) -> dict[str, str] | None:
    """Return the hosts of the answer, each with its state; None while there is none."""
    found = [effect for effect in effects if isinstance(effect, events.AnswerReplica)]
    assert len(found) < 2, "it was answered twice"
    if not found:
        return None
    assert (found[0].replica, found[0].msg_type) == ("r1", ANSWER_TYPE)
    reply = msgspec.json.decode(found[0].content, type=StatusReply)
    own = read_document(b'{"hosts": [{"name": "one"}]}')
    document = of_all(own, [msgspec.json.decode(each) for each in reply.documents])
    return {host.name: host.state for host in document.hosts if host.name != ONE}


def says(made: World, host: HostName, request: int) -> list[events.Effect]:
    document = msgspec.json.encode({"hosts": [{"name": host}]})
    return made.say(StatusAnswer(request, document), host)


def test_on_one_host_there_is_nobody_to_ask() -> None:
    assert answer(asked(World().up())) == {}


def test_every_other_host_is_asked_and_the_cell_hears_once_all_have_answered() -> None:
    made = World(hosts=(ONE, TWO, THREE)).up()
    requests = queries(asked(made))
    assert set(requests) == {TWO, THREE}
    assert answer(says(made, TWO, requests[TWO])) is None
    assert answer(says(made, TWO, requests[TWO])) is None, "said twice, counted once"
    assert answer(says(made, THREE, requests[THREE] + 1)) is None, "an answer to something else"
    assert answer(says(made, THREE, requests[THREE])) == {"two": "up", "three": "up"}
    assert answer(says(made, THREE, requests[THREE])) is None


def test_a_host_that_is_away_or_silent_is_told_as_such_in_time() -> None:
    made = World(hosts=(ONE, TWO, THREE)).up()
    asked(made)
    assert answer(made.feed(events.AgentGone(TWO))) is None
    made.now += HOSTS_LIMIT_S
    assert answer(made.feed(events.Tick())) == {"two": "away", "three": "not answering"}
    assert queries(asked(made)).keys() == {THREE}


def test_who_asks_again_begins_anew() -> None:
    made = World(hosts=(ONE, TWO)).up()
    before = queries(asked(made))[TWO]
    again = queries(asked(made))[TWO]
    assert answer(says(made, TWO, before)) is None
    assert answer(says(made, TWO, again)) == {"two": "up"}
