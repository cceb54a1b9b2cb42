"""What a cell that has installed packages asks its router: have the hosts of the other replicas do the same.

It travels on the stdin channel, as JSON content of the two message types below, and never reaches a client.
Law: a question is bounded; it is answered when every host has, or when it is certain that one does not.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

QUESTION_TYPE = "replkernel_install_request"
ANSWER_TYPE = "replkernel_install_reply"
HOST_LIMIT_S = 660.0
"""So long the router waits for the hosts: an installation's own limit, and looking before and after it."""
ANSWER_LIMIT_S = 720.0
"""So long the cell waits for its router."""
Argument = Annotated[str, msgspec.Meta(max_length=4096)]


class InstallQuestion(msgspec.Struct, frozen=True):
    """`tool` was run with `arguments`, and well."""

    tool: Literal["pip", "conda"]
    arguments: Annotated[tuple[Argument, ...], msgspec.Meta(max_length=256)]
