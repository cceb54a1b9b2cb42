"""Compressors and decompressors whose stream is over: they travel as such. One in the midst of it stays.

Law: a compressor is asked by a copy of it, which it refuses once it is over; what the user has is unchanged.
"""

from __future__ import annotations

import importlib
import zlib
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.kinds import module_of, qualname_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_LIBRARIES = {"_bz2": "bz2", "_lzma": "lzma"}


def reduce_compressor(context: ReducerContext, compressor: Any) -> object:
    """Reduce a compressor of zlib's that was flushed."""
    try:
        compressor.copy()
    except ValueError:
        return flushed, ()
    return NotImplemented


@loader("files:flushed")
def flushed() -> object:
    """Return a compressor of zlib's that was flushed (called by payloads)."""
    compressor = zlib.compressobj()
    compressor.flush()
    return compressor


def reduce_decompressor(context: ReducerContext, decompressor: Any) -> object:
    """Reduce a decompressor that came to the end of its stream, with what was behind that."""
    if not decompressor.eof:
        return NotImplemented
    kind = type(decompressor)
    check = (decompressor.check,) if kind.__module__ == "_lzma" else ()
    return over, (_LIBRARIES.get(kind.__module__, "zlib"), decompressor.unused_data, check)


@loader("files:over")
def over(library: str, behind: bytes, check: tuple[int, ...]) -> object:
    """Return a decompressor that is at the end of a stream (called by payloads)."""
    module = importlib.import_module(library)
    options = {"check": check[0]} if check and check[0] <= module.CHECK_SHA256 else {}
    empty = module.compress(b"", **options)
    made = {"zlib": "decompressobj", "bz2": "BZ2Decompressor", "lzma": "LZMADecompressor"}[library]
    decompressor = getattr(module, made)()
    decompressor.decompress(empty + behind)
    return decompressor


def _is_decompressor(cls: type) -> bool:
    return module_of(cls) in _LIBRARIES and qualname_of(cls).endswith("Decompressor")


EXACT = {type(zlib.compressobj()): reduce_compressor, type(zlib.decompressobj()): reduce_decompressor}
TESTED_MODULES = (*_LIBRARIES,)
TESTS = [(_is_decompressor, reduce_decompressor)]
