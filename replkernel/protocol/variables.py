"""The variables of a kernel as programs are told them; the question for it on the control channel.

Pure: structs alone, one vocabulary for the kernel process and the server extension.
"""

from __future__ import annotations

import msgspec

REQUEST = "replkernel_variables_request"
REPLY = "replkernel_variables_reply"
VARIABLES_MAX = 500
TEXT_CHARS_MAX = 80


class Variable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One variable: its type, and of data its shape, element type and length.

    `text` is a plain value's own, 80 characters at most. `waits`: its value is not in the process yet, so
    nothing but its name is known; the next cell that uses it brings it.
    """

    name: str
    type: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    length: int | None = None
    text: str = ""
    waits: bool = False


class VariablesDocument(msgspec.Struct, frozen=True):
    """The variables in the order of their names; `more` counts those that are not listed."""

    variables: tuple[Variable, ...]
    more: int = 0
