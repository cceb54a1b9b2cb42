"""Which replica was given which request, and what of its answer the client has already had.

Pure. Law: of one request a client sees one execute_input, one idle and one reply, all from the replica that
was given the request, and one busy; of a cell another one after each question that is answered meanwhile. A
replica that was given nothing is heard only as the executor. What one shows that declines passes as well,
until the request's idle.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from replkernel.records import ReplicaId
from replkernel.router.core.events import ClientRequest, ReplicaMessage

ROUTES_MAX = 10_000
"""How many requests are remembered; output that arrives later still passes if it is the executor's.

Executions under way are forgotten last: what is seen of one says whether its process has begun it.
"""

BUSY, INPUT, IDLE, OTHER = 1, 2, 4, 8


@dataclass(slots=True)
class Route:
    """One request on its way: `replica` is None once the router itself has answered it.

    `request` is kept until the reply has passed, or the idle of one that has none; `seen` says what has
    been published.
    """

    replica: ReplicaId | None
    request: ClientRequest | None
    seen: int = 0
    again: bool = False
    """Whether its replica declined it, so that it will be given to another."""
    unreached: bool = False
    """Whether its replica's process was dead before it was sent there."""
    before: ReplicaId | None = None
    """Who declined it last: what that one has shown may come after its reply, by another way."""


class Traffic:
    """All requests that were given to replicas lately, by message id."""

    def __init__(self) -> None:
        self._routes: OrderedDict[str, Route] = OrderedDict()

    def give(self, request: ClientRequest, replica: ReplicaId) -> None:
        """Record that a request goes to `replica` (again, after its first replica was lost)."""
        msg_id = request.header.msg_id
        route = self._routes.get(msg_id)
        if route is not None and (route.request is not None or route.again):
            route.replica, route.request, route.again, route.unreached = replica, request, False, False
            return
        self._remember(msg_id, Route(replica, request))

    def _remember(self, msg_id: str, route: Route) -> None:
        self._routes[msg_id] = route
        self._routes.move_to_end(msg_id)
        if len(self._routes) > ROUTES_MAX:
            over = (known for known, route in self._routes.items() if not _executes(route))
            del self._routes[next(over, next(iter(self._routes)))]

    def resume(self, request: ClientRequest, replica: ReplicaId, seen: int) -> None:
        """Record a request that the router before this one gave to `replica`, and what had been published."""
        self._routes[request.header.msg_id] = Route(replica, request, seen)

    def resume_answered(self, msg_id: str, replica: ReplicaId | None, seen: int) -> None:
        """Record a request that the router before this one saw answered, and what had been published."""
        self._routes[msg_id] = Route(replica, None, seen)

    def declined(self, msg_id: str) -> None:
        """Note that a replica sent a request back, for another to answer; what was seen stays seen."""
        route = self._routes[msg_id]
        route.before = route.replica
        route.replica, route.request, route.again = None, None, True

    def not_reached(self, msg_id: str, replica: ReplicaId) -> None:
        """Note that a replica's process was dead before a request was sent to it."""
        route = self._routes.get(msg_id)
        if route is not None and route.replica == replica:
            route.unreached = True

    def is_unreached(self, msg_id: str) -> bool:
        """Tell whether a request has reached nobody, so that nothing has been done or seen of it."""
        route = self._routes.get(msg_id)
        return route is not None and route.unreached and not route.seen

    def reopen(self, request: ClientRequest) -> None:
        """Note that the reply which closed a request was an old one: its own is still to come."""
        route = self._routes[request.header.msg_id]
        route.request = request if route.replica is not None else None

    def began_here(self, msg_id: str) -> None:
        """Record that the router has published `busy` of a request which no replica has been given yet."""
        route = self._routes.get(msg_id)
        if route is None:
            self._remember(msg_id, Route(None, None, BUSY, again=True))
        else:
            route.seen |= BUSY

    def was_begun(self, msg_id: str) -> bool:
        """Tell whether the client has seen `busy` of a request."""
        return bool(self.seen(msg_id) & BUSY)

    def seen(self, msg_id: str) -> int:
        """Return what has been published of a request: BUSY, INPUT, IDLE and OTHER, or-ed."""
        route = self._routes.get(msg_id)
        return 0 if route is None else route.seen

    def waiting(self, msg_id: str) -> ClientRequest | None:
        """Return a request whose reply has not passed yet."""
        route = self._routes.get(msg_id)
        return None if route is None else route.request

    def admits_reply(self, message: ReplicaMessage, executor: ReplicaId | None) -> bool:
        """Tell whether a reply may pass, and close its request."""
        route = self._routes.get(message.parent_id)
        if route is None:
            return message.replica == executor
        if route.replica != message.replica or route.request is None:
            return False
        route.request = None
        return True

    def admits_output(self, message: ReplicaMessage, executor: ReplicaId | None) -> bool:
        """Tell whether an iopub message may pass."""
        if message.msg_type == "iopub_welcome":
            return False
        mark = _mark(message)
        if mark < 0:
            return False
        route = self._routes.get(message.parent_id)
        if route is None:
            return message.replica == executor
        late = route.before == message.replica and not mark and not route.seen & IDLE
        if (route.replica != message.replica and not late) or route.seen & mark:
            return False
        route.seen |= mark or OTHER
        if mark == IDLE and route.request is not None and not _replies(route.request):
            route.request = None
        return True

    def retire(self, msg_id: str) -> int:
        """Close a request that the router answers itself; return what had been published of it."""
        route = self._routes.get(msg_id)
        if route is None:
            return 0
        route.replica = None
        route.request = None
        return route.seen

    def lost(self, replica: ReplicaId) -> list[ClientRequest]:
        """Return the requests that a lost replica leaves unanswered, oldest first."""
        return [
            route.request
            for route in self._routes.values()
            if route.replica == replica and route.request is not None
        ]

    def check_invariants(self) -> None:
        """Assert the bound, and that a closed request is not kept alive."""
        assert len(self._routes) <= ROUTES_MAX
        assert all(route.replica is not None or route.request is None for route in self._routes.values())


def ends_handling(message: ReplicaMessage) -> bool:
    """Tell whether a message is the idle of a request."""
    return message.msg_type == "status" and _mark(message) == IDLE


def _executes(route: Route) -> bool:
    """Tell whether a replica is to answer an execution."""
    return route.request is not None and route.request.header.msg_type == "execute_request"


def _replies(request: ClientRequest) -> bool:
    """Tell whether a request is replied to; messages of comms are not."""
    return request.header.msg_type.endswith("_request")


def _mark(message: ReplicaMessage) -> int:
    """Return which once-only message this is, 0 for all others, -1 for one that never passes."""
    if message.msg_type == "execute_input":
        return INPUT
    if message.msg_type != "status":
        return 0
    if b'"busy"' in message.content:
        return BUSY
    if b'"idle"' in message.content:
        return IDLE
    return -1
