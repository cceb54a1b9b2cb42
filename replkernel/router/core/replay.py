"""Who listens to the kernel's output, and what some of them are sent again because they were not there.

Pure. Law: no subscriber is sent a message twice; those of one client's executions are sent in their order,
and so are those about widgets; who listens is never left out of what is published. What a client may have
missed is kept, bounded, until it has been there again for a while, or a saved notebook holds it. A front
end's server opens its sockets before the page listens, so what was missed waits until a client has named
itself, or for UNNAMED_S.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

UNNAMED_S = 10.0
"""A subscriber that no client names itself behind is sent what was missed after so long."""
RETURN_S = 2.0
"""Clients whose router was restarted connect again by themselves, within so long, and say nothing."""
SPEAK_S = 0.5
"""A newcomer says something within so long after it subscribed: then it is known to be none of those."""
LATE_S = 10.0
"""Those who are known not to be back yet have so long."""
MISSED_MAX = 50_000
MISSED_BYTES_MAX = 16 * 1024 * 1024
PACE_S = 0.05
PACE_MESSAGES = 25
PACE_BYTES = 25_000
"""What is sent again goes in portions, at half of the rate at which Jupyter Server stops taking output."""
QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""A subscriber for whom more waits is sent everything at once: a cell prints faster than that rate."""
SUBSCRIBERS_MAX = 64
"""Those who come beyond are sent what all are sent, and nothing again: a page reads the journal, too."""
CLIENTS_MAX = 1000
DETACHED = "detached-"
"""How the name of a client begins that sends a cell and leaves: what it wants it reads in the journal."""


def is_detached(client: str) -> bool:
    """Tell whether a client sends cells and leaves: it misses nothing, and no reply waits for it."""
    return client.startswith(DETACHED)


class Publication(msgspec.Struct, frozen=True):
    """A message on its way to subscribers: its frames from the delimiter on, its type, what it belongs to.

    `client` is whose execution it belongs to, empty when it belongs to none that is kept; `place` is where
    the messages of that execution end with it in the journal.
    """

    frames: list[bytes]
    kind: str
    parent_id: str = ""
    client: str = ""
    place: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Return the bytes of the message."""
        return sum(map(len, self.frames))

    @property
    def orders(self) -> tuple[str, ...]:
        """Return behind what the message must not be sent: that of its client, and of widgets."""
        return (self.client, "comm") if self.kind.startswith("comm_") else (self.client,)


class Missed(msgspec.Struct, frozen=True):
    """A publication that its client may not have seen."""

    sequence: int
    publication: Publication


@dataclass(slots=True)
class Subscriber:
    """One that was not there when something was published; from `due` on it is sent what waits.

    It `listens` from some time on: then what must not wait for the rest is sent at once.
    """

    number: int
    listens: float
    due: float
    queue: deque[Publication] = field(default_factory=deque)
    size: int = 0
    orders: Counter[str] = field(default_factory=Counter)
    """How much waits of each order."""

    def add(self, publication: Publication) -> None:
        """Have a publication wait behind all others."""
        self.queue.append(publication)
        self.size += publication.size
        self.orders.update(publication.orders)

    def take(self) -> Publication:
        """Take what waits longest."""
        publication = self.queue.popleft()
        self.size -= publication.size
        self.orders.subtract(publication.orders)
        return publication

    def must_wait(self, publication: Publication, now: float) -> bool:
        """Tell whether a publication comes after something that waits, or the subscriber does not listen."""
        return self.listens > now or any(self.orders[order] for order in publication.orders)


class Audience:
    """The subscribers of one kernel and what its clients may have missed."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._number = 0
        self._listening = 0
        self._departures = 0
        self._sequence = 0
        self._missed: deque[Missed] = deque()
        self._missed_bytes = 0
        self._owed: Counter[str] = Counter()
        """How many messages each client missed."""
        self._departed: int | None = None
        """How many had left when those who came back by themselves were all there, or had had the time to."""
        self._expected = 0
        """How many listened to the router before this one; 0 where that is not known."""
        self._old: frozenset[str] = frozenset()
        """The clients of the router before this one that something is kept of."""
        self._back_at: float | None = None
        """Since when as many are there as listened to the router before this one, newcomers not counted."""
        self._connections: OrderedDict[str, int | None] = OrderedDict()
        """The connection of each client that has spoken; None once it has ended."""
        self._returned: dict[str, tuple[float, int]] = {}
        """Clients that have spoken again: until when, and up to where, what they missed is kept."""
        self._late: dict[int, Subscriber] = {}

    def expect(self, listeners: int, clients: Iterable[str]) -> None:
        """Take note of how many listened to the router before this one: they will come by themselves.

        These `clients` say nothing then; who is none of them and does is a newcomer.
        """
        self._expected, self._old = listeners, frozenset(clients)

    @property
    def listeners(self) -> int:
        """Return how many subscribers the next router may expect: as the one before, until all are back."""
        return self._expected if self._expected and self._departed is None else self._listening

    # -- who is there -------------------------------------------------------------------------------

    def joined(self, now: float) -> tuple[int, bool]:
        """Take note of a subscriber; return its number, and whether it can be sent what all are sent."""
        self._number += 1
        self._listening += 1
        self._count(now)
        if not self._missed or len(self._late) >= SUBSCRIBERS_MAX:
            return self._number, True
        expected = bool(self._returned) or now < self._began + RETURN_S
        listens = now if expected else now + UNNAMED_S
        subscriber = Subscriber(self._number, listens, listens)
        for missed in self._missed:
            subscriber.add(missed.publication)
        self._late[subscriber.number] = subscriber
        return subscriber.number, False

    def _count(self, now: float) -> None:
        """See whether as many are there as listened to the router before this one, beside newcomers."""
        if self._departed is not None or not self._expected:
            return
        here = [client for client, connection in self._connections.items() if connection is not None]
        newcomers = sum(client not in self._old for client in here)
        if self._listening - newcomers < self._expected:
            self._back_at = None
        elif self._back_at is None:
            self._back_at = now

    def _counts_as_back_at(self) -> float:
        """Return when clients that say nothing count as back at the latest, if somebody listens."""
        if self._back_at is not None:
            return self._back_at + SPEAK_S
        return self._began + (LATE_S if self._expected else RETURN_S)

    def _all_are_back(self, now: float) -> None:
        """From now on a client that has said nothing is there, unless a subscriber leaves."""
        self._departed = self._departures
        for client in self._owed:
            if client not in self._connections:
                self._return(client, now)

    def left(self, now: float) -> None:
        """Take note that a subscriber is gone; which one is not known."""
        self._listening -= 1
        self._departures += 1
        self._count(now)
        if self._listening == 0:
            self._late.clear()

    def heard(self, client: str, now: float, *, named: bool, connection: int | None = None) -> None:
        """Take note that a client is there; once one has `named` itself, those who came before it listen.

        `connection` tells its connection from others, where it is one whose end will be told.
        """
        if connection is not None and self._connections.get(client) != connection:
            self._connections[client] = connection
            self._connections.move_to_end(client)
            if len(self._connections) > CLIENTS_MAX:
                self._connections.popitem(last=False)
            self._count(now)
        if self._missed and (connection is not None or named):
            self._return(client, now)
        if named:
            for subscriber in self._late.values():
                subscriber.listens = min(subscriber.listens, now)
                subscriber.due = min(subscriber.due, now)

    def _return(self, client: str, now: float) -> None:
        """What a client missed up to now is sent to all who come in the next seconds, and then forgotten."""
        if client in self._owed:
            self._returned[client] = (now + UNNAMED_S, self._sequence)

    def dropped(self, connection: int, now: float) -> None:
        """Take note that a connection ended."""
        client = next((client for client, known in self._connections.items() if known == connection), None)
        if client is not None:
            self._connections[client] = None
            self._end_return(client)
            self._count(now)

    def _end_return(self, client: str) -> None:
        """Let go at once of what a client missed, if all that was sent again has been."""
        if client in self._returned and not any(late.queue for late in self._late.values()):
            self._returned[client] = (-math.inf, self._returned[client][1])

    @property
    def divided(self) -> bool:
        """Tell whether some subscribers are sent messages of their own."""
        return bool(self._late)

    @property
    def complete(self) -> bool:
        """Tell whether as many listen as listened to the router before this one, and nothing waits for them.

        Then what is sent to all is seen, but for a newcomer among them that has not spoken yet.
        """
        waits = any(subscriber.queue for subscriber in self._late.values())
        return self._departed is None and self._back_at is not None and not waits

    def owes(self, client: str) -> bool:
        """Tell whether a client missed something that is still kept for it."""
        return client in self._owed

    def may_miss(self, client: str) -> bool:
        """Tell whether a client may not be there: nobody is, or its connection has ended.

        One that sends and leaves misses nothing.
        One that has said nothing since this router began came back with the others, if nobody left since.
        """
        if is_detached(client):
            return False
        if self._listening == 0:
            return True
        if client in self._connections:
            return self._connections[client] is None
        return self._departures != self._departed

    # -- what is published --------------------------------------------------------------------------

    def published(self, publication: Publication, now: float, *, missed: bool) -> list[int]:
        """Take a message that is being sent to all; return the late subscribers to send it to as well."""
        self._sequence += 1
        if missed:
            self._keep(publication)
        at_once = []
        for subscriber in self._late.values():
            waits = subscriber.must_wait(publication, now)
            if waits and (publication.client or publication.kind != "status"):
                subscriber.add(publication)
            else:
                at_once.append(subscriber.number)
        return at_once

    def missed(self, publication: Publication) -> None:
        """Take a message that was missed while another router served the kernel."""
        self._sequence += 1
        self._keep(publication)

    def keep_only(self, wanted: Callable[[str], bool]) -> None:
        """Forget what clients missed of executions that are not `wanted`, by their ids, any more.

        What is on its way to somebody goes on.
        """
        missed, self._missed = self._missed, deque()
        for one in missed:
            if wanted(one.publication.parent_id):
                self._missed.append(one)
            else:
                self._forget(one.publication)

    def _keep(self, publication: Publication) -> None:
        self._missed.append(Missed(self._sequence, publication))
        self._missed_bytes += publication.size
        self._owed[publication.client] += 1
        while len(self._missed) > MISSED_MAX or self._missed_bytes > MISSED_BYTES_MAX:
            self._forget(self._missed.popleft().publication)

    def _forget(self, publication: Publication) -> None:
        self._missed_bytes -= publication.size
        self._owed[publication.client] -= 1
        if not self._owed[publication.client]:
            del self._owed[publication.client]

    # -- what is sent again -------------------------------------------------------------------------

    def advance(self, now: float) -> list[tuple[int, list[Publication]]]:
        """Return, for each late subscriber whose turn it is, the next portion of what waits for it."""
        portions = []
        for subscriber in self._late.values():
            if subscriber.queue and subscriber.due <= now:
                portions.append((subscriber.number, self._portion(subscriber)))
                subscriber.due = now + PACE_S if subscriber.queue else now
        return portions

    def _portion(self, subscriber: Subscriber) -> list[Publication]:
        everything = subscriber.size > QUEUE_BYTES_MAX
        portion: list[Publication] = []
        sent = streamed = 0
        while subscriber.queue and (everything or (sent < PACE_MESSAGES and streamed < PACE_BYTES)):
            publication = subscriber.take()
            if publication.kind == "stream":
                streamed += publication.size
            if not (portion and _continues(portion[-1], publication)):
                sent += 1
            portion.append(publication)
        return portion

    def settle(self, now: float) -> list[str]:
        """Forget what clients missed that have been there again for a while; return its executions."""
        if self._departed is None and self._listening and now >= self._counts_as_back_at():
            self._all_are_back(now)
        over = {name: upto for name, (until, upto) in self._returned.items() if until <= now}
        if not over:
            return []
        for name in over:
            del self._returned[name]
        kept: deque[Missed] = deque()
        seen: dict[str, None] = {}
        for missed in self._missed:
            publication = missed.publication
            if missed.sequence <= over.get(publication.client, -1):
                seen[publication.parent_id] = None
                self._forget(publication)
            else:
                kept.append(missed)
        self._missed = kept
        still = {missed.publication.parent_id for missed in kept}
        return [msg_id for msg_id in seen if msg_id not in still]

    def deadline(self) -> float | None:
        """Return when `advance` or `settle` has something to do."""
        times = [until for until, _ in self._returned.values()]
        if self._departed is None and self._listening:
            times.append(self._counts_as_back_at())
        times += [subscriber.due for subscriber in self._late.values() if subscriber.queue]
        return min(times, default=None)

    def check_invariants(self) -> None:
        """Assert the bounds and sums, and that what waits is in its order."""
        assert self._listening >= 0
        assert len(self._late) <= SUBSCRIBERS_MAX
        assert len(self._missed) <= MISSED_MAX
        assert self._missed_bytes == sum(missed.publication.size for missed in self._missed)
        assert self._owed == Counter(missed.publication.client for missed in self._missed)
        sequences = [missed.sequence for missed in self._missed]
        assert sequences == sorted(set(sequences))
        for subscriber in self._late.values():
            assert subscriber.size == sum(publication.size for publication in subscriber.queue)
            orders = Counter(order for publication in subscriber.queue for order in publication.orders)
            assert +subscriber.orders == orders


def _continues(before: Publication, publication: Publication) -> bool:
    """Tell whether two publications are streams of one execution, which may become one."""
    return before.kind == publication.kind == "stream" and before.parent_id == publication.parent_id
