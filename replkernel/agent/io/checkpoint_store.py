"""Checkpoints in the object store: written with their mark, found newest first, the outdated ones removed.

All of it blocks: call it from a worker thread. Law: the mark comes before its checkpoint and goes after it,
so that what a checkpoint names is never garbage; a group that another one has followed writes nothing. What
does not bear the kernel's seal is named and ignored: it is not read, stops nobody, and takes nothing away.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping

import msgspec

from replkernel.agent.io.group import GroupSummary, summary_of
from replkernel.errors import DocumentUnfit, ReplkernelError, StoreError
from replkernel.objects.chunk_files import is_digest
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
    CheckpointForeign,
    CheckpointHeader,
    CheckpointUnsealed,
    Place,
    check_seal,
    costly,
    decode_checkpoint,
    decode_unsealed,
    digest_of,
    document_name,
    encode_checkpoint,
    founded,
    founding_mark,
    newest_first,
    outdated,
    seal_key,
)
from replkernel.replication.machine import KernelMachine
from replkernel.replication.snapshot import SnapshotUnreadable

log = logging.getLogger(__name__)

DAMAGED_TOLD_MAX = 5
"""A user is told of no more damaged checkpoints than this."""


FINDS_MAX = 5
"""A search begins anew so often when the checkpoint that it found is outdated before it is marked."""


FOUNDING_MAX_S = 600.0
"""A group that is being founded reads the checkpoint before that; so comes a checkpoint after its mark."""


REMOVE = "remove those that are not this kernel's, and find out who may write there"

LOOKS_MAX = 64
"""So many documents are looked at for their seals at once."""


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


class Shelf:
    """A kernel's own checkpoints among all that a store holds under its name; others are logged once."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.key = seal_key(spec.key.encode())
        self.failed: set[Place] = set()
        """Where a checkpoint could not be written, so that its mark may be left."""
        self._own: set[str] = set()
        self._told: set[str] = set()

    def own(self, store: ObjectStore, names: Iterable[str], here: Place) -> list[Place]:
        """Return where the kernel's own checkpoints among `names` are, the newest first.

        Those without a seal count up to the place `here`, if they may be read at all: to be tidied away.
        """
        places = newest_first(names, CHECKPOINT, self.spec.kernel_id, self.spec.incarnation)
        listed = {self.name(place) for place in places}
        self._own &= listed
        self._told &= listed
        unknown = [place for place in places if self.name(place) not in self._own]
        for place in unknown[:LOOKS_MAX]:
            self._look(store, place, here)
        return [place for place in places if self.name(place) in self._own]

    def _look(self, store: ObjectStore, place: Place, here: Place) -> None:
        name = self.name(place)
        try:
            check_seal(_document(store, name) or b"", name, self.key)
        except CheckpointUnsealed as error:
            if not self.spec.unsealed or place > here:
                self._tell(store, name, error)
                return
        except CheckpointDamaged as error:
            self._tell(store, name, error)
            return
        self._own.add(name)

    def _tell(self, store: ObjectStore, name: str, error: CheckpointDamaged) -> None:
        if name not in self._told:
            self._told.add(name)
            log.warning("The checkpoint %s in the store %s is ignored: %s.", name, store.url, error)

    def name(self, place: Place) -> str:
        """Return the name of the checkpoint at a place."""
        return document_name(CHECKPOINT, self.spec.kernel_id, self.spec.incarnation, place)

    def wrote(self, name: str) -> None:
        """Note that this one is our own."""
        self._own.add(name)

    def read(self, data: bytes, name: str) -> tuple[CheckpointHeader, bytes]:
        """Return header and body of a document that may be read; raises CheckpointDamaged."""
        try:
            return decode_checkpoint(data, name, self.key)
        except CheckpointUnsealed:
            if not self.spec.unsealed:
                raise
            return decode_unsealed(data, name)


def write_checkpoint(
    store: ObjectStore,
    shelf: Shelf,
    generation: int,
    snapshot: bytes,
    digests: Iterable[Digest],
    said: GroupSummary,
    before: str = "",
) -> Written:
    """Write the state `snapshot`, which names `digests`; raises StoreError, and GroupFollowed.

    `before` is the one that this host wrote last.
    """
    spec = shelf.spec
    header = _header(spec, generation, said)
    names = store.list_documents(spec.kernel_id)
    known = shelf.own(store, names, header.place)
    if known and known[0].generation > generation:
        raise GroupFollowed(spec.kernel_id, known[0].generation)
    name = shelf.name(header.place)
    mark = document_name(MARK, spec.kernel_id, spec.incarnation, header.place)
    named = frozenset(digests)
    write_mark(store, spec.kernel_id, named, name=mark)
    try:
        store.put_document(name, encode_checkpoint(header, snapshot, shelf.key))
    except StoreError:
        shelf.failed.add(header.place)
        raise
    shelf.wrote(name)
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
    for place in _unfinished(names, shelf, header.place):
        _remove(store, spec, place)
    shelf.failed.clear()
    return Written(name, header, lost=bool(before) and not known)


def _unfinished(ages: Mapping[str, float], shelf: Shelf, here: Place) -> list[Place]:
    """Return where before `here` a mark has no checkpoint, and none is about to come."""
    spec = shelf.spec
    written = set(newest_first(ages, CHECKPOINT, spec.kernel_id, spec.incarnation))
    marked = newest_first(ages, MARK, spec.kernel_id, spec.incarnation)
    lone = [place for place in marked if place < here and place not in written]
    age_of = {place: ages[document_name(MARK, spec.kernel_id, spec.incarnation, place)] for place in lone}
    return [place for place in lone if place in shelf.failed or age_of[place] > FOUNDING_MAX_S]


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
    try:
        data = store.get_document(document_name(MARK, spec.kernel_id, spec.incarnation, place))
        return decode_digests(data or b"")
    except (ValueError, DocumentUnfit):
        return set()


def _remove(store: ObjectStore, spec: KernelSpec, place: Place) -> None:
    store.delete_document(document_name(CHECKPOINT, spec.kernel_id, spec.incarnation, place))
    store.delete_document(document_name(MARK, spec.kernel_id, spec.incarnation, place))


def find_checkpoint(store: ObjectStore, spec: KernelSpec, *, mark: str = "") -> CheckpointFound:
    """Return the newest checkpoint that can be read; damaged and foreign ones are told. Raises StoreError.

    What it names is in a mark from then on, for the group before may live yet and write newer ones: in the
    one of a founding, or in `mark`.
    """
    for _ in range(FINDS_MAX):
        found, named = _find_checkpoint(store, spec)
        if not found.name:
            return found
        name = mark or founding_mark(spec.kernel_id, spec.incarnation, found.generation + 1)
        write_mark(store, spec.kernel_id, named, name=name)
        if store.get_document(found.name) is not None:
            return found
    raise StoreError(store.url, "is given newer checkpoints faster than one can be read", "try again")


def _digests_of(body: bytes) -> set[Digest]:
    """Return the chunks that a checkpoint's body names; raises CheckpointDamaged when it is no state."""
    machine = KernelMachine()
    try:
        machine.restore(body)
    except SnapshotUnreadable as error:
        raise CheckpointDamaged("the state in it cannot be read") from error
    named = machine.full_delta().digests()
    if not all(map(is_digest, named)):
        raise CheckpointDamaged("the state in it names chunks by what are no digests")
    return named


def _find_checkpoint(store: ObjectStore, spec: KernelSpec) -> tuple[CheckpointFound, set[Digest]]:
    """Return what is found, and the chunks that it names."""
    shelf = Shelf(spec)
    places = newest_first(store.list_documents(spec.kernel_id), CHECKPOINT, spec.kernel_id, spec.incarnation)
    generation = 0
    told: list[str] = []
    last: tuple[str, bytes] | None = None  # The newest without a seal: it is read if no other can be.
    for place in places:
        if len(told) > LOOKS_MAX:
            problem = f"holds too many files that pass for checkpoints of {spec.kernel_id}"
            raise StoreError(store.url, problem, REMOVE)
        name = shelf.name(place)
        try:
            data = _document(store, name)
        except CheckpointDamaged as error:
            told.append(f"The checkpoint {name} in the store {store.url} is ignored: {error}.")
            continue
        if data is None:
            continue
        with contextlib.suppress(CheckpointDamaged):
            check_seal(data, name, shelf.key)
            generation = max(generation, place.generation)
        try:
            header, body = decode_checkpoint(data, name, shelf.key)
            named = _digests_of(body)
        except CheckpointUnsealed as error:
            if not spec.unsealed:
                told.append(f"The checkpoint {name} in the store {store.url} is ignored: {error}.")
            elif last is None and _can_be_read(data, name):
                last = name, data
            continue
        except CheckpointForeign as error:
            told.append(f"The checkpoint {name} in the store {store.url} is ignored: {error}.")
            continue
        except CheckpointDamaged as error:
            told.append(f"The checkpoint {name} in the store {store.url} is damaged: {error}.")
            continue
        found = _found(name, data, header, generation)
        if last is not None:
            log.warning("The checkpoint %s in the store %s is ignored: it bears no seal.", last[0], store.url)
        outcome = f"The one before it, as of cell [{header.execution_count}], is used."
        return msgspec.structs.replace(found, notices=_notices(told, outcome)), named
    if last is not None:
        return _found_unsealed(store, last, generation, told)
    notices = _notices(told, "There is none that can be read.")
    return CheckpointFound(spec.kernel_id, generation=generation, notices=notices), set()


def _found_unsealed(
    store: ObjectStore, last: tuple[str, bytes], generation: int, told: list[str]
) -> tuple[CheckpointFound, set[Digest]]:
    name, data = last
    header, body = decode_unsealed(data, name)
    told.append(
        f"The checkpoint {name} in the store {store.url} bears no seal: an earlier release wrote it, or "
        "somebody else who may write there."
    )
    found = _found(name, data, header, max(generation, header.generation))
    outcome = f"It is used this once, as of cell [{header.execution_count}]; those to come are sealed."
    return msgspec.structs.replace(found, notices=_notices(told, outcome)), _digests_of(body)


def _can_be_read(data: bytes, name: str) -> bool:
    try:
        _digests_of(decode_unsealed(data, name)[1])
    except CheckpointDamaged as error:
        log.error("The checkpoint %s is damaged: %s.", name, error)
        return False
    return True


def _found(name: str, data: bytes, header: CheckpointHeader, generation: int) -> CheckpointFound:
    return CheckpointFound(
        kernel_id=header.kernel_id,
        name=name,
        digest=digest_of(data),
        generation=generation,
        seq=header.seq,
        newest_seq=header.newest_seq,
        fence=header.fence,
        execution_count=header.execution_count,
        executor=header.executor or None,
    )


def _document(store: ObjectStore, name: str) -> bytes | None:
    """Return a document, None if there is none; raises CheckpointDamaged for what is no document at all."""
    try:
        return store.get_document(name)
    except DocumentUnfit as error:
        raise CheckpointDamaged("it is no regular file, or too long; somebody else put it there") from error


def _notices(damaged: list[str], outcome: str) -> tuple[str, ...]:
    for sentence in damaged:
        log.error("%s", sentence)
    return (*damaged[:DAMAGED_TOLD_MAX], outcome) if damaged else ()


def read_checkpoint(store: ObjectStore, spec: KernelSpec, name: str, digest: str) -> bytes:
    """Return the body of the checkpoint `name`, whose document has `digest`; raises CheckpointDamaged."""
    data = _document(store, name)
    if data is None:
        raise CheckpointDamaged(f"The checkpoint {name} is not in the store {store.url} any more.")
    if digest_of(data) != digest:
        raise CheckpointDamaged(
            f"The checkpoint {name} in the store {store.url} is not the one that was found."
        )
    return Shelf(spec).read(data, name)[1]
