"""What a scheduler's journal says about its GPUs, from the first event to the last.

The events are handed to a core anew; who holds a GPU from when on follows from what it decides. Law: it
trusts no table of the core: a GPU that is given while somebody has it is found from the decisions alone.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
from replkernel_scheduler.effects import LeaseChanged, LeaseEnded, LeaseGranted, LeaseQueued, LeaseRefused
from replkernel_scheduler.harvest.types import HarvestEvent, JobLeased, JobLeaseEnded
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.journal_tables import outcome, proof
from replkernel_server.scheduling.recovery import make_beside


class History(NamedTuple):
    """Figures of a journal."""

    events: int
    leases: int
    """How many leases there were."""
    gpus: frozenset[str]
    """The GPUs that were leased."""
    users: frozenset[str]
    kernels: frozenset[str]
    queued: int
    """How many requests had to wait."""
    refused: tuple[str, ...]
    most: int
    """How many GPUs were leased at once at the most."""
    ends: dict[str, int]
    """How many leases ended for each reason."""


def read_history(path: Path) -> History:
    """Return what happened; AssertionError when a GPU was leased twice, or the journal is not true."""
    journal = Journal(JournalPlace(f"sqlite:///{path}"))
    try:
        return _read(journal)
    finally:
        journal.close()


def _read(journal: Journal) -> History:
    head = journal.head()
    assert head is not None
    core, check, events = make_beside(head), 0, 0
    holder: dict[str, str] = {}
    leases: dict[str, tuple[str, str]] = {}
    queued: set[str] = set()
    refused: list[str] = []
    gpus: set[str] = set()
    most = 0
    ends: Counter[str] = Counter()
    for entry in journal.entries():
        events += 1
        effects = core.handle(msgspec.json.decode(entry.event, type=HarvestEvent), entry.at)
        core.check_invariants()
        check = proof(check, entry.number, entry.at, entry.event.encode(), outcome(effects))
        assert check == entry.proof, f"event {entry.number} was decided otherwise"
        for effect in effects:
            match effect:
                case LeaseEnded(lease, why) | JobLeaseEnded(_, lease, why):
                    ends[why] += 1
                    for gpu in [gpu for gpu, held in holder.items() if held == lease.lease]:
                        del holder[gpu]
                case LeaseGranted(lease) | LeaseChanged(lease) | JobLeased(_, lease):
                    for gpu in [gpu for gpu, held in holder.items() if held == lease.lease]:
                        del holder[gpu]
                    twice = [gpu for gpu in lease.gpus if gpu in holder]
                    assert not twice, (
                        f"{twice} leased to {lease.lease} at event {entry.number}, held by {holder}"
                    )
                    holder |= dict.fromkeys(lease.gpus, str(lease.lease))
                    leases[lease.lease] = (lease.user, lease.kernel_id)
                    gpus |= set(lease.gpus)
                case LeaseQueued(request):
                    queued.add(request)
                case LeaseRefused(_, why):
                    refused.append(why)
        most = max(most, len(holder))
    assert events
    return History(
        events,
        len(leases),
        frozenset(gpus),
        frozenset(user for user, _ in leases.values()),
        frozenset(kernel for _, kernel in leases.values()),
        len(queued),
        tuple(refused),
        most,
        dict(ends),
    )
