"""The messages of the main shell that wait for their turn, in the order in which they came.

Pure. Law: bounded; whether a request waits, and which questions do, is known without looking through it all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from replkernel.leasing.request import GpuRequest
from replkernel.records import ReplicaId
from replkernel.router.core import answers
from replkernel.router.core.answers import Fault
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.events import ClientRequest, Effect, Header

QUEUE_MAX = 10_000
"""How many shell messages wait at most; what comes on top is answered with an error."""

READ_ONLY = frozenset({"complete_request", "inspect_request", "history_request", "is_complete_request"})
"""Requests that any replica can answer, so that they never wait for a long cell."""
LOOKS = READ_ONLY - {"is_complete_request"}
"""Questions whose answer depends on the cells that were run."""
QUESTIONS = READ_ONLY | {"comm_info_request", "kernel_info_request"}
"""Requests that need no executor: a standby answers them, or the router itself."""

EXECUTE = "execute_request"


@dataclass(slots=True, eq=False)
class Waiting:
    """A message in the queue; `stuck` marks a question that only the busy executor can answer for now.

    `declined` tells that a replica sent this execution back, for another to run it.
    """

    request: ClientRequest
    arrived: float
    stuck: bool = False
    declined: bool = False
    asks: GpuRequest | Literal[False] | None = None
    """The GPUs that it needs; None until that has been read, when its turn comes."""
    renewed: frozenset[ReplicaId] = frozenset()
    """The replicas whose processes have ended for its sake."""

    @property
    def kind(self) -> str:
        """Return the message's type."""
        return self.request.header.msg_type


class ShellQueue:
    """The queue of the main shell."""

    def __init__(self) -> None:
        self._items: OrderedDict[int, Waiting] = OrderedDict()
        self._executions: dict[tuple[str, str], Waiting] = {}
        self._questions: dict[int, Waiting] = {}
        self._comms: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        """Tell whether nothing more may wait."""
        return len(self._items) >= QUEUE_MAX

    @property
    def head(self) -> Waiting | None:
        """Return the message whose turn it is."""
        return next(iter(self._items.values()), None)

    @property
    def executions(self) -> Iterable[Waiting]:
        """Return the executions that wait, in order."""
        return list(self._executions.values())

    @property
    def questions(self) -> Iterable[Waiting]:
        """Return the questions that wait, in order."""
        return list(self._questions.values())

    @property
    def holds_comms(self) -> bool:
        """Tell whether a comm message waits."""
        return bool(self._comms)

    @property
    def first_comm(self) -> Waiting | None:
        """Return the comm message that waits for longest."""
        return next(iter(self._comms.values()), None)

    def holds_execution(self, header: Header) -> bool:
        """Tell whether this execution waits already."""
        return (header.session, header.msg_id) in self._executions

    def take_in(self, request: ClientRequest, now: float) -> list[Effect]:
        """Have a message wait at the end, or refuse it where too many wait."""
        if self.full:
            fault = Fault("RuntimeError", f"{QUEUE_MAX} messages wait for this kernel already; interrupt it")
            return answers.refusal(request, fault)
        self._add(request, now)
        return []

    def _add(self, request: ClientRequest, now: float) -> None:
        item = Waiting(request, now)
        self._items[id(item)] = item
        if item.kind == EXECUTE:
            self._executions[request.header.session, request.header.msg_id] = item
        elif item.kind in QUESTIONS:
            self._questions[id(item)] = item
        elif item.kind in COMM_TYPES:
            self._comms[id(item)] = item

    def put_back(
        self,
        request: ClientRequest,
        arrived: float,
        *,
        declined: bool = False,
        asks: GpuRequest | Literal[False] | None = None,
        renewed: frozenset[ReplicaId] = frozenset(),
    ) -> None:
        """Put an execution at the front again that a replica `declined`, or that did not reach it.

        `asks`: it needs these GPUs, whatever it says itself; processes of `renewed` have ended for its sake.
        """
        item = Waiting(request, arrived, declined=declined, asks=asks, renewed=renewed)
        self._items[id(item)] = item
        self._items.move_to_end(id(item), last=False)
        key = request.header.session, request.header.msg_id
        self._executions = {key: item, **self._executions}

    def put_back_comms(self, requests: Sequence[ClientRequest], now: float) -> None:
        """Put comm messages at the front, in their order, that did not reach their replica."""
        items = [Waiting(request, now) for request in requests]
        self._comms = {**{id(item): item for item in items}, **self._comms}
        for item in reversed(items):
            self._items[id(item)] = item
            self._items.move_to_end(id(item), last=False)

    def drop(self, item: Waiting) -> None:
        """Take a message out."""
        del self._items[id(item)]
        header = item.request.header
        if item.kind == EXECUTE:
            del self._executions[header.session, header.msg_id]
        self._questions.pop(id(item), None)
        self._comms.pop(id(item), None)

    def take_comms(self) -> list[ClientRequest]:
        """Take out all comm messages, in order."""
        items = list(self._comms.values())
        for item in items:
            self.drop(item)
        return [item.request for item in items]

    def take_executions(self) -> list[ClientRequest]:
        """Take out all executions."""
        items = list(self._executions.values())
        for item in items:
            self.drop(item)
        return [item.request for item in items]

    def check_invariants(self) -> None:
        """Assert the bound and that the indexes agree with the queue."""
        assert len(self._items) <= QUEUE_MAX
        assert len(self._executions) + len(self._questions) + len(self._comms) <= len(self._items)
        assert all(id(item) in self._items for item in self._executions.values())
