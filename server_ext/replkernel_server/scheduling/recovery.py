"""Makes the core from its journal: a new one from the settings, a known one by replay.

Law: a core that a replay brought back has the same bytes in its view as the one that wrote the journal; where
the replay decides otherwise, nothing is served.
"""

from __future__ import annotations

import random
import secrets
import time

import msgspec
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.events import Event
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import Fence

from replkernel_server.errors import JournalRefused
from replkernel_server.scheduling.journal import EVENTS_MAX, NEW, Head, Journal, outcome, proof
from replkernel_server.scheduling.live_policies import policies_of
from replkernel_server.scheduling.settings import POLICIES, ServiceSettings

SEED_BITS = 63


class Recovered(msgspec.Struct, frozen=True):
    """A core and where its journal stands: the last event's number, time, check and Unix time."""

    core: SchedulerCore
    number: int = 0
    at: float = 0.0
    proof: int = 0
    wall: float = 0.0


def new_head(settings: ServiceSettings) -> Head:
    """Return a new journal's head. Fences begin at the wall clock's milliseconds: above a lost journal's."""
    return Head(secrets.randbits(SEED_BITS), time.time_ns() // 1_000_000, settings.policies, CoreSettings())


def make_core(head: Head) -> SchedulerCore:
    """Return the core that `head` describes, before any event."""
    dice = random.Random(head.seed)  # noqa: S311 - a choice, no secret
    return SchedulerCore(dice, policies_of(head.policies), head.settings, Fence(head.fence))


def recover(journal: Journal, settings: ServiceSettings) -> Recovered:
    """Return the core as the journal has it; begin a new journal if there is nothing yet."""
    head = journal.head()
    if head is None:
        head = new_head(settings)
        core = make_core(head)
        if next(journal.entries(), None) is not None:
            raise journal.damaged("its head is missing")
        journal.begin(head)
        return Recovered(core)
    if head.policies != settings.policies:
        raise JournalRefused(
            f"The journal {journal.place.name} was begun with {POLICIES}='{_words(head.policies)}', and now "
            f"it is '{_words(settings.policies)}': set it as it was, or {NEW}."
        )
    return replay(journal, make_core(head))


def replay(journal: Journal, core: SchedulerCore) -> Recovered:
    """Hand every event of the journal to `core` again; raise JournalRefused where it is not as it was."""
    number, at, check, wall = 0, 0.0, 0, 0.0
    decoder = msgspec.json.Decoder(Event)
    for entry in journal.entries():
        number += 1
        if entry.number != number:
            raise journal.damaged(f"event {number} is missing")
        if number > EVENTS_MAX:
            raise JournalRefused(
                f"The journal {journal.place.name} has more than {EVENTS_MAX} events, its limit: {NEW}."
            )
        try:
            event = decoder.decode(entry.event)
        except msgspec.MsgspecError as error:
            raise journal.damaged(f"event {number} does not fit ({error})") from error
        at, wall = entry.at, entry.wall
        followed: list[Effect] | Exception
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
    return Recovered(core, number, at, check, wall)


def _words(policies: dict[str, str]) -> str:
    chosen = [f"{kind}={name}" for kind, name in policies.items() if kind != "set"]
    return " ".join([policies.get("set", "notebook"), *chosen])
