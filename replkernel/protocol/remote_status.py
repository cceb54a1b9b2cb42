"""What a kernel process asks its router: how the kernel's replicas on other hosts stand.

A process knows its own host's agent only. The question travels on the stdin channel and never reaches a
client. Law: it is answered in `HOSTS_LIMIT_S`, whichever host is away, and each host has its document.
"""

from __future__ import annotations

import msgspec

QUESTION_TYPE = "replkernel_status_request"
ANSWER_TYPE = "replkernel_status_reply"
HOSTS_LIMIT_S = 2.0
"""So long the router waits for the hosts' agents."""
ANSWER_LIMIT_S = 5.0
"""So long the cell waits for its router."""
NO_ANSWER = "not answering"
"""The state of a host whose agent is late: what it told last may hold still."""


class StatusQuestion(msgspec.Struct, frozen=True):
    """How do the others stand?"""


class StatusReply(msgspec.Struct, frozen=True):
    """The other hosts' status documents (JSON), in the order of the hosts."""

    documents: tuple[msgspec.Raw, ...] = ()
