"""Makes the core from its journal: from the settings, or from a snapshot and the events that came after.

Law: a core that is brought back has the same bytes in its view as the one that wrote the journal; where the
replay decides otherwise, nothing is served. A snapshot that is of no use is as good as none: the one before
it is taken, or the beginning, as far as the events behind that are there.
"""

from __future__ import annotations

import logging
import random
import secrets
import time

import msgspec
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.errors import ImageUnfit
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.image import HarvestImage, JobsImage
from replkernel_scheduler.harvest.leasing import LIVE
from replkernel_scheduler.harvest.types import HarvestEffect, HarvestEvent
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import Fence

from replkernel.errors import UNREADABLE
from replkernel_server.errors import JournalRefused
from replkernel_server.scheduling import snapshots
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_reading import JournalReading
from replkernel_server.scheduling.journal_tables import (
    EVENTS_MAX,
    NEW,
    Head,
    SnapshotHead,
    outcome,
    proof,
)
from replkernel_server.scheduling.live_policies import policies_of, queues_of
from replkernel_server.scheduling.settings import POLICIES, ServiceSettings
from replkernel_server.scheduling.snapshots import SnapshotUnfit

log = logging.getLogger("replkernel.scheduler")
SEED_BITS = 63


class Recovered(msgspec.Struct, frozen=True):
    """A core with its jobs and its dice, and its journal's last event: number, time, check and Unix time."""

    beside: HarvestCore
    dice: random.Random
    number: int = 0
    at: float = 0.0
    proof: int = 0
    wall: float = 0.0

    @property
    def core(self) -> SchedulerCore:
        """Return the scheduler's core, to read what it has."""
        return self.beside.core


def new_head(settings: ServiceSettings, core: CoreSettings) -> Head:
    """Return a new journal's head. Fences begin at the wall clock's milliseconds: above a lost journal's."""
    return Head(secrets.randbits(SEED_BITS), time.time_ns() // 1_000_000, settings.policies, core)


def make_core(head: Head, dice: random.Random | None = None) -> SchedulerCore:
    """Return the core that `head` describes, before any event."""
    return SchedulerCore(dice or _dice(head), policies_of(head.policies), head.settings, Fence(head.fence))


def make_beside(head: Head, dice: random.Random | None = None) -> HarvestCore:
    """Return the core that `head` describes with no jobs beside it, before any event."""
    return HarvestCore(make_core(head, dice), LIVE, *queues_of(head.policies))


def recover(
    journal: Journal, settings: ServiceSettings, core_settings: CoreSettings | None = None
) -> Recovered:
    """Return the core as the journal has it; begin a new journal if there is nothing yet.

    `core_settings` are a new journal's; one that was begun with other hosts to come is refused.
    """
    wanted = core_settings or CoreSettings()
    head = journal.head()
    if head is None:
        head = new_head(settings, wanted)
        dice = _dice(head)
        core = make_beside(head, dice)
        if journal.first() is not None:
            raise journal.damaged("its head is missing")
        journal.begin(head)
        return Recovered(core, dice)
    if head.policies != settings.policies:
        raise JournalRefused(
            f"The journal {journal.place.name} was begun with {POLICIES}='{_words(head.policies)}', and now "
            f"it is '{_words(settings.policies)}': set it as it was, or {NEW}."
        )
    if head.settings.host_shape != wanted.host_shape:
        raise JournalRefused(
            f"The journal {journal.place.name} was begun {_hosts_to_come(head.settings)}, and now it is "
            f"{_hosts_to_come(wanted)}: start with the launcher and its options as they were, or {NEW}."
        )
    recovered, snapshot = bring_back(journal, head)
    journal.snapshot = snapshot
    journal.held_from = journal.first() or recovered.number + 1
    for useless in journal.snapshots():
        if snapshot is None or useless.number > snapshot.number:
            journal.drop_snapshot(useless.number)
    return recovered


def bring_back(
    journal: JournalReading, head: Head, until: int | None = None
) -> tuple[Recovered, SnapshotHead | None]:
    """Return the core as it was behind event `until` (the last), and the snapshot that it goes on from.

    The newest snapshot that leads there is taken; none (None) is the beginning. Raises JournalRefused.
    """
    first, trouble = journal.first(), None
    for snapshot in journal.snapshots():
        if until is not None and snapshot.number > until:
            continue
        try:
            return replay(journal, _from_snapshot(journal, head, snapshot), until), snapshot
        except (SnapshotUnfit, JournalRefused) as error:
            if isinstance(error, SnapshotUnfit):
                error = journal.damaged(f"its snapshot behind event {snapshot.number} {error}")
            log.warning("%s It is tried without this snapshot.", error)
            trouble = trouble or error
    if trouble is not None and first != 1:
        raise trouble
    dice = _dice(head)
    return replay(journal, Recovered(make_beside(head, dice), dice), until), None


def _from_snapshot(journal: JournalReading, head: Head, snapshot: SnapshotHead) -> Recovered:
    """Return the core as a snapshot has it; raises SnapshotUnfit."""
    document = snapshots.decode(snapshot, journal.snapshot_parts(snapshot.number))
    dice = snapshots.dice_of(document)
    core = make_beside(head, dice)
    try:
        core.restore(HarvestImage(document.core, document.jobs or JobsImage(snapshot.at)))
    except ImageUnfit as error:
        raise SnapshotUnfit(f"does not fit: {error}") from error
    return Recovered(core, dice, snapshot.number, snapshot.at, snapshot.proof, snapshot.wall)


def replay(journal: JournalReading, begin: Recovered, until: int | None = None) -> Recovered:
    """Hand the events behind `begin` to its core again; raise JournalRefused where it is not as it was."""
    core, number, at, check, wall = begin.beside, begin.number, begin.at, begin.proof, begin.wall
    decoder = msgspec.json.Decoder(HarvestEvent)
    for entry in journal.entries(number):
        if number == until:
            break
        number += 1
        if entry.number != number:
            raise journal.damaged(f"event {number} is missing")
        if number - begin.number > EVENTS_MAX:
            raise JournalRefused(
                f"The journal {journal.place.name} has more than {EVENTS_MAX} events, its limit: {NEW}."
            )
        try:
            event = decoder.decode(entry.event)
        except UNREADABLE as error:
            raise journal.damaged(f"event {number} does not fit ({error})") from error
        at, wall = entry.at, entry.wall
        followed: list[HarvestEffect] | Exception
        try:
            followed = core.handle(event, at)
        except Exception as error:  # as it raised when it was written; the check below tells
            followed = error
        check = proof(check, number, at, entry.event.encode(), outcome(followed))
        if check != entry.proof:
            raise JournalRefused(
                f"The journal {journal.place.name} is damaged at event {number}, or was written by a "
                f"program that decides otherwise: bring back a copy, use the program that wrote it, or {NEW}."
            )
    if until is not None and number != until:
        raise journal.damaged(f"event {number + 1} is missing")
    return Recovered(core, begin.dice, number, at, check, wall)


def _dice(head: Head) -> random.Random:
    return random.Random(head.seed)  # noqa: S311 - a choice, no secret


def _hosts_to_come(settings: CoreSettings) -> str:
    shape = settings.host_shape
    return "without a launcher that has hosts come" if shape is None else f"for hosts of {shape.gpus} GPUs"


def _words(policies: dict[str, str]) -> str:
    chosen = [f"{kind}={name}" for kind, name in policies.items() if kind != "set"]
    return " ".join([policies.get("set", "notebook"), *chosen])
