"""Exceptions: rebuilt without running a Python `__init__`, with cause, context, notes and a traceback.

Law: a class that does not say how it is pickled is not asked to set anything.
The frames of a traceback do not travel; frames of the same files, functions and lines stand in for them.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from replkernel.loaders import loader
from replkernel.state.python.kinds import key_of, module_of
from replkernel.state.python.paths import instance_dict
from replkernel.state.python.whole_states import Rebuilt, can_be_copied

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

Call = tuple[str, int, tuple[int, int, int], tuple[str, ...], int]
"""A function's qualified name, its first line, how many arguments it has, their names, and its flags."""

Line = tuple[str, str, int, int | None, int | None, int | None, Call | None, int]
"""File, function, line, where the expression at work ends, begins and stops in its line, its function, and
the line on which the frame ended: another one when it caught the exception itself."""

TRACEBACK_MAX = 200
_rebuilt = Rebuilt()

_STORY = tuple(
    vars(BaseException)[name]
    for name in ("__traceback__", "__cause__", "__context__", "__suppress_context__")
)
"""What reads and sets what happened to an exception; the last one behind the cause, which sets it as well."""

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_FLAGS = type.__dict__["__flags__"]
_HEAP_TYPE = 1 << 9
_FIELDS = {
    cls: tuple((n, field) for n, field in vars(cls).items() if type(field) is types.MemberDescriptorType)
    for cls in vars(builtins).values()
    if isinstance(cls, type) and issubclass(cls, BaseException) and cls is not BaseExceptionGroup
}
"""What may be set of Python's own exceptions beside their arguments: of a group, nothing."""


def reduce_exception(pickler: UnitContext, error: BaseException) -> object:
    """Reduce an exception; past its class's own ``__reduce__`` where the notebook wrote that.

    As for other instances, the class has its way only where the rest cannot be copied.
    """
    cls = type(error)
    stock = BaseException.__reduce__
    own, owner = next(
        (
            (held["__reduce__"], base)
            for base in _MRO.__get__(cls)
            if "__reduce__" in (held := _DICT.__get__(base))
        ),
        (stock, BaseException),
    )
    by_class = isinstance(own, types.FunctionType)
    if by_class and module_of(owner) == pickler.world.seeds.main_name:
        built_in: Any = _built_in(cls)
        whole = built_in.__reduce__(error)
        as_rebuilt = _rebuilt.is_as_noted(error, lambda: _ids(whole))
        if whole[0] is cls and not as_rebuilt and can_be_copied(pickler, whole[1:]):
            return _reduced(error, whole)
    reduced = error.__reduce__()
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        return reduced
    if by_class or reduced[0] is not cls:
        state = (reduced[2] if len(reduced) > 2 else None, *_story(error))
        return make_by_reduce, (reduced[0], reduced[1]), state, None, None, fill_by_reduce
    return _reduced(error, reduced)


def _reduced(error: BaseException, reduced: tuple[Any, ...]) -> object:
    told = reduced[2] if len(reduced) > 2 and isinstance(reduced[2], dict) else {}
    state = {key: value for key, value in told.items() if not _is_told(error, key, value)} or None
    return make, reduced[:2], (state, *_story(error), _slots_of(error)), None, None, fill


def _is_told(error: BaseException, key: str, value: object) -> bool:
    """Tell whether an entry of an error's state stands elsewhere: Python 3.12 has such for AttributeError.

    An attribute of its own may have the name of such a place, where a notebook's class has taken it.
    """
    if key in (instance_dict(error) or ()):
        return False
    return value is error.args if key == "args" else value is None and key in dict(_fields_of(error))


def _story(error: BaseException) -> tuple[Any, ...]:
    return tuple(part.__get__(error) for part in _STORY)


def _ids(whole: tuple[Any, ...]) -> tuple[Any, ...]:
    attributes = whole[2] if len(whole) > 2 else {}
    return *map(id, whole[1]), *((name, id(value)) for name, value in attributes.items())


def _slots_of(error: BaseException) -> dict[str, Any] | None:
    """Return what the slots of the exception's own classes hold, by place in the class's order and name."""
    held: dict[str, Any] = {}
    for depth, cls in enumerate(_MRO.__get__(type(error))):
        if not _FLAGS.__get__(cls) & _HEAP_TYPE:
            break
        for name, slot in _DICT.__get__(cls).items():
            if type(slot) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):
                    held[sys.intern(f"{depth}.{name}")] = slot.__get__(error)
    for name, field in _fields_of(error):
        value = field.__get__(error)
        if value is not None or (error.args and not isinstance(error, (ImportError, OSError))):
            held[sys.intern(f".{name}")] = value
    return held or None


def _fields_of(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield what Python's own classes of an error keep beside its arguments, which may say otherwise.

    That nothing was set is None as well; errors of files and of imports alone tell the two apart.
    """
    for cls in _MRO.__get__(type(error)):
        if not _FLAGS.__get__(cls) & _HEAP_TYPE:
            yield from _FIELDS.get(key_of(cls), ())


def _lines_of(traceback: types.TracebackType | None) -> tuple[Line, ...]:
    lines: list[Line] = []
    while traceback is not None and len(lines) < TRACEBACK_MAX:
        code, line = traceback.tb_frame.f_code, traceback.tb_lineno
        columns = _columns(code, traceback.tb_lasti)
        ended = _ended(traceback.tb_frame) or line
        lines.append((code.co_filename, code.co_name, line, *columns, _call_of(code), ended))
        traceback = traceback.tb_next
    return tuple(lines)


def _ended(frame: types.FrameType) -> int | None:
    """Return the line on which a frame of the notebook ended; a library's may still be at work."""
    return frame.f_lineno if frame.f_globals.get("__name__") == "__main__" else None


def _call_of(code: types.CodeType) -> Call | None:
    """Return how a function is called; None for the code of a module or a class."""
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return None
    flags = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    names = code.co_varnames[: counts[0] + counts[2] + flags.bit_count()]
    return code.co_qualname, code.co_firstlineno, counts, names, flags


def _columns(code: types.CodeType, instruction: int) -> tuple[int | None, int | None, int | None]:
    """Return where the expression of an instruction ends, and its first and last column, as far as known."""
    _, end, first, last = next(
        itertools.islice(code.co_positions(), instruction // 2, None), (None, None, None, None)
    )
    return end, first, last


@loader("exceptions:make")
def make(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Return an exception whose built-in part is initialised (called by payloads)."""
    error = cls.__new__(cls, *args)
    if not isinstance(error, cls):
        return error
    builtin: Any = _built_in(cls)
    try:
        builtin.__init__(error, *args)
    except TypeError:
        error.args = args
    return error


def _built_in(cls: type) -> type:
    """Return the first class of an exception's that is not written in Python."""
    found: type = next(base for base in _MRO.__get__(cls) if not _FLAGS.__get__(base) & _HEAP_TYPE)
    return found


@loader("exceptions:make_by_reduce")
def make_by_reduce(function: Callable[..., Any], args: tuple[Any, ...]) -> object:
    """Return an exception as its class reduces it, or without `__init__` (called by payloads)."""
    try:
        return function(*args)
    except TypeError:
        if isinstance(function, type) and issubclass(function, BaseException):
            return make(function, args)
        raise


@loader("exceptions:fill")
def fill(error: Any, extra: tuple[Any, ...]) -> None:
    """Give an exception its attributes and its story (called by payloads)."""
    _fill(error, extra, _set_attributes)


def _fill(error: Any, extra: tuple[Any, ...], set_state: Callable[[Any, Any], None]) -> None:
    state, traceback, cause, context, suppressed, *slots = extra
    held = slots[0] if slots and slots[0] else {}
    fields = dict(_fields_of(error)) if held else {}
    for key, value in held.items():
        depth, _, name = key.partition(".")
        slot = _DICT.__get__(_MRO.__get__(type(error))[int(depth)])[name] if depth else fields[name]
        slot.__set__(error, value)
    if state:
        set_state(error, state)
    for part, value in zip(_STORY, (traceback, cause, context, suppressed), strict=True):
        part.__set__(error, value)


def _set_attributes(error: Any, state: dict[str, Any]) -> None:
    """Set attributes past the class, unless a base of it that is not written in Python says how."""
    lines = _MRO.__get__(type(error))
    own = next(held["__setstate__"] for cls in lines if "__setstate__" in (held := _DICT.__get__(cls)))
    attributes = instance_dict(error)
    if attributes is None or not (own is _SET_STATE or isinstance(own, types.FunctionType)):
        error.__setstate__(state)
        return
    fields = dict(_fields_of(error))
    for key, value in state.items():
        found = next((held[key] for cls in lines if key in (held := _DICT.__get__(cls))), None)
        if key in fields and fields[key] is found:
            fields[key].__set__(error, value)
        else:
            attributes[key] = value


_SET_STATE = vars(BaseException)["__setstate__"]


@loader("exceptions:fill_by_reduce")
def fill_by_reduce(error: object, extra: tuple[Any, ...]) -> None:
    """Give an exception what its class said, and note what came of it (called by payloads)."""
    _fill(error, extra, lambda made, state: made.__setstate__(state))
    built_in: Any = _built_in(type(error))
    _rebuilt.note(error, lambda: _ids(built_in.__reduce__(error)))


@loader("exceptions:traceback")
def _traceback(lines: tuple[Line, ...]) -> object:
    following: Any = None
    for file, name, line, end, first, last, call, ended in reversed(lines):
        place = _Place(line, end, first, last, ended)
        space = {"_Stop": _Stop, "__name__": "__main__", "__file__": file}
        try:
            if call is None:
                exec(_code(file, name, place), space)  # noqa: S102
            else:
                _, _, (positional, _, by_name), names, _ = call
                code = _code_of_function(_code(file, name, place, call[1]), name, call)
                named = dict.fromkeys(names[positional : positional + by_name], _UNKNOWN)
                types.FunctionType(code, space)(*[_UNKNOWN] * positional, **named)
        except _Stop as stop:
            own = stop.__traceback__
            assert own is not None
            assert own.tb_next is not None
            frame = own.tb_next
            following = types.TracebackType(following, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return following


class _Place(NamedTuple):
    """Where a frame was when the exception came through, and the line on which it ended."""

    line: int
    end: int | None
    first: int | None
    last: int | None
    ended: int


def _code(file: str, name: str, place: _Place, begin: int = 0) -> types.CodeType:
    """Return code that raises, and says that it stands at that place of that file.

    With a first line `begin` the code defines a function that raises.
    """
    caught = place.ended != place.line
    text = "try: raise _Stop\nexcept: raise" if caught else "raise _Stop"
    tree = ast.parse("def function():\n " + text.replace("\n", "\n ") if begin else text)
    body: list[ast.stmt] = tree.body
    if isinstance(body[0], ast.FunctionDef):
        body[0].lineno = body[0].end_lineno = begin
        body = body[0].body
    for node in ast.walk(body[0]):
        if isinstance(node, (ast.stmt, ast.expr, ast.excepthandler)):
            node.lineno = node.end_lineno = place.ended
            node.col_offset, node.end_col_offset = -1, -1
    raising = body[0].body[0] if isinstance(body[0], ast.Try) else body[0]
    for node in ast.walk(raising):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno, node.end_lineno = place.line, place.end
            if place.first is not None and place.last is not None:
                node.col_offset, node.end_col_offset = place.first, place.last
    return compile(tree, file, "exec").replace(co_name=name, co_qualname=name)


def _code_of_function(definition: types.CodeType, name: str, call: Call) -> types.CodeType:
    """Return the code of the function that a module defines, with the name and arguments of another."""
    (code,) = (part for part in definition.co_consts if isinstance(part, types.CodeType))
    qualname, _, (positional, only_positional, by_name), names, flags = call
    return code.replace(
        co_name=name,
        co_qualname=qualname,
        co_argcount=positional,
        co_posonlyargcount=only_positional,
        co_kwonlyargcount=by_name,
        co_varnames=names,
        co_nlocals=len(names),
        co_flags=code.co_flags | flags,
    )


class _Unknown:
    """Stands for the value of an argument, which does not travel with a traceback."""

    def __repr__(self) -> str:
        return "<a value that did not travel>"


_UNKNOWN = _Unknown()


class _Stop(Exception):
    """Raised to get a frame."""


def reduce_traceback(pickler: UnitContext, traceback: types.TracebackType) -> object:
    """Reduce a traceback to its lines."""
    return _traceback, (_lines_of(traceback),)


FAMILIES = [(BaseException, reduce_exception)]
EXACT = {types.TracebackType: reduce_traceback}
