"""What a cell reaches of the state that lies on leased GPUs, and that waits here for a cell with a lease.

Law: pure of effects; when it cannot be told what a cell reaches, it reaches all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from replkernel.kernel.restorer import ROUNDS_MAX, LeavingState
from replkernel.records import ComponentId
from replkernel.state.analysis.cell_mentions import CellMentions
from replkernel.state.analysis.values import words_in

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def gpus_wanted(state: LeavingState, shell: InteractiveShell, mentions: CellMentions | None) -> int:
    """Return on how many GPUs a cell that mentions these names (None: any) needs a lease; 0 for none."""
    withheld = state.withheld()
    if not withheld:
        return 0
    reached = None if mentions is None else _waiting(state, shell, mentions)
    if reached is None:
        return max(record.gpus for record in withheld)
    needed = [record.gpus for record in withheld if record.cid in reached]
    return max(needed, default=1 if reached else 0)


def _waiting(
    state: LeavingState, shell: InteractiveShell, mentions: CellMentions
) -> AbstractSet[ComponentId] | None:
    """Return the components that a cell reaches and that wait; None when that cannot be told."""
    names = set(mentions.read)
    namespace: Mapping[str, Any] = shell.user_ns
    for _ in range(ROUNDS_MAX):
        reached = state.reach(names, mentions.bound)
        if reached.anything:
            return None
        words = words_in([namespace[name] for name in reached.names if name in namespace], shell)
        if words is None:
            return None
        further = (words & state.left_behind) - names
        if not further:
            return frozenset(state.pending_of(reached.cids))
        names |= further
    return None
