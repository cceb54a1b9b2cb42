"""The pickler of captures: one C pass over a unit gives its stream, buffers, ids and what is stuck in it.

The C pickler handles builtin containers itself and asks `reducer_override` for everything else, which
`reducer_table` answers. A first, fast pass lets errors through; a careful one replaces what fails by
tombstones, node by node.
Law: nothing of the user's is kept after `release`; user objects are touched only as pickle itself does.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from replkernel.state.capture import reducer_table, registered
from replkernel.state.capture.budget import OPEN_GATE, Gate
from replkernel.state.capture.contexts import UnitNotes
from replkernel.state.capture.dump import FAST, BufferDigests, Dump, Mode, digest_of_stream, hash_buffers
from replkernel.state.capture.losses import LossBook
from replkernel.state.capture.memo_table import MemoTable, readable
from replkernel.state.capture.outcomes import OURS, Again, CannotTravel, Endless, Overlap, Reducer, no_end
from replkernel.state.capture.rechecks import Addresses, StandIns, find, without_long_bytes
from replkernel.state.capture.reducer_table import reduction, unasked
from replkernel.state.capture.refusals import in_words
from replkernel.state.capture.registered import ASKED_MAX
from replkernel.state.format.nans import NAN, needs_numpy, with_own_nans
from replkernel.state.format.roots import LostRoot, whole
from replkernel.state.format.shared_values import Value, memo_with
from replkernel.state.format.stream import OUT_OF_BAND_BYTES
from replkernel.state.python import paths
from replkernel.state.python.deep import run_deep
from replkernel.state.python.kinds import entry_of, kind_of, module_of
from replkernel.state.python.modules import stand_in_for
from replkernel.state.seeds import NUMPY_NAN, SEED_TOKENS
from replkernel.state.tombstone import HOLDS_STUCK, Loss, lost
from replkernel.state.world import World

PROTOCOL = 5
CHANGES_MAX = 3
"""A unit is tried again so often when another thread changes it meanwhile."""

CHECKED_BYTES = 32 * 1024
"""A piece of stream of this size is a full frame: the moment to ask whether the capture is to give way."""

LARGE_OBJECTS = 10_000
"""The memo of a unit with more objects is not copied, but read in place: its pickler dumps nothing else."""

Reduced = Any
"""What `reducer_override` may return: a reduce tuple, a global's name, or NotImplemented."""


_MRO = type.__dict__["__mro__"]
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType)
"""What the C pickler looks up by its name."""

_MAKES_EMPTY = (copyreg.__newobj__, copyreg.__newobj_ex__, copyreg._reconstructor)  # type: ignore[attr-defined]
"""What makes an object without looking at what it will hold."""


class _Sink:
    """The file that the C pickler writes to: a list, and a gate after each full frame."""

    write: Callable[[bytes], Any]


def _writer(parts: list[bytes], gate: Gate) -> Callable[[bytes], None]:
    keep, check = parts.append, gate.check

    def write(data: bytes) -> None:
        keep(data)
        if len(data) >= CHECKED_BYTES:
            check()

    return write


class CapturePickler(pickle.Pickler):
    """Dumps units, one after the other, during one capture."""

    def __init__(
        self,
        world: World,
        *,
        gate: Gate = OPEN_GATE,
        digests: BufferDigests | None = None,
    ) -> None:
        self.parts: list[bytes] = []
        self.gate = gate
        sink = _Sink()
        sink.write = _writer(self.parts, gate)
        self.take_native = _native_taker(self)
        super().__init__(sink, PROTOCOL, buffer_callback=self.take_native)
        self.world = world
        self.namespace = world.namespace
        self.buffer_digests = BufferDigests(gate) if digests is None else digests
        self.plans = reducer_table.plans(world)
        self.plans_by_id: dict[int, Reducer] = {}
        self._planned: list[type] = []
        self._seed_holder = pickle.Pickler(sink, PROTOCOL)
        self._seed_holder.memo = world.seeds.memo()
        self._seed_memo = self._seed_holder.memo
        self.careful = False
        self.deep = False
        self.roots: dict[str, Any] = {}
        self._root_dicts: frozenset[int] | None = None
        self.earlier: tuple[Loss, ...] = ()
        self.shared: tuple[Value, ...] = ()
        self.hashed = True
        self._addresses = Addresses(world.namespace)
        self._asked: AskedPickler | None = None
        self.endless: set[str] = set()
        """The dumps that users wrote of which one has returned what holds the very object, in this unit."""
        self._renew()

    def _renew(self) -> None:
        self.touched = False
        self.buffers: list[Any] = []
        self.keys: list[tuple[int, int] | None] = []
        self.native: list[int] = []
        self._book: LossBook | None = None
        self.classes: set[str] = set()
        self.own_classes: dict[str, None] = {}
        self.modules: set[str] = set()
        self.ranges: list[tuple[int, int]] = []
        self.links: list[Any] = []
        self.unlinked: set[int] = set()
        self.codes: list[types.CodeType | None] = []
        self._notes: UnitNotes | None = None
        self.covers: list[tuple[int, int, Any]] = []
        self.dumped_by_hooks: dict[int, tuple[int, ...]] = {}
        self.gpus = 0

    def _renew_but_covers(self) -> None:
        covers = self.covers
        self._renew()
        self.covers = covers

    # -- one unit -----------------------------------------------------------------------------------

    def dump_unit(
        self,
        roots: dict[str, Any],
        mode: Mode = FAST,
        own_classes: dict[str, type] | None = None,
        earlier: tuple[Loss, ...] = (),
        shared: tuple[Value, ...] = (),
        *,
        hashed: bool = True,
    ) -> Dump:
        """Dump one unit: the values of `roots`, and the bodies of `own_classes`.

        `shared` are values that it may hold together with others, which it names instead of copying them.
        One that is not `hashed` has the fingerprint of its stream alone, until `hash_buffers` adds the rest.
        Never raises for what user objects do: what cannot be dumped at all becomes a tombstone.
        """
        self.roots, self._root_dicts = roots, None
        self.earlier = earlier
        self.shared = shared
        self.hashed = hashed
        self.covers = []
        self.endless = set()
        tries = 0
        while True:
            try:
                return self._asked_for(self._attempt(roots, mode, own_classes), roots, own_classes)
            except RecursionError as error:
                if mode.deep:
                    return self._bury_roots(roots, own_classes, error)
                mode = Mode(mode.careful, True)
            except Overlap as overlap:
                self._renew_but_covers()
                self.covers = [*self.covers, overlap.cover]
                continue
            except Endless as endless:
                self.endless.add(endless.whose)
                self._renew_but_covers()
                continue
            except Exception as error:
                if type(error) is RuntimeError and tries < CHANGES_MAX:
                    tries += 1
                    self._renew()
                    continue
                if mode.careful:
                    return self._bury_roots(roots, own_classes, error)
                mode = Mode(True, mode.deep)
            self._renew()

    def _attempt(
        self, roots: dict[str, Any], mode: Mode, own_classes: dict[str, type] | None, lost_bodies: str = ""
    ) -> Dump:
        """Dump in one way, or raise; `lost_bodies` is why no definition of a class can be dumped."""
        if self.touched:
            self._renew_but_covers()
        self.careful, self.deep = mode.careful, mode.deep
        single = not own_classes and len(roots) == 1
        value: object
        if single:
            (value,) = roots.values()
            if type(value) is dict and "__spec__" in value:
                value = stand_in_for(value)
        else:
            classes = own_classes or {}
            self.own_classes = dict.fromkeys(classes)
            self.touched = True
            value = whole(classes, roots, lost_bodies)
        self.parts.clear()
        self.memo = memo_with(self._seed_memo.copy(), self.shared) if self.shared else self._seed_memo
        if mode.deep:
            run_deep(lambda: self.dump(value))
        else:
            self.dump(value)
        for ask in () if self._notes is None else self._notes.at_the_end.values():
            ask(self)
        return self._finish(tuple(roots), single, mode, value)

    def _asked_for(self, dump: Dump, roots: dict[str, Any], own_classes: dict[str, type] | None) -> Dump:
        """Return a dump, made again where it has values that must be asked for."""
        found = find(dump, roots, len(SEED_TOKENS), self._addresses, self.shared)
        if not found:
            return dump
        if self._asked is None:
            self._asked = AskedPickler(self.world, gate=self.gate, digests=self.buffer_digests)
        self._asked.stand_ins = found
        return self._asked.dump_unit(
            roots, dump.mode, own_classes, self.earlier, self.shared, hashed=self.hashed
        )

    def _finish(self, roots: tuple[str, ...], single: bool, mode: Mode, value: Any) -> Dump:
        cuts: Sequence[tuple[int, int]] = ()
        table: MemoTable | None = None
        memo: Any = {}
        if len(self.parts) > 1:
            parts, cuts = self._take_segments()
            table = self._large_memo()
        else:
            parts, memo = self.parts.copy(), self.memo.copy()
            if NAN in (parts[0] if self.shared else without_long_bytes(parts[0], memo)):
                parts = [with_own_nans(parts[0], memo, value, SEED_TOKENS)]
                if needs_numpy(memoryview(parts[0]), SEED_TOKENS.index(NUMPY_NAN)):
                    self.module_needed("numpy")
        if self.shared:
            front = self.world.shared.definitions(self.shared)
            parts[0] = front + parts[0]
            cuts = [(offset + len(front), number) for offset, number in cuts]
        fingerprint = digest_of_stream(parts)
        if table is not None:
            dump = Dump(roots, single, mode, parts, fingerprint, {}, table, cuts=cuts)
        else:
            memo = memo or self.memo.copy()
            dump = Dump(roots, single, mode, parts, fingerprint, memo, cuts=cuts)
        if not self.touched:
            return dump
        dump.buffers = self.buffers
        dump.keys = self.keys
        if self.buffers and self.hashed:
            hash_buffers(dump, self.buffer_digests)
        dump.native = self.native
        dump.losses = () if self._book is None else self._book.losses
        dump.classes = self.classes
        dump.modules = self.modules
        dump.ranges = self.ranges
        dump.links = self.links
        dump.unlinked = self.unlinked
        dump.own_classes = tuple(self.own_classes)
        dump.codes = self.codes
        dump.gpus = self.gpus
        return dump

    def _large_memo(self) -> MemoTable | None:
        """Return the memo in place when a copy would be large: this pickler must then dump nothing else."""
        table = MemoTable(self) if readable() else None
        return table if table is not None and len(table) > LARGE_OBJECTS else None

    def _take_segments(self) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Take large objects out of the stream: the C pickler wrote each of them in one piece of its own."""
        kept: list[bytes] = []
        cuts: list[tuple[int, int]] = []
        offset = 0
        last = b""
        for part in self.parts:
            if len(part) >= OUT_OF_BAND_BYTES and _announced(last, len(part)):
                self.touched = True
                cuts.append((offset, len(self.buffers)))
                self.buffers.append(memoryview(part))
                self.keys.append(None)
                last = b""
                continue
            kept.append(part)
            offset += len(part)
            last = part
        return kept, cuts

    def forget_last(self) -> None:
        """Hold no objects of the unit dumped last: its dump has them."""
        self.memo = self._seed_memo
        if self._asked is not None:
            self._asked.forget_last()

    def release(self) -> None:
        """Let go of everything that was dumped."""
        # A memo that is cleared keeps its size, and the pickler is in cycles that only a collection ends.
        self.memo = {}
        self._seed_holder.clear_memo()
        self.parts.clear()
        self.roots, self._root_dicts = {}, None
        self.shared = ()
        self._renew()
        self.plans, self.plans_by_id, self._planned = {}, {}, []
        self._addresses = Addresses({})
        if self._asked is not None:
            self._asked.stand_ins = StandIns()
            self._asked.release()
            self._asked = None

    def dump(self, obj: object, /) -> None:
        """Dump; what an object raises is an Exception, whatever it is (a panic of Rust's, SystemExit)."""
        try:
            super().dump(obj)
        except (Exception, *OURS):
            raise
        except BaseException as error:
            raise no_end(error) from None

    # -- nodes --------------------------------------------------------------------------------------

    def reducer_override(self, obj: object, /) -> Reduced:
        """Reduce one object; called by the C pickler for all but builtin containers and atoms."""
        self.touched = True
        kind = type(obj)
        try:
            # To look up a type may call what its metaclass has.
            plan = self.plans[kind] if type(kind) is type else self.plans_by_id[id(kind)]
        except KeyError:
            plan = self._plan(kind)
        if not self.careful:
            return plan(self, obj)
        try:
            reduced = plan(self, obj)
            return self._reduce(obj) if reduced is NotImplemented else reduced
        except Again:
            raise
        except RecursionError:
            if not self.deep:
                raise
            return self.bury(obj, "It is nested too deeply.")
        except OURS:
            raise
        except BaseException as error:
            fault = error if isinstance(error, Exception) else no_end(error)
            alone = isinstance(fault, CannotTravel) and fault.alone
            return self._by_dill(obj) or self.bury(obj, in_words(fault, type(obj)), alone=alone)

    def _by_dill(self, obj: object) -> Reduced | None:
        """Return how an object that is refused is copied all the same, as somebody told dill; or None."""
        try:
            found = registered.reduction_registered(obj)
        except CannotTravel as told:
            return self.bury(obj, str(told))
        return None if found is None else self.checked(obj, found)

    def _plan(self, kind: type) -> Reducer:
        """Return the reducer for a type that was not met before in this capture."""
        if _MRO.__get__(kind) is None:  # Python completes some of its types when they are first asked.
            type.__getattribute__(kind, "__mro__")
        plan = unasked(kind, entry_of(self.plans, kind) or reducer_table.plan(self, kind))
        if type(kind) is type:
            self.plans[kind] = plan
        else:
            self.plans_by_id[id(kind)] = plan
            self._planned.append(kind)
        return plan

    def _reduce(self, obj: object) -> Reduced:
        """Do what the C pickler does for an object without a reducer, so that its errors are met here."""
        if kind_of(obj) in _BY_NAME:
            return NotImplemented
        reduced = reduction(obj)
        return reduced if reduced is NotImplemented else self.checked(obj, reduced)

    def checked(self, obj: object, reduced: object) -> Reduced:
        """Return a reduction that will load; raise CannotTravel for one that would not."""
        if isinstance(reduced, str):
            _check_global(obj, reduced)
        elif not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 6 or not callable(reduced[0]):
            raise CannotTravel("Its __reduce__ returns what pickle cannot use.")
        elif (
            not any(reduced[0] is maker for maker in _MAKES_EMPTY)
            and module_of(type(obj)) != self.world.seeds.main_name
        ):
            self.probe(reduced[1])
        return reduced

    def probe(self, obj: object) -> None:
        """Raise CannotTravel when an object cannot be dumped whole."""
        prober = CapturePickler(self.world, gate=self.gate)
        prober.endless = self.endless
        try:
            prober.parts.clear()
            prober.memo = prober._seed_memo
            prober.dump(obj)
        except (RecursionError, Again):
            raise
        except Exception as error:
            reason = in_words(error, type(obj))
            raise CannotTravel(f"{HOLDS_STUCK} {reason}") from None
        finally:
            prober.release()

    def leads_back(self, obj: object, state: object) -> bool:
        """Tell whether what the dump of a user's returned for an object holds that object."""
        prober = CapturePickler(self.world, gate=self.gate)
        prober.dumped_by_hooks[id(obj)] = (id(obj),) * ASKED_MAX
        try:
            prober.parts.clear()
            prober.memo = prober._seed_memo
            prober.dump(state)
        except Endless as endless:
            return endless.value is obj
        except RecursionError:
            raise
        except Exception:
            return False
        finally:
            prober.release()
        return False

    def bury(self, obj: object, reason: str, *, alone: bool = False) -> Reduced:
        """Return the reduction of a tombstone for `obj`, and note the loss."""
        self.touched = True
        loss = self.book.note(obj, reason)
        if not alone:
            self.links.extend(paths.held_by(obj, self.namespace))
        return lost, msgspec.structs.astuple(loss)

    @property
    def root_dicts(self) -> frozenset[int]:
        """Return the ids of the dictionaries that are variables of this unit."""
        if self._root_dicts is None:
            self._root_dicts = frozenset(id(root) for root in self.roots.values() if type(root) is dict)
        return self._root_dicts

    @property
    def notes(self) -> UnitNotes:
        """Return what this unit's reducers note for each other: few units have any."""
        notes = self._notes
        if notes is None:
            notes = self._notes = UnitNotes()
        return notes

    @property
    def book(self) -> LossBook:
        """Return the book in which this unit's losses are entered."""
        if self._book is None:
            found = (self.world.classes.find(class_id) for class_id in self.own_classes)
            classes = [cls for cls in found if cls is not None]
            self._book = LossBook(self.world, self.roots, classes, self.earlier)
        return self._book

    def note_loss(self, obj: object, reason: str, type_name: str) -> Loss:
        """Note that a part of `obj` is lost, which itself travels."""
        self.touched = True
        return self.book.note(obj, reason, type_name)

    def _bury_roots(
        self, roots: dict[str, Any], own_classes: dict[str, type] | None, error: Exception
    ) -> Dump:
        """Dump tombstones for the roots, and for the definitions, that cannot be dumped even carefully."""
        first = next(iter(roots.values()), None) if roots else next(iter((own_classes or {}).values()), None)
        reason = in_words(error, type(first))
        tombstones = {}
        for name, value in roots.items():
            if len(roots) > 1 and self._can_be_dumped({name: value}):
                tombstones[name] = value
            else:
                tombstones[name] = LostRoot(value, reason)
        self._renew()
        try:
            return self._attempt(tombstones, Mode(True, True), own_classes)
        except Exception:
            self._renew()
            everything = {name: LostRoot(value, reason) for name, value in roots.items()}
            return self._attempt(everything, Mode(True, True), own_classes, reason)

    def _can_be_dumped(self, roots: dict[str, Any]) -> bool:
        self._renew()
        try:
            self._attempt(roots, Mode(True, True), None)
        except Exception:
            return False
        return True

    # -- what reducers use --------------------------------------------------------------------------

    def emit(self, view: Any, key: tuple[int, int] | None) -> bytes | int:
        """Return a small buffer's bytes, or the number of a large one, which leaves out of band."""
        self.touched = True
        if len(view) < OUT_OF_BAND_BYTES:
            return bytes(view.host() if hasattr(view, "host") else view)
        self.buffers.append(view)
        self.keys.append(key)
        return len(self.buffers) - 1

    def module_needed(self, name: str | None) -> None:
        """Note that rebuilding imports the module of that name."""
        if name:
            self.touched = True
            self.modules.add(name)


class AskedPickler(CapturePickler):
    """Dumps a unit with values for which others stand."""

    stand_ins = StandIns()

    def persistent_id(self, obj: object, /) -> Any:
        """Return what stands for a value; None for most."""
        return self.stand_ins.of(obj)

    def _asked_for(self, dump: Dump, roots: dict[str, Any], own_classes: dict[str, type] | None) -> Dump:
        for ordered in self.stand_ins.frozensets.values():
            dump.memo[id(ordered.value)] = len(dump.memo), ordered.value
        return dump


def _native_taker(pickler: CapturePickler) -> Callable[[pickle.PickleBuffer], Any]:
    """Return the buffer callback for libraries that hand out PickleBuffers themselves."""

    def take(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if len(view) < OUT_OF_BAND_BYTES:
            return True
        pickler.touched = True
        pickler.native.append(len(pickler.buffers))
        pickler.buffers.append(view)
        pickler.keys.append(None)
        return False

    return take


def _announced(before: bytes, size: int) -> bool:
    """Tell whether a stream piece ends with the opcode that announces `size` bytes of payload."""
    four, eight = before[-5:], before[-9:]
    short = len(four) == 5 and four[:1] in (pickle.BINBYTES, pickle.BINUNICODE)
    if short and int.from_bytes(four[1:], "little") == size:
        return True
    if len(eight) == 9 and eight[:1] in (pickle.BINBYTES8, pickle.BINUNICODE8, pickle.BYTEARRAY8):
        return int.from_bytes(eight[1:], "little") == size
    return False


def _check_global(obj: object, name: str) -> None:
    """Raise CannotTravel unless `obj` is found under `name` in the module it says."""
    found: object = None
    module = pickle.whichmodule(obj, name)  # type: ignore[attr-defined]
    try:
        __import__(module)
        found = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, KeyError, AttributeError):
        found = None
    if found is not obj:
        raise CannotTravel(f"It is not found as {module}.{name}.")
