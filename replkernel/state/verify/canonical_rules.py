"""What may differ between two dumps of one value, type by type: the rules that `canonical` compares by.

Pure. Law: a rule here loosens the proof, so each is for one callable by name, and says why it does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from replkernel.loaders import wire_name
from replkernel.state.format.dump_graph import NONE, Node, Source, Value

Name = tuple[str, str]

VALUE_CALLS = frozenset(
    {
        ("builtins", "complex"),
        ("builtins", "range"),
        ("builtins", "slice"),
        wire_name("sympy:make_expression"),
        wire_name("sympy:make_symbol"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
        ("numpy", "dtype"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy.core.multiarray", "scalar"),
        wire_name("regex:pattern_of"),
        wire_name("classes:resolve_class"),
        wire_name("sentinels:attribute"),
        wire_name("sentinels:seed"),
        wire_name("classes:imported_class"),
        wire_name("classes:types_attribute"),
    }
)
"""Calls that make a value without identity, as far as a user cares, or find the same object every time."""

VALUE_PACKAGES = frozenset({"sympy"})
"""Packages whose objects never change, and which find an equal one again where they can."""

_BUFFER_FIRST = frozenset(
    {
        wire_name("numpy:make_array"),
        wire_name("numpy:make_permuted"),
        wire_name("pyarrow:make_buffer"),
        wire_name("sqlite:take_image"),
        wire_name("torch:make_storage"),
    }
)
"""Calls whose first argument is bytes, or the number of a buffer: numbers follow the order of sets."""

_FILL_CLASS = wire_name("classes:fill_class")
_REOPEN = wire_name("files:reopen")
_REOPEN_PACKED = wire_name("files:reopen_packed")
_ENTRY = wire_name("files:entry")
_OPEN_READER = wire_name("pandas-readers:open_reader")
_OPEN_DATABASE = wire_name("sqlite:open_connection")
_FILL_WEAK_SET = wire_name("weakrefs:fill_weak_set")
_RESOLVE_CLASS = wire_name("classes:resolve_class")
_STALE_KEYS = wire_name("stale_keys:make")
_FROZENSET = wire_name("frozensets:made")
_ITER = ("builtins", "iter")
_SET_ITERATOR = wire_name("iterators:set_iterator")
_CHAIN = ("itertools", "chain")
_ZIP_LONGEST = ("itertools", "zip_longest")
_OVER_BUFFER = wire_name("numpy:make_over_buffer")
_VIEW = wire_name("numpy:make_view")
_OVER_TENSOR = wire_name("torch:make_array_view")
_MEMORYVIEW = wire_name("views:make_memoryview")
_MASKED = ("numpy.ma.core", "_mareconstruct")
_PADDED_KINDS = {"b": 1, "i": 1, "u": 1, "f": 1, "c": 1, "S": 1, "V": 1, "m": 1, "M": 1, "U": 4}


def global_of(value: Any) -> Name | None:
    """Return the module and name of a global, None for anything else."""
    return value[1:] if type(value) is tuple and value[0] == "g" else None


def nodes_of(graph: Value) -> Iterator[Node]:
    """Yield every node of a graph once."""
    seen: set[int] = set()
    todo: list[Any] = [graph]
    while todo:
        node = todo.pop()
        if type(node) is not Node or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        todo += [part for part in node.parts if type(part) is Node]
        for effect in node.effects:
            todo += effect


def normalise(graph: Value, source: Source, is_set_class: Callable[[tuple[Any, ...]], bool]) -> None:
    """Bring what may differ into one form, in place."""
    for node in nodes_of(graph):
        kind = node.kind
        if kind == "call" or kind == "new":
            _tell_set(node, is_set_class)
        for effect in node.effects:
            if effect[0] == "call" and global_of(effect[1]) == _FILL_WEAK_SET:
                _no_order(effect[2].parts, 0)
            elif effect[0] == "state":
                _attributes(effect[1])
        if kind == "call" and isinstance(node.parts[1], Node):
            _normalise_call(node, global_of(node.parts[0]), node.parts[1].parts, source)


def _attributes(state: Value) -> None:
    """Forget the order of attributes: they are looked up by name, and loaders of libraries set them anew."""
    for part in state.parts if isinstance(state, Node) and state.kind == "tuple" else [state]:
        if not isinstance(part, Node) or part.kind != "dict":
            continue
        if all(type(key) is tuple and key[0] == "t" for key in part.parts[::2]):
            part.kind = "unordered dict"


def _normalise_call(node: Node, name: Name | None, arguments: list[Value], source: Source) -> None:
    if name in _BUFFER_FIRST:
        if arguments and type(arguments[0]) is tuple and arguments[0][0] == "i":
            number = arguments[0][1]
            arguments[0] = ("buffer", source.buffers.digest(number), Number(number))
        if name == wire_name("numpy:make_array"):
            node.parts[1] = Node("elements", arguments)
    elif name == _FILL_CLASS:
        # A class is changed in place, so the order of its attributes is that of another history.
        if isinstance(arguments[1], Node):
            arguments[1].kind = "unordered dict"
        # What was found for an abstract class is void as soon as any class is registered, as loads do.
        del arguments[3:]
    elif name == _REOPEN:
        # The last argument is who dumped it, for the message should the file not be there.
        del arguments[6:]
    elif name in (_OPEN_DATABASE, _REOPEN_PACKED, _OPEN_READER, _ENTRY):
        # As above.
        del arguments[-1:]
    elif name == _ITER and node.effects == [("state", ("i", 0))] and _is_empty(arguments[0]):
        # An iterator that is spent is told as an empty container, and made again as an iterator over one.
        node.effects = []
    elif name == _SET_ITERATOR:
        # What is left of a set part-way has the set's own order.
        _no_order(arguments, 1)
    elif name == _FROZENSET and isinstance(arguments[1], Node):
        node.kind, node.parts = "frozenset", arguments[1].parts
    elif name == _STALE_KEYS and arguments[0] != ("t", b"dict"):
        _stale_set(node, arguments)
    else:
        _normalise_more(node, name, arguments)


def _stale_set(node: Node, arguments: list[Value]) -> None:
    """Forget where the members of a set lie: like its order, it follows from how the set came to be."""
    del arguments[2:]
    _no_order(arguments, 1)
    for effect in node.effects:
        for part in effect[1:]:
            if isinstance(part, Node) and part.kind == "tuple" and part.parts:
                _no_order(part.parts, 0)


def _normalise_more(node: Node, name: Name | None, arguments: list[Value]) -> None:
    if name == _ZIP_LONGEST:
        # An iterator that is spent is told as an empty tuple, and made again as an iterator over one.
        for index, argument in enumerate(arguments):
            if isinstance(argument, Node) and argument.kind == "tuple" and not argument.parts:
                arguments[index] = Node("call", [("g", *_ITER), Node("tuple", [argument])])
    elif name == _CHAIN and not arguments and _is_spent_chain(node.effects):
        node.effects = []
    elif name == _OVER_BUFFER:
        arguments[0] = _without_view(arguments[0])
    elif name == _VIEW and isinstance(arguments[0], Node):
        _straighten(node, arguments[0], arguments)
    elif name == _MASKED and node.effects and isinstance(node.effects[0][1], Node):
        node.effects[0][1].kind = "masked"


def _is_empty(container: Value) -> bool:
    if isinstance(container, Node):
        return container.kind in ("tuple", "list", "array") and not container.parts
    return container in (("t", b""), ("y", b""))


def _is_spent_chain(effects: list[tuple[Any, ...]]) -> bool:
    """Tell whether a chain goes on with one empty iterator, as one that is spent is made again."""
    if [effect[0] for effect in effects] != ["state"] or not isinstance(effects[0][1], Node):
        return False
    (rest,) = effects[0][1].parts[-1:] or [NONE]
    if not isinstance(rest, Node) or global_of(rest.parts[0]) != _ITER or len(effects[0][1].parts) != 1:
        return False
    made_from = rest.parts[1].parts[0] if isinstance(rest.parts[1], Node) else NONE
    return isinstance(made_from, Node) and made_from.kind in ("tuple", "list") and not made_from.parts


def _straighten(node: Node, owner: Node, arguments: list[Value]) -> None:
    """Make an array over all bytes of a tensor one over the tensor: between the two numpy keeps another."""
    if (
        owner.kind != "call"
        or global_of(owner.parts[0]) != _OVER_TENSOR
        or not isinstance(owner.parts[1], Node)
    ):
        return
    storage, offset, _shape, _strides, dtype = owner.parts[1].parts[:5]
    if offset == ("i", 0) and dtype == ("t", b"|u1"):
        node.parts = [("g", *_OVER_TENSOR), Node("tuple", [storage, *arguments[1:]])]


def _without_view(owner: Value) -> Value:
    """Return what a memoryview from its beginning is over: numpy keeps either as the owner of the memory."""
    if isinstance(owner, Node) and owner.kind == "call" and global_of(owner.parts[0]) == _MEMORYVIEW:
        arguments = owner.parts[1]
        if isinstance(arguments, Node) and arguments.parts[1] == ("i", 0):
            return arguments.parts[0]
    return owner


def _no_order(parts: list[Value], place: int) -> None:
    part = parts[place]
    if isinstance(part, Node) and part.kind in ("list", "tuple"):
        part.kind = "bag"


class Number(int):
    """A buffer's number: where to read it; it is no part of what is compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number)

    def __hash__(self) -> int:
        return 0


def _tell_set(node: Node, is_set_class: Callable[[tuple[Any, ...]], bool]) -> None:
    """Mark the members that an instance of a subclass of set or frozenset is made from as without order."""
    made_from = node.parts[1]
    if not isinstance(made_from, Node) or not made_from.parts:
        return
    first = made_from.parts[0]
    if isinstance(first, Node) and first.kind == "list":
        name = class_name(node.parts[0])
        if name is not None and is_set_class(name):
            first.kind = "bag"


def class_name(value: Value) -> tuple[Any, ...] | None:
    """Return what names a class: its global, or the id of a notebook's."""
    if type(value) is tuple:
        return value if value[0] == "g" else None
    assert isinstance(value, Node)
    if value.kind == "call" and global_of(value.parts[0]) == _RESOLVE_CLASS:
        return ("class", _first_text(value))
    return None


def class_names(whole: Node) -> list[str]:
    """Return the names of the classes that a dump of several roots defines."""
    made = whole.parts[0]
    assert isinstance(made, Node)
    return [_first_text(node).partition("@")[0] for node in made.parts if isinstance(node, Node)]


def _first_text(call: Node) -> str:
    """Return the first argument of a call, which is text."""
    arguments = call.parts[1]
    assert isinstance(arguments, Node)
    return str(arguments.parts[0][1].decode())  # type: ignore[index]


# -- records with padding ------------------------------------------------------------------------------


def element_bytes(arguments: Node, source: Source) -> bytes | None:
    """Return an array's bytes with those between the fields of its records zeroed; None when it has none."""
    layout = _layout(arguments.parts[1])
    if layout is None:
        return None
    size, gaps = layout
    data: Any = arguments.parts[0]
    if not gaps or not size:
        return None
    if data[0] == "buffer":
        raw = bytearray(source.buffers.read(int.__index__(data[2])))
    elif isinstance(data[1], bytes):
        raw = bytearray(data[1])
    else:
        return None
    for offset in gaps:
        raw[offset::size] = bytes(len(range(offset, len(raw), size)))
    return bytes(raw)


def _layout(dtype: Value) -> tuple[int, list[int]] | None:
    """Return an element's size and the offsets that belong to no field; None for what is not understood."""
    if not isinstance(dtype, Node) or global_of(dtype.parts[0]) != ("numpy", "dtype"):
        return None
    used = _used(dtype)
    if used is None:
        return None
    size, taken = used
    return size, [offset for offset in range(size) if offset not in taken]


def _used(dtype: Value) -> tuple[int, set[int]] | None:
    """Return a dtype's size and the offsets that its fields take."""
    if not isinstance(dtype, Node) or dtype.kind != "call" or not isinstance(dtype.parts[1], Node):
        return None
    code = dtype.parts[1].parts[0]
    if type(code) is not tuple or code[0] != "t" or len(dtype.effects) > 1:
        return None
    state = dtype.effects[0][1].parts if dtype.effects else []
    text = code[1].decode().lstrip("<>|=")
    if text[0] not in _PADDED_KINDS or not text[1:].isdigit():
        return None
    size = int(text[1:]) * _PADDED_KINDS[text[0]]
    if len(state) < 5 or (state[2] == NONE and state[4] == NONE):
        return size, set(range(size))
    if state[2] != NONE:
        return _used_by_block(state[2], size)
    return _used_by_fields(state[4], size)


def _used_by_block(subarray: Value, size: int) -> tuple[int, set[int]] | None:
    assert isinstance(subarray, Node)
    base = _used(subarray.parts[0])
    if base is None or not base[0]:
        return None
    return size, {start + offset for start in range(0, size, base[0]) for offset in base[1]}


def _used_by_fields(fields: Value, size: int) -> tuple[int, set[int]] | None:
    assert isinstance(fields, Node)
    taken: set[int] = set()
    for field in fields.parts[1::2]:
        assert isinstance(field, Node)
        inner, start = _used(field.parts[0]), field.parts[1]
        if inner is None or type(start) is not tuple:
            return None
        taken |= {start[1] + offset for offset in inner[1]}
    return size, taken
