"""Which payloads of a stranger's state may be loaded: arrays, frames, tensors and plain values.

Pure. Laws: every opcode is followed, and each call is of a listed function or class, with arguments that it
may have; what is not listed is refused, and so is what cannot be followed. Nothing is imported or called.
"""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from replkernel.carrying.amounts import is_bounded
from replkernel.carrying.outline import NoBuffers
from replkernel.errors import ReplkernelError
from replkernel.loaders import MODULE as LOADERS
from replkernel.records import ComponentId, ComponentRecord, Payload
from replkernel.replication.checkpoint import digest_of
from replkernel.state.format.dump_graph import Node, Reader, Source
from replkernel.state.format.stream import FORMAT_VERSION, OUT_OF_BAND_BYTES, Head, join_head, split_head
from replkernel.state.tombstone import Loss

HEAD_BYTES_MAX = 64 * 2**20
MODULES = frozenset(
    "numpy pandas torch polars pyarrow datetime decimal fractions math collections random json re time "
    "itertools functools statistics".split()
)
"""What may be imported by name: everything else could be a module of somebody's own directory."""

LEFT_OUT = "It was left out when the notebook was imported with --safe."

_PLAIN_DTYPE = re.compile(rb"[<>|=]?(?:[biufcSUV]\d{1,6}|[?]|[mM]8(?:\[\d{0,6}[a-zA-Z]{1,2}\])?)")
_TORCH_DTYPES = re.compile(rb"(?:u?int|float|bfloat|complex)\d+|bool")
_IDENTIFIER = re.compile(r"[^\W\d]\w{0,199}")

Check = Callable[[Sequence[Any]], bool]


class NotSafe(ReplkernelError):
    """A payload may do more than bring plain values; the message names what."""


def _any(arguments: Sequence[Any]) -> bool:
    return True


def _is_dtype(value: object) -> bool:
    if isinstance(value, Node):
        return value.kind == "call" and value.parts[0] == ("g", "numpy", "dtype") and not _has_objects(value)
    return isinstance(value, tuple) and value[0] == "t" and bool(_PLAIN_DTYPE.fullmatch(value[1]))


def _has_objects(dtype: Node) -> bool:
    return _first_text(dtype)[:1] == b"O"


def _first_text(call: Node) -> bytes:
    """Return the text that is a call's first argument; raises ValueError for anything else."""
    arguments = call.parts[1]
    first = arguments.parts[0] if isinstance(arguments, Node) else None
    if not isinstance(first, tuple) or first[0] != "t" or not isinstance(first[1], bytes):
        raise ValueError("no text")
    return first[1]


def _dtype(arguments: Sequence[Any]) -> bool:
    text = arguments[0]
    return text[0] == "t" and (text[1] == b"O8" or bool(_PLAIN_DTYPE.fullmatch(text[1])))


def _typed(place: int, cls: int | None = None) -> Check:
    """Return a check of a plain dtype at `place`, and that no class is given at `cls`."""
    return lambda arguments: _is_dtype(arguments[place]) and (cls is None or arguments[cls] == ("n",))


def _imported(arguments: Sequence[Any]) -> bool:
    return bool(arguments[0][0] == "t") and arguments[0][1].decode() in MODULES


def _torch_dtype(arguments: Sequence[Any]) -> bool:
    return arguments[0] == ("t", b"torch") and bool(_TORCH_DTYPES.fullmatch(arguments[1][1]))


def _on_cpu(arguments: Sequence[Any]) -> bool:
    return bool(arguments[1] == ("t", b"cpu"))


def _first_is(*allowed: tuple[str, str]) -> Check:
    return lambda arguments: arguments[0] in {("g", *one) for one in allowed}


_INDEXES = tuple(
    ("pandas", f"{kind}Index") for kind in ("", "Range", "Multi", "Datetime", "Timedelta", "Categorical")
)
_MANAGERS = tuple(("pandas.core.internals.managers", name) for name in ("BlockManager", "SingleBlockManager"))
_FRAMES = (("pandas", "DataFrame"), ("pandas", "Series"))
_NDARRAY_BACKED = (
    ("pandas.arrays", "DatetimeArray"),
    ("pandas.arrays", "TimedeltaArray"),
    ("pandas", "Categorical"),
)

CALLS: dict[tuple[str, str], Check] = {
    **{("builtins", name): _any for name in ("complex", "range", "slice", "bytearray", "set", "frozenset")},
    **{("datetime", name): _any for name in ("date", "datetime", "time", "timedelta", "timezone")},
    **{("collections", name): _any for name in ("OrderedDict", "Counter", "deque")},
    ("decimal", "Decimal"): _any,
    ("fractions", "Fraction"): _any,
    ("uuid", "UUID"): _any,
    ("pathlib", "PosixPath"): _any,
    ("numpy", "dtype"): _dtype,
    ("numpy._core.multiarray", "scalar"): _typed(0),
    (LOADERS, "numpy:make_array"): _typed(1, 5),
    (LOADERS, "numpy:make_permuted"): _typed(1, 5),
    (LOADERS, "numpy:make_view"): _typed(4, 6),
    (LOADERS, "numpy:make_objects"): lambda arguments: arguments[3] == ("n",),
    (LOADERS, "numpy:fill_objects"): _any,
    (LOADERS, "modules:import_module"): _imported,
    (LOADERS, "lost:lost"): _any,
    (LOADERS, "sentinels:attribute"): _torch_dtype,
    (LOADERS, "torch:make_storage"): _on_cpu,
    (LOADERS, "torch:make_tensor"): lambda arguments: arguments[0] == ("n",),
    (LOADERS, "torch:make_view"): _any,
    (LOADERS, "instances:make_plain"): _first_is(*_FRAMES),
    (LOADERS, "instances:fill_plain"): _any,
    (LOADERS, "pandas:make_manager"): _first_is(*_MANAGERS),
    (LOADERS, "pandas:make_block"): _any,
    ("pandas.core.indexes.base", "_new_Index"): _first_is(*_INDEXES),
    ("pandas.core.indexes.datetimes", "_new_DatetimeIndex"): _first_is(*_INDEXES),
    ("pandas._libs.internals", "BlockValuesRefs"): _any,
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"): _first_is(*_NDARRAY_BACKED),
    ("pandas._libs.tslibs.offsets", "Day"): _any,
    ("pandas", "Flags"): _any,
    ("pandas", "StringDtype"): _any,
    ("pandas", "CategoricalDtype"): _any,
    ("pandas.arrays", "ArrowStringArray"): _any,
    ("pyarrow.lib", "_restore_array"): _any,
    ("pyarrow.lib", "type_for_alias"): _any,
    (LOADERS, "pyarrow:make_buffer"): _any,
    ("weakref", "ReferenceType"): _any,
    ("polars.dataframe.frame", "DataFrame"): _any,
    ("polars.series.series", "Series"): _any,
}
"""What a payload may call, and what its arguments must be."""

VALUES = frozenset({*_INDEXES, *_MANAGERS, *_FRAMES, *_NDARRAY_BACKED})
"""What it may name beside that: classes that such calls are given."""
_SETTERS = frozenset({(LOADERS, "numpy:fill_objects"), (LOADERS, "instances:fill_plain")})
_ATTRIBUTES = frozenset(("t", name) for name in (b"_mgr", b"_attrs", b"_flags", b"_name", b"_item_cache"))
_STATEFUL = frozenset({
    ("numpy", "dtype"), ("polars.dataframe.frame", "DataFrame"), ("polars.series.series", "Series"),
    ("pandas.arrays", "ArrowStringArray"), ("pandas", "CategoricalDtype"), ("pandas", "Flags"),
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"), ("pandas._libs.tslibs.offsets", "Day"),
})  # fmt: skip


class _Guard(Reader):
    """Follows one stream, and refuses the first thing that is not listed."""

    def __init__(self, source: Source, sizes: Sequence[int]) -> None:
        super().__init__(source)
        self._sizes = sizes
        self._steps = 0

    def finish(self) -> None:
        """Refuse a stream beside which something is left that could be read as opcodes."""
        if self._cuts or self._native:
            raise NotSafe("it has buffers that its stream does not ask for")

    def _step_for(self, name: str) -> Callable[[], None] | None:
        """Know nothing of extensions: what such a number stands for, this process says."""
        return None if name.startswith("EXT") else super()._step_for(name)

    def _text(self, letter: str, width: int) -> None:
        cuts = len(self._cuts)
        number = self._cuts[0][1] if self._cuts else -1
        before = self._at
        super()._text(letter, width)
        if len(self._cuts) < cuts:
            size = int.from_bytes(self._data[before : before + width], "little")
            if not 0 <= number < len(self._sizes) or self._sizes[number] != size or size < OUT_OF_BAND_BYTES:
                raise NotSafe("a buffer is not as long as its stream says")

    def _do_stack_global(self) -> None:
        super()._do_stack_global()
        named = self._stack[-1]
        if named[1:] not in CALLS and named[1:] not in VALUES:
            raise NotSafe(f"it calls or names {named[1]}.{named[2]}"[:200])

    def _call(self, kind: str, count: int) -> None:
        function = self._stack[-count]
        arguments = self._stack[-1] if count == 2 else None
        if not isinstance(arguments, Node) or arguments.kind != "tuple" or function[0] != "g":
            raise NotSafe("it calls what it has made")
        check = CALLS.get(function[1:])
        if check is None or not check(arguments.parts):
            raise NotSafe(f"it calls {function[1]}.{function[2]} in a way that is not listed"[:200])
        if not is_bounded(function[1:], arguments.parts, self._sizes, len(self._data)):
            raise NotSafe(f"it calls {function[1]}.{function[2]} for more than it brings"[:200])
        if function[1:] in _SETTERS:
            self._check_setter(function[1:], arguments)
        super()._call(kind, count)

    def _check_setter(self, function: Any, arguments: Node) -> None:
        target = arguments.parts[0]
        made = _maker(target)
        if function[1] == "numpy:fill_objects":
            fits = made == (LOADERS, "numpy:make_objects")
        else:
            fits = made == (LOADERS, "instances:make_plain") and _plain_attributes(arguments.parts[1:])
        if not fits:
            raise NotSafe(f"it calls {function[1]} on something else")

    def _do_reduce(self) -> None:
        if self._stack[-2] not in {("g", *one) for one in CALLS}:
            raise NotSafe("it calls what is not listed")
        self._call("call", 2)

    def _do_newobj_ex(self) -> None:
        raise NotSafe("it makes an object with keywords")

    def _do_binpersid(self) -> None:
        raise NotSafe("it has stand-ins")

    def _do_build(self) -> None:
        target, state = self._stack[-2:]
        made = _maker(target)
        if made not in _STATEFUL or (made == ("numpy", "dtype") and not _plain_state(target, state)):
            raise NotSafe("it sets the state of something that is not listed")
        super()._do_build()

    def _append(self, items: Sequence[Any]) -> None:
        self._check_filled(("list",), (("collections", "deque"),))
        super()._append(items)

    def _set(self, items: Sequence[Any]) -> None:
        self._check_filled(("dict",), (("collections", "OrderedDict"), ("collections", "Counter")))
        super()._set(items)

    def _do_additems(self) -> None:
        if not isinstance(self._stack[self._marks[-1] - 1], Node):
            raise NotSafe("it fills something that is not its own")
        super()._do_additems()

    def _check_filled(self, kinds: tuple[str, ...], calls: tuple[tuple[str, str], ...]) -> None:
        target = self._stack[-1]
        if isinstance(target, Node) and (target.kind in kinds or _maker(target) in calls):
            return
        raise NotSafe("it fills something that is not its own")


def _maker(value: object) -> tuple[str, str] | None:
    """Return what was called to make a value; None for what no call has made."""
    if not isinstance(value, Node) or value.kind not in ("call", "new"):
        return None
    function = value.parts[0]
    return (function[1], function[2]) if isinstance(function, tuple) and function[0] == "g" else None


def _plain_attributes(state: Sequence[Any]) -> bool:
    """Tell whether what is filled into a frame are the parts of frames, and nothing else."""
    for part in state:
        if not isinstance(part, Node):
            if part != ("n",):
                return False
        elif part.kind == "dict":
            if not all(name in _ATTRIBUTES for name in part.parts[::2]):
                return False
        elif part.kind != "tuple" or not _plain_attributes(part.parts):
            return False
    return True


def _plain_state(dtype: Node, state: object) -> bool:
    """Tell whether a dtype is set to be what its name says: no fields, no offsets, and true flags."""
    if not isinstance(state, Node) or state.kind != "tuple" or len(state.parts) not in (8, 9):
        return False
    text = _first_text(dtype)
    head = [part for part in state.parts[2:8] if isinstance(part, tuple)]
    if text[:1] not in [bytes([letter]) for letter in b"biufcSUMmO?"] or len(head) != 6:
        return False
    flags = ("i", 63 if text == b"O8" else 0)
    return head[:3] == [("n",)] * 3 and head[5] == flags


def check_payload(head: bytes, sizes: Sequence[int]) -> Head:
    """Return a payload's head if it may be loaded; raises NotSafe. `sizes` are those of its buffers."""
    if len(head) > HEAD_BYTES_MAX:
        raise NotSafe(f"it is longer than {HEAD_BYTES_MAX >> 20} MiB")
    try:
        told, stream = split_head(head)
        if told.version != FORMAT_VERSION:
            raise NotSafe("an earlier release wrote it")
        if told.native and not all(0 <= number < len(sizes) for number in told.native):
            raise NotSafe("it has buffers that are not there")
        guard = _Guard(Source(told, stream, NoBuffers()), sizes)
        guard.run()
        guard.finish()
    except NotSafe:
        raise
    except Exception as error:  # Whatever a hostile stream makes of the reader, it is not followed.
        raise NotSafe(f"it cannot be followed ({type(error).__name__})") from error
    return told


def is_plain_name(name: str) -> bool:
    """Tell whether a name is a variable's, and not one under which the kernel keeps something else."""
    return _IDENTIFIER.fullmatch(name) is not None


def lost(cid: ComponentId, name: str, before: ComponentRecord) -> ComponentRecord:
    """Return a component that is one tombstone: whoever touches it hears that it was left out."""
    cell = before.making(name).cell
    loss = Loss(name, "object", "", before.seq, cell, name, LEFT_OUT)
    stream = [pickle.PROTO + b"\x05", _short(LOADERS), _short("lost:lost"), pickle.STACK_GLOBAL, pickle.MARK]
    stream += [_atom(field) for field in msgspec.structs.astuple(loss)]
    stream += [pickle.TUPLE, pickle.REDUCE, pickle.STOP]
    data = join_head(Head(FORMAT_VERSION, (name,)), stream)
    return ComponentRecord(
        cid, (name,), before.seq, Payload(head=data), digest_of(data), len(data), cell=cell
    )


def _short(text: str) -> bytes:
    data = text.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(data)) + data


def _atom(value: str | int) -> bytes:
    if isinstance(value, bool):
        return pickle.NEWTRUE if value else pickle.NEWFALSE
    return (
        _short(value) if isinstance(value, str) else pickle.BININT + struct.pack("<i", min(value, 2**31 - 1))
    )


def cleaned(record: ComponentRecord, sizes: Sequence[int], head: bytes) -> ComponentRecord:
    """Return a record that binds plain names to a payload that may be loaded; raises NotSafe."""
    told = check_payload(head, sizes)
    if not record.names or not all(map(is_plain_name, record.names)) or set(told.roots) - set(record.names):
        raise NotSafe("it binds what is no variable")
    return msgspec.structs.replace(
        record,
        modules=tuple(module for module in record.modules if module in MODULES),
        pins=(),
        reads=(),
        gpus=0,
        made=(),
    )
