"""Rebuilds received components, one after the other: all names of one are bound at once when it is whole.

Rebuilding may run user code (``__setstate__``, hooks), which needs other names: classes come first, then
small components, and what failed is tried again when the rest is there. A component that cannot be rebuilt
does not stop the others: its names become tombstones that say why.
Law: runs on the main thread; finalizers of what is replaced do not run, for the objects live on elsewhere.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from replkernel.errors import StoreError
from replkernel.objects.cache import BlobCache
from replkernel.records import BlobRef, ComponentId, ComponentRecord, payload_blobs
from replkernel.state.capture.outcomes import OURS
from replkernel.state.format.dump_graph import Source
from replkernel.state.format.stream import split_head
from replkernel.state.hooks import HOOKS_ROOT, adopt
from replkernel.state.patches.book import book
from replkernel.state.patches.places import PREFIX as PLACE_PREFIX
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.python.deep import run_deep
from replkernel.state.restore import loading
from replkernel.state.restore.incoming import BlobReader, Incoming
from replkernel.state.restore.suppressed_output import nothing_shown
from replkernel.state.restore.unpickling import unpickle
from replkernel.state.tombstone import hashable_tombstones, lost, shorten
from replkernel.state.verify.proof import PayloadBuffers, Received, received
from replkernel.state.world import World

log = logging.getLogger(__name__)


class Failure(msgspec.Struct, frozen=True):
    """What of a component could not be rebuilt: variables or paths, and why in one sentence."""

    cid: ComponentId
    names: tuple[str, ...]
    reason: str


class RebuildReport(msgspec.Struct, frozen=True):
    """What a rebuild did: components rebuilt, failed, and still pending."""

    rebuilt: tuple[ComponentId, ...] = ()
    failed: tuple[Failure, ...] = ()
    pending: int = 0


class Rebuilder:
    """Rebuilds a set of components that may refer to each other's classes."""

    def __init__(
        self,
        world: World,
        cache: BlobReader,
        records: Sequence[ComponentRecord],
        bind: Callable[[ComponentRecord, dict[str, Any]], None],
    ) -> None:
        self._world = world
        self._cache = cache
        self._bind = bind
        self._records = {record.cid: record for record in records}
        self._by_class = {
            name: record.cid for record in records for name in record.names if name.startswith(ROOT_PREFIX)
        }
        self._loading: set[ComponentId] = set()
        self._not_now: set[ComponentId] = set()
        self.done: list[ComponentRecord] = []
        self.failures: dict[ComponentId, str] = {}
        self.came: dict[ComponentId, Received] = {}
        """What proving the rebuilt components needs of their payloads."""
        self.absent: dict[ComponentId, tuple[Any, ...]] = {}
        """The tombstones in a rebuilt component: what they stand on is not on this host, or a load failed."""
        self.curable: set[ComponentId] = set()
        """Failures that may be none the next time: bytes that did not come, packages not installed."""

    def rebuild(self, not_now: set[ComponentId], absent: dict[ComponentId, str]) -> None:
        """Rebuild all components but those of `not_now`, and those whose bytes are `absent`."""
        self._not_now = not_now
        self.failures.update(absent)
        self.curable.update(absent)
        waiting = sorted(
            self._records.values(), key=lambda record: (not _has_class(record), record.state_bytes)
        )
        waiting = [record for record in waiting if record.cid not in not_now and record.cid not in absent]
        count = len(waiting) + 1
        while waiting and len(waiting) < count:
            count = len(waiting)
            for record in waiting:
                self.failures.pop(record.cid, None)
            with nothing_shown():
                for record in waiting:
                    self._rebuild(record)
            waiting = [record for record in waiting if record.cid in self.failures]

    def _rebuild(self, record: ComponentRecord) -> None:
        cid = record.cid
        if cid in self._loading or cid in self.failures or record in self.done:
            return
        self._loading.add(cid)
        try:
            self._bind(record, self._load(record))
            self.done.append(record)
        except loading.NotInHand:
            self._not_now.add(cid)
        except Exception as error:
            self.failures[cid] = shorten(f"{type(error).__name__}: {error}")
            if isinstance(error, (ImportError, StoreError)):
                self.curable.add(cid)
        finally:
            self._loading.discard(cid)

    def build_anew(self, record: ComponentRecord) -> bool:
        """Build a component once more and bind it, with tombstones for what the user's code does not load.

        What it is stays when that fails.
        """
        try:
            with nothing_shown():
                self._bind(record, self._load(record, lenient=True))
        except Exception as error:
            log.info("%s could not be built anew: %s", record.cid, shorten(str(error)))
            return False
        return True

    @property
    def left_out(self) -> bool:
        """Tell whether something is still to come that what failed may need."""
        return bool(self._not_now or self.curable)

    def in_part(self, record: ComponentRecord) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return what a component that fails would be as far as it can be built, and its tombstones."""
        try:
            with nothing_shown():
                return self._load(record, lenient=True), self.absent.pop(record.cid, ())
        except Exception:
            return {}, ()

    def build_in_part(self, record: ComponentRecord) -> bool:
        """Build a component that failed as far as it can be; tell whether some of it is there."""
        if not self.build_anew(record):
            return False
        del self.failures[record.cid]
        self.done.append(record)
        return True

    def _demand(self, class_id: str) -> None:
        cid = self._by_class.get(ROOT_PREFIX + class_id)
        if cid is None:
            return
        if cid in self._not_now:
            raise loading.NotInHand
        self._rebuild(self._records[cid])
        if cid in self.failures:
            raise LookupError(self.failures[cid])

    def _load(self, record: ComponentRecord, *, lenient: bool = False) -> dict[str, Any]:
        head, stream = split_head(_head_bytes(record, self._cache))
        buffers = Incoming(record.payload.buffers, self._cache)
        load = loading.Load(
            self._world.seeds,
            self._world.classes,
            buffers,
            self._demand,
            self._world.shared.take,
            lenient=lenient,
        )

        def work(late: bool = False) -> Any:
            load.shared.clear()
            load.absent.clear()
            with loading.active(load), hashable_tombstones():
                try:
                    return unpickle(self._world.seeds, head, stream, buffers, late=late)
                except (Exception, *OURS):
                    raise
                except BaseException as error:  # An object's own way to load: a panic of Rust's, SystemExit.
                    raise RuntimeError(f"it raised {type(error).__name__}: {error}") from None

        try:
            value = work()
        except RecursionError:
            value = run_deep(work)
        except loading.NotInHand:
            raise
        except Exception as error:
            value = self._again(work, error)
        self.came[record.cid] = received(msgspec.structs.replace(head, sets=()), stream, buffers.digests())
        load.finish()
        self._world.shared.hold(record.names, load.shared)
        self.absent.pop(record.cid, None)
        if load.absent:
            self.absent[record.cid] = tuple(load.absent)
        return {head.roots[0]: value} if head.single else dict(value[2])

    @staticmethod
    def _again(work: Callable[[bool], Any], error: Exception) -> Any:
        """Try once more with members put in late; raise the first error when that does not help either."""
        try:
            return work(True)
        except loading.NotInHand:
            raise
        except Exception:
            raise error from None


def _has_class(record: ComponentRecord) -> bool:
    return any(name.startswith(ROOT_PREFIX) for name in record.names)


def _head_bytes(record: ComponentRecord, cache: BlobReader) -> Any:
    payload = record.payload
    if payload.head is not None:
        return payload.head
    assert payload.head_blob is not None
    return cache.read_blob(payload.head_blob)


def _buffer(item: bytes | BlobRef, cache: BlobReader) -> Any:
    return cache.read_blob(item) if isinstance(item, BlobRef) else item


def source_of(record: ComponentRecord, cache: BlobCache) -> Source:
    """Return a payload as a source of comparison; its buffers are read when they are asked for."""
    head, stream = split_head(_head_bytes(record, cache))
    buffers = record.payload.buffers
    return Source(head, stream, PayloadBuffers(lambda number: _buffer(buffers[number], cache)))


def in_hand(record: ComponentRecord) -> bool:
    """Tell whether a component's bytes are all in its record."""
    return not payload_blobs(record.payload)


def fetch_missing(
    records: Sequence[ComponentRecord], cache: BlobCache, fetch: Callable[[Sequence[BlobRef]], None]
) -> dict[ComponentId, str]:
    """Have `fetch` bring what the cache lacks; return the components whose blobs did not come, and why."""
    wanted: dict[BlobRef, None] = {}
    for record in records:
        for ref in payload_blobs(record.payload):
            if cache.missing(ref):
                wanted[ref] = None
    if not wanted:
        return {}
    why = ""
    try:
        fetch(list(wanted))
    except Exception as error:
        why = str(error)
    absent: dict[ComponentId, str] = {}
    for record in records:
        if any(ref in wanted and cache.missing(ref) for ref in payload_blobs(record.payload)):
            absent[record.cid] = shorten(why or "Its bytes are neither on this host nor in the object store.")
    return absent


def bind(namespace: dict[str, Any], names: Sequence[str], values: dict[str, Any]) -> None:
    """Bind the names of one rebuilt component."""
    for name in names:
        if name == HOOKS_ROOT:
            if name in values:
                adopt(values[name])
        elif name.startswith(PLACE_PREFIX):
            if name in values:
                book.bind(name, values[name])
        elif not name.startswith(ROOT_PREFIX) and name in values:
            namespace[name] = values[name]


def tombstones(record: ComponentRecord, names: Sequence[str], replica: str, reason: str) -> dict[str, Any]:
    """Return tombstones for the names of a component that could not be rebuilt."""
    text = f"It could not be rebuilt on this replica: {reason}"
    made = [record.making(name) for name in names if not name.startswith(ROOT_PREFIX) and name != HOOKS_ROOT]
    return {
        one.name: lost(one.name, one.type_name or "value", replica, record.seq, one.cell, "", text)
        for one in made
    }


def put_in_order(namespace: dict[str, Any], order: Sequence[str]) -> None:
    """Give the names the order of `order`; names that it does not list keep their place in front.

    A subshell's cell may run meanwhile. In one call of C no other thread comes between taking a name out and
    putting it back, and finds that it is not defined.
    """
    wanted = [name for name in order if name in namespace]
    listed = set(wanted)
    if [name for name in list(namespace) if name in listed] == wanted:
        return
    deque(map(namespace.__setitem__, wanted, map(namespace.pop, wanted)), maxlen=0)
