"""The unpicklers of payloads: the C one, and a slow one for graphs whose keys need their state to be hashed.

A cycle through a dict's or set's own member is rebuilt by the C unpickler before the member has its state;
when that fails, the slow one puts members in at the very end.
Law: what a payload may name as a seed is in `seeds`; anything else is an ordinary global.
"""

from __future__ import annotations

import importlib
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from replkernel.state.format.nans import needs_numpy
from replkernel.state.format.old_names import find_old
from replkernel.state.format.set_order import follow
from replkernel.state.format.stream import Head, reader_of
from replkernel.state.python.kinds import kind_of
from replkernel.state.restore import loading
from replkernel.state.seeds import NUMPY_NAN, PREAMBLE, SEED_MODULE, SEED_TOKENS, Seeds

_DICTS = (dict, OrderedDict, defaultdict)
_ATOMS = frozenset({str, bytes, int, float, bool, complex, type(None)})


class SeededUnpickler(pickle.Unpickler):
    """The unpickler that knows this process's seeds."""

    seeds: Seeds

    def find_class(self, module: str, name: str, /) -> Any:
        """Return a global, a seed, or the loader that an older release named by its place."""
        if module == SEED_MODULE:
            return self.seeds.object_of(name)
        return find_old(module, name) or super().find_class(module, name)

    def persistent_load(self, value: object, /) -> Any:
        """Return what a stand-in was loaded as: the value itself."""
        return value


_Slow: Any = pickle._Unpickler


class LateUnpickler(_Slow):  # type: ignore[misc]
    """The unpickler in Python, which puts members and keys that are objects in when all objects are whole."""

    dispatch: ClassVar[dict[int, Any]] = dict(_Slow.dispatch)
    seeds: Seeds

    def __init__(self, file: object, buffers: Sequence[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self.late: list[Callable[[], Any]] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return a global, a seed, or the loader that an older release named by its place."""
        if module == SEED_MODULE:
            return self.seeds.object_of(name)
        return find_old(module, name) or super().find_class(module, name)

    def persistent_load(self, value: object) -> Any:
        """Return what a stand-in was loaded as: the value itself."""
        return value

    def load(self) -> Any:
        """Return the object, whole."""
        loading.current().puts_off = self.late
        value = super().load()
        for put in self.late:
            put()
        return value

    def _put_items(self, target: Any, items: Sequence[Any]) -> None:
        keys = items[::2]
        if kind_of(target) in _DICTS and not all(kind_of(key) in _ATOMS for key in keys):
            self.late.append(lambda: target.update(zip(keys, items[1::2], strict=True)))
        else:
            for key, value in zip(keys, items[1::2], strict=True):
                target[key] = value

    def load_setitem(self) -> None:
        """SETITEM."""
        value, key = self.stack.pop(), self.stack.pop()
        self._put_items(self.stack[-1], [key, value])

    def load_setitems(self) -> None:
        """SETITEMS."""
        items = self.pop_mark()
        self._put_items(self.stack[-1], items)

    def load_additems(self) -> None:
        """ADDITEMS."""
        items = self.pop_mark()
        target = self.stack[-1]
        self.late.append(lambda: [target.add(item) for item in items])

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.ADDITEMS[0]] = load_additems


def unpickle(seeds: Seeds, head: Head, stream: memoryview, buffers: Sequence[Any], *, late: bool) -> Any:
    """Return the object of one stream."""
    if needs_numpy(stream, SEED_TOKENS.index(NUMPY_NAN)):
        importlib.import_module("numpy")
    native = [buffers[number] for number in head.native]
    file = reader_of(head, stream, PREAMBLE, buffers)
    unpickler: Any = (LateUnpickler if late else SeededUnpickler)(file, buffers=native)
    unpickler.seeds = seeds
    settle = loading.current().settle
    settle.clear()
    value = unpickler.load()
    if head.sets:
        memo: dict[int, Any] = unpickler.memo.copy()
        for recipe in head.sets:
            members = memo.get(recipe.index)
            if type(members) is set:
                follow(recipe, members)
    for act in settle:
        act()
    return value
