"""numpy arrays of objects, of strings of any length, and structured ones with such fields.

Their memory holds pointers, so elements travel one by one; views of them are taken again from their owner.
Law: imported only when numpy is; a view that cannot be taken again is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.libraries.numpy.bare_arrays import (
    address,
    attributes_of,
    class_of,
    fill_attributes,
    in_class,
    is_one_block,
    new_array,
    unlocked,
    writeable,
)

if TYPE_CHECKING:
    from replkernel.state.libraries.numpy.bare_arrays import Array
    from replkernel.state.library import ReducerContext


def reduce_objects(context: ReducerContext, values: Array) -> Any:
    """Reduce an array whose memory holds pointers."""
    owner, cls = _owner_of(values), class_of(values)
    if owner is None:
        order = "F" if values.flags.f_contiguous and not values.flags.c_contiguous else "C"
        state = (_elements(values, order), attributes_of(values), writeable(values))
        return make_objects, (values.shape, order, values.dtype, cls), state, None, None, fill_objects
    offset = address(values) - address(owner)
    if (
        values.dtype.hasobject
        and _fields_at(owner.dtype, offset % owner.dtype.itemsize, values.dtype) is None
    ):
        raise CannotTravel(f"It is a view of {values.dtype} into an array of {owner.dtype}.")
    layout = (values.shape, values.strides, values.dtype, writeable(values), cls)
    attributes = attributes_of(values)
    rest = (attributes, None, None, fill_attributes) if attributes else ()
    return (make_object_view, (owner, offset, *layout), *rest)


def _owner_of(values: Any) -> Any:
    """Return the array in whose one block of memory an array's elements are; None when it is its own."""
    base, owner = values.base, None
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base if is_one_block(base) else owner
        elif type(base).__name__ != "DummyArray":
            return owner
        base = base.base
    return owner


def _leaves(values: Array, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Find the fields of an array that hold no other fields, each as an array."""
    if values.dtype.names is None:
        yield path, values
        return
    for name in values.dtype.names:
        yield from _leaves(values[name], (*path, name))


def _elements(values: object, order: Any) -> Any:
    """Return the elements as a list, or of a structured array each field's."""
    plain = np.asarray(values)
    if plain.dtype.names is None:
        return plain.reshape(-1, order=order).tolist()
    found = []
    for path, leaf in _leaves(plain):
        items: Any = np.array(leaf, copy=True, order="C", subok=False)
        found.append((path, items.reshape(-1).tolist() if items.dtype.hasobject else items))
    return found


@loader("numpy:make_objects")
def make_objects(shape: tuple[int, ...], order: object, dtype: object, cls: object) -> object:
    """Return an array without elements (called by payloads)."""
    return new_array(cls, shape, dtype, order=order)


@loader("numpy:fill_objects")
def fill_objects(values: Array, state: tuple[Any, Any, bool]) -> None:
    """Put the elements in (called by payloads)."""
    elements, attributes, may_write = state
    plain = np.asarray(values)
    if plain.dtype.names is None:
        flat = plain.reshape(-1, order="C" if plain.flags.c_contiguous else "F")
        _put(flat, elements)
    else:
        for path, items in elements:
            leaf = plain
            for name in path:
                leaf = leaf[name]
            if isinstance(items, np.ndarray):
                leaf[...] = items
            else:
                for index, item in zip(np.ndindex(leaf.shape), items, strict=True):
                    leaf[index] = item
    if attributes:
        vars(values).update(attributes)
    if not may_write:
        values.flags.writeable = False


def _put(flat: Array, items: list[Any]) -> None:
    for index, item in enumerate(items):
        flat[index] = item


def _fields_at(dtype: Any, offset: int, wanted: object) -> tuple[str, ...] | None:
    """Return the path of the field of a dtype at an offset; none for the element itself, None for neither."""
    if offset == 0 and dtype == wanted:
        return ()
    for name in dtype.names or ():
        inner, start = dtype.fields[name][:2]
        if inner.subdtype is None and start <= offset < start + inner.itemsize:
            below = _fields_at(inner, offset - start, wanted)
            if below is not None:
                return (name, *below)
    return None


@loader("numpy:make_object_view")
def make_object_view(
    owner: Array,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    may_write: bool,
    cls: object,
) -> Any:
    """Return an array in another's memory (called by payloads)."""
    with unlocked(owner, may_write):
        if not dtype.hasobject:
            return _plain_fields(owner, offset, shape, strides, dtype, may_write, cls)
        plain = np.asarray(owner)
        flat = plain.reshape(-1, order="C" if plain.flags.c_contiguous else "F")
        step = owner.dtype.itemsize
        for name in _fields_at(owner.dtype, offset % step, dtype) or ():
            flat = flat[name]
        view = in_class(_placed(flat, offset // step, shape, strides), cls)
    if view.flags.writeable != may_write:
        view.flags.writeable = may_write
    return view


def _plain_fields(
    owner: Array,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: object,
    may_write: bool,
    cls: object,
) -> Any:
    """Return an array over fields without pointers: their bytes may be looked at as they are."""
    buffer = owner if owner.flags.c_contiguous else np.asarray(owner).T
    view = new_array(cls, shape, dtype, buffer, offset, strides)
    if not may_write:
        view.flags.writeable = False
    return view


def _placed(flat: Array, start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return the array of that shape and strides; by slicing where that will do: it keeps the base."""
    step = flat.strides[0]
    size = int(np.prod(shape, dtype=int))
    if size and len(shape) == 1 and strides[0] and strides[0] % step == 0:
        jump = strides[0] // step
        stop = start + (shape[0] - 1) * jump + (1 if jump > 0 else -1)
        return flat[start : stop if stop >= 0 else None : jump]
    block = flat[start : start + size]
    if size and block.size == size:
        axes = sorted(range(len(shape)), key=lambda axis: -strides[axis])
        view = block.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes))
        if view.strides == strides:
            return view
    return np.lib.stride_tricks.as_strided(flat[start:], shape, strides)
