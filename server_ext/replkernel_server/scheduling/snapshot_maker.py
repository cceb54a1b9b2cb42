"""Makes a snapshot in a process of its own: `python -m replkernel_server.scheduling.snapshot_maker NUMBER`.

It replays the journal that REPLKERNEL_SCHEDULER_DB names up to event NUMBER, from the snapshot before, and
writes the snapshot behind it to its standard output. Law: it reads only; a snapshot that leaves here has been
restored, and was the same again. A service that stops makes its last one here too, of its own core.
"""

from __future__ import annotations

import os
import sys
import time
from typing import BinaryIO

import msgspec
from replkernel_scheduler.harvest.image import HarvestImage, JobsImage
from sqlalchemy.exc import SQLAlchemyError

from replkernel_server.errors import ServerError
from replkernel_server.scheduling import snapshots
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.journal_reading import JournalReading, unusable
from replkernel_server.scheduling.journal_tables import Head, SnapshotHead
from replkernel_server.scheduling.recovery import Recovered, bring_back, make_beside
from replkernel_server.scheduling.settings import DATABASE

NICE = 10
HEAD_SIZE = 4


def make(reading: JournalReading, number: int) -> tuple[SnapshotHead, bytes]:
    """Return the snapshot behind event `number`; raises ServerError."""
    head = reading.head()
    if head is None:
        raise reading.damaged("it has no head")
    return snapshot_of(head, bring_back(reading, head, number)[0])


def snapshot_of(head: Head, behind: Recovered) -> tuple[SnapshotHead, bytes]:
    """Return the snapshot of a core, restored once to see that it is the same again; raises ServerError."""
    image, number = behind.beside.image(), behind.number
    data = snapshots.encode(image, behind.dice)
    row = snapshots.head_of(data, number, behind.at, behind.wall, behind.proof, time.time())
    document = snapshots.decode(row, [data])
    dice = snapshots.dice_of(document)
    again = make_beside(head, dice)
    again.restore(HarvestImage(document.core, document.jobs or JobsImage(behind.beside.now)))
    if snapshots.encode(again.image(), dice) != data:
        raise ServerError(f"The snapshot behind event {number} is another one when it is restored.")
    return row, data


def write(out: BinaryIO, head: SnapshotHead, data: bytes) -> None:
    """Write a snapshot for `split` to read."""
    row = msgspec.json.encode(head)
    out.write(len(row).to_bytes(HEAD_SIZE, "big") + row + data)
    out.flush()


def split(said: bytes) -> tuple[SnapshotHead, bytes]:
    """Return what `write` wrote; raises ValueError."""
    begin = HEAD_SIZE + int.from_bytes(said[:HEAD_SIZE], "big")
    return msgspec.json.decode(said[HEAD_SIZE:begin], type=SnapshotHead), said[begin:]


def main(number: int) -> int:
    """Make a snapshot and write it; return the exit code."""
    os.nice(NICE)
    try:
        place = JournalPlace(os.environ.get(DATABASE, ""))
        try:
            with place.engine(reads_only=True).connect() as connection:
                head, data = make(JournalReading(place, connection), number)
        except SQLAlchemyError as error:
            raise unusable(place, error) from error
    except ServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write(sys.stdout.buffer, head, data)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
