"""What the clients of a kernel saw of its cells: one record an operation, in the clock of the rig.

Pure. Law: a record says what was seen, never what should have been.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

KEPT = "what this cell changed is kept"
"""What the product says of a cell that took effect although its reply is lost; its outcome is `unknown`."""

UNSETTLED = "it is not settled yet whether its changes are kept"
"""What the product says of a cell that may take effect yet; its outcome is `unknown` too."""

OUTGREW_STORE = "the object store had no room for what"
"""What the product says of a variable whose last change is lost; before, it said that it was not durable."""

Kind = Literal["append", "read", "undo"]

Outcome = Literal["done", "lost", "not run", "unknown", "hung"]
"""How a cell ended for its client.

`done`: it replied, with a result or with an error of its own. `lost`: the system said that it had no effect.
`not run`: the system said that it never began. `unknown`: the system said that it did or may take effect, or
its router died and nobody will answer. `hung`: its router lived and said nothing for longer than any wait of
the product.
"""


class Operation(msgspec.Struct, frozen=True):
    """One cell: it appends its own name to a list (or only reads) and prints the list.

    One that undoes prints the list, and has the notebook go back when it has ended.
    """

    name: str
    kind: Kind
    client: str
    began: float
    ended: float
    outcome: Outcome
    seen: tuple[str, ...] | None = None
    """The list as the cell printed it at its end; None when nothing of that was received."""
    durable: bool = False
    count: int = 0
    replica: str = ""
    large: int | None = None
    """The checksum of the large value that the cell stored under its name, as it printed it."""
    marked: int | None = None
    """How long the list was by a mark elsewhere, among objects that take long to look at."""
    said: str = ""
    """The error's text, or what the system wrote to the cell's stderr."""

    @property
    def until(self) -> float:
        """Return when its effect must have taken place; for a cell without an answer that is never."""
        return math.inf if self.outcome in ("unknown", "hung") else self.ended


class History(msgspec.Struct, frozen=True):
    """Everything that a run left to be judged."""

    operations: tuple[Operation, ...]
    begun: dict[str, int] = {}
    """How often each cell's code began, as it wrote into a file outside of the kernel's state."""
    audited: dict[str, tuple[str, ...]] = {}
    """The list as each replica has it after healing."""
    large: dict[str, dict[str, int]] = {}
    """The checksums of the large values, as each replica has them after healing."""
    kills: tuple[float, ...] = ()
    """When kernel processes were killed."""
    undurable: bool = False
    """Whether replies came before the commit, so that the latest cells may be lost if that is said."""
    left: tuple[str, ...] = ()
    """What was still there after shutdown: processes, files."""
    broken: tuple[str, ...] = ()
    """What kept the run from going its way."""
