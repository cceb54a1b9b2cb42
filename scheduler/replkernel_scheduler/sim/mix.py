"""The mix of GPUs: how many sessions want how many, in the place of what a trace says.

Law: a session keeps the count that it draws for all its cells; the draw hangs on its name and the seed only,
so neither the order of a file nor another session changes it. Jobs keep what they want.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from replkernel_scheduler.sim.records import Cell, Job, Record

COUNT_MAX = 64
CHOICES_MAX = 32


class Mix(msgspec.Struct, frozen=True):
    """Shares of sessions by GPUs; they need not add up to anything."""

    shares: tuple[tuple[int, float], ...]

    def drawn(self, session: str, seed: int) -> int:
        """Return how many GPUs a session wants."""
        counts, weights = zip(*self.shares, strict=True)
        drawn: int = Random(f"mix {seed} {session}").choices(counts, weights)[0]
        return drawn


TEMPLATE = Mix(((0, 13.6), (1, 47.5), (4, 18.6), (8, 20.3)))
"""Of the sessions in the template of NotebookOS's public workload."""


def mix_named(text: str) -> Mix | None:
    """Return the mix `template`, or `COUNT=SHARE,…`; None if it is neither."""
    if text == "template":
        return TEMPLATE
    shares: dict[int, float] = {}
    for part in text.split(",")[: CHOICES_MAX + 1]:
        count, _, share = part.partition("=")
        try:
            weight = float(share)
        except ValueError:
            return None
        if not (count.isascii() and count.isdecimal() and len(count) < 3 and 0 <= weight < 1e6):
            return None
        if int(count) in shares or int(count) > COUNT_MAX:
            return None
        shares[int(count)] = weight
    return Mix(tuple(sorted(shares.items()))) if sum(shares.values()) > 0 else None


def remixed(records: Iterable[Record], mix: Mix | None, seed: int) -> Iterator[Record]:
    """Yield `records` with the GPUs that their sessions draw; without a mix as they are."""
    drawn: dict[str, int] = {}
    for record in records:
        if mix is None or isinstance(record, Job):
            yield record
            continue
        if record.session not in drawn:
            drawn[record.session] = mix.drawn(record.session, seed)
        whole = {"milli": 0} if isinstance(record, Cell) else {}
        yield msgspec.structs.replace(record, gpus=drawn[record.session], **whole)
