"""Checkpoints in the object store: written with their mark, found newest first, the outdated ones removed.

All of it blocks: call it from a worker thread. Law: the mark comes before its checkpoint and goes after it,
so that what a checkpoint names is never garbage; a group that another one has followed writes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

import msgspec

from replkernel.agent.group import GroupSummary, summary_of
from replkernel.errors import ReplkernelError, StoreError
from replkernel.objects.collect import decode_digests, write_mark
from replkernel.objects.store import ObjectStore
from replkernel.protocol.agent_to_router import CheckpointFound
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import Digest, KernelId
from replkernel.replication.checkpoint import (
    CHECKPOINT,
    CHECKPOINT_VERSION,
    GENERATION_MAX,
    MARK,
    CheckpointDamaged,
    CheckpointHeader,
    Place,
    costly,
    decode_checkpoint,
    digest_of,
    document_name,
    encode_checkpoint,
    founded,
    founding_mark,
    newest_first,
    outdated,
)
from replkernel.replication.machine import KernelMachine

log = logging.getLogger(__name__)

DAMAGED_TOLD_MAX = 5
"""A user is told of no more damaged checkpoints than this."""


FINDS_MAX = 5
"""A search begins anew so often when the checkpoint that it found is outdated before it is marked."""


FOUNDING_MAX_S = 600.0
"""A group that is being founded reads the checkpoint before that."""


class GroupFollowed(ReplkernelError):
    """A newer group of the same kernel exists: what this one says does not count any more."""

    def __init__(self, kernel_id: KernelId, generation: int) -> None:
        super().__init__(f"Group {generation} of kernel {kernel_id} has followed this one.")
        self.generation = generation


class Written(msgspec.Struct, frozen=True):
    """A checkpoint that is in the store."""

    name: str
    header: CheckpointHeader
    lost: bool = False
    """Whether the one that was written before is not in the store any more, nor a newer one."""


def write_checkpoint(
    store: ObjectStore,
    spec: KernelSpec,
    generation: int,
    snapshot: bytes,
    digests: Iterable[Digest],
    said: GroupSummary,
    before: str = "",
) -> Written:
    """Write the state `snapshot`, which names `digests`; raises StoreError, and GroupFollowed.

    `before` is the one that this host wrote last.
    """
    header = _header(spec, generation, said)
    names = store.list_documents(spec.kernel_id)
    known = newest_first(names, CHECKPOINT, spec.kernel_id, spec.incarnation)
    if known and known[0].generation > generation:
        raise GroupFollowed(spec.kernel_id, known[0].generation)
    name = document_name(CHECKPOINT, spec.kernel_id, spec.incarnation, header.place)
    mark = document_name(MARK, spec.kernel_id, spec.incarnation, header.place)
    named = frozenset(digests)
    write_mark(store, spec.kernel_id, named, name=mark)
    store.put_document(name, encode_checkpoint(header, snapshot))
    older = [place for place in known if place != header.place]
    spent = outdated([header.place, *older])
    if max(older, default=header.place) <= header.place:
        kept = [place for place in older if place not in spent]
        spent += costly(named, ((place, _named(store, spec, place)) for place in kept))
    if not _is_being_followed(store, spec, generation):
        for place in spent:
            _remove(store, spec, place)
    for mark in founded(names, spec.kernel_id, spec.incarnation, generation):
        store.delete_document(mark)
    return Written(name, header, lost=bool(before) and not known)


def _is_being_followed(store: ObjectStore, spec: KernelSpec, generation: int) -> bool:
    """Tell whether another group is being founded, which may be reading any checkpoint of this one."""
    ages = store.list_documents(spec.kernel_id)
    own = set(founded(ages, spec.kernel_id, spec.incarnation, generation))
    others = founded(ages.keys() - own, spec.kernel_id, spec.incarnation, GENERATION_MAX)
    return any(ages[name] < FOUNDING_MAX_S for name in others)


def said_by(snapshot: bytes) -> GroupSummary:
    """Return what a snapshot says in figures."""
    machine = KernelMachine()
    machine.restore(snapshot)
    return summary_of(machine)


def _header(spec: KernelSpec, generation: int, said: GroupSummary) -> CheckpointHeader:
    return CheckpointHeader(
        version=CHECKPOINT_VERSION,
        kernel_id=spec.kernel_id,
        incarnation=spec.incarnation,
        generation=generation,
        index=said.applied,
        seq=said.whole_seq,
        newest_seq=said.newest_seq,
        fence=said.fence,
        execution_count=said.whole_count,
        executor=said.executor,
        created=time.time(),
    )


def _named(store: ObjectStore, spec: KernelSpec, place: Place) -> set[Digest]:
    """Return the chunks that a checkpoint names; a mark that cannot be read tells of none."""
    data = store.get_document(document_name(MARK, spec.kernel_id, spec.incarnation, place))
    try:
        return decode_digests(data or b"")
    except ValueError:
        return set()


def _remove(store: ObjectStore, spec: KernelSpec, place: Place) -> None:
    store.delete_document(document_name(CHECKPOINT, spec.kernel_id, spec.incarnation, place))
    store.delete_document(document_name(MARK, spec.kernel_id, spec.incarnation, place))


def find_checkpoint(store: ObjectStore, kernel_id: KernelId, incarnation: str) -> CheckpointFound:
    """Return the newest checkpoint that can be read; damaged ones are told. Raises StoreError.

    What it names is in a mark from then on, for the group before may live yet and write newer ones.
    """
    for _ in range(FINDS_MAX):
        found, body = _find_checkpoint(store, kernel_id, incarnation)
        if not found.name:
            return found
        name = founding_mark(kernel_id, incarnation, found.generation + 1)
        write_mark(store, kernel_id, _digests_of(body), name=name)
        if store.get_document(found.name) is not None:
            return found
    raise StoreError(store.url, "is given newer checkpoints faster than one can be read", "try again")


def _digests_of(body: bytes) -> set[Digest]:
    machine = KernelMachine()
    machine.restore(body)
    return machine.full_delta().digests()


def _find_checkpoint(
    store: ObjectStore, kernel_id: KernelId, incarnation: str
) -> tuple[CheckpointFound, bytes]:
    places = newest_first(store.list_documents(kernel_id), CHECKPOINT, kernel_id, incarnation)
    generation = places[0].generation if places else 0
    damaged: list[str] = []
    for place in places:
        name = document_name(CHECKPOINT, kernel_id, incarnation, place)
        data = store.get_document(name)
        if data is None:
            continue
        try:
            header, body = decode_checkpoint(data, name)
        except CheckpointDamaged as error:
            damaged.append(f"The checkpoint {name} in the store {store.url} is damaged: {error}.")
            continue
        found = CheckpointFound(
            kernel_id=kernel_id,
            name=name,
            digest=digest_of(data),
            generation=generation,
            seq=header.seq,
            newest_seq=header.newest_seq,
            fence=header.fence,
            execution_count=header.execution_count,
            executor=header.executor or None,
            notices=_notices(damaged, f"The one before it, as of cell [{header.execution_count}], is used."),
        )
        return found, body
    notices = _notices(damaged, "There is none that can be read.")
    return CheckpointFound(kernel_id, generation=generation, notices=notices), b""


def _notices(damaged: list[str], outcome: str) -> tuple[str, ...]:
    for sentence in damaged:
        log.error("%s", sentence)
    return (*damaged[:DAMAGED_TOLD_MAX], outcome) if damaged else ()


def read_checkpoint(store: ObjectStore, name: str, digest: str) -> bytes:
    """Return the body of the checkpoint `name`, whose document has `digest`; raises CheckpointDamaged."""
    data = store.get_document(name)
    if data is None:
        raise CheckpointDamaged(f"The checkpoint {name} is not in the store {store.url} any more.")
    if digest_of(data) != digest:
        raise CheckpointDamaged(
            f"The checkpoint {name} in the store {store.url} is not the one that was found."
        )
    return decode_checkpoint(data, name)[1]
