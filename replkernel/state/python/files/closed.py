"""What a ``with`` statement leaves in its variable: packed files, sockets, pools of threads, all closed.

Nothing of the process is left in them; a closed one is made again, with what it says of itself.
Law: one that is still open is refused by name.
"""

from __future__ import annotations

import codecs
import importlib
import io
import os
import socket
import sys
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import kind_of

if TYPE_CHECKING:
    import concurrent.futures

    from replkernel.state.library import ReducerContext

_PLAIN = (type(None), bool, int, float, str, bytes)
PACKED = {"gzip": "GzipFile", "bz2": "BZ2File", "lzma": "LZMAFile"}
"""Modules, and in each the class of files that pack what is written to them, and unpack what is read."""

_OF_THE_POOL = frozenset({
    "_work_queue", "_idle_semaphore", "_threads", "_shutdown_lock", "_broken", "_shutdown",
})  # fmt: skip


def packed_kind(file: object) -> str:
    """Return the module of a file that packs what is written to it; an empty text for all others."""
    return _module_of(type(file))


def is_packed(cls: type) -> bool:
    """Tell whether a class is that of files that pack."""
    return _module_of(cls) != ""


def _module_of(cls: type) -> str:
    for module, name in PACKED.items():
        if cls is getattr(sys.modules.get(module), name, None):
            return module
    return ""


def told_of(file: object) -> dict[str, Any]:
    """Return what a closed packing file says of itself."""
    return {name: value for name, value in vars(file).items() if kind_of(value) in _PLAIN}


@loader("files:closed_packed")
def closed_packed(module: str, told: dict[str, Any], text: tuple[Any, ...]) -> object:
    """Return a closed file that packed, or the text file over it (called by payloads)."""
    kind = getattr(importlib.import_module(module), PACKED[module])
    packed = kind(fileobj=io.BytesIO(), mode="wb") if module == "gzip" else kind(io.BytesIO(), "wb")
    file = io.TextIOWrapper(packed, text[0], text[1]) if text else packed
    file.close()
    vars(packed).clear()
    vars(packed).update(told)
    return file


def reduce_closed(context: ReducerContext, file: object) -> object:
    """Reduce a closed file that packed."""
    return closed_packed, (packed_kind(file), told_of(file), ())


def reduce_socket(context: ReducerContext, held: socket.socket) -> object:
    """Reduce a closed socket."""
    if held.fileno() != -1:
        raise CannotTravel("A connection belongs to the process that opened it.")
    return closed_socket, (type(held), int(held.family), int(held.type), held.proto)


@loader("files:closed_socket")
def closed_socket(cls: type[Any], family: int, kind: int, proto: int) -> object:
    """Return a closed socket (called by payloads)."""
    made = cls(family, kind, proto)
    made.close()
    return made


def reduce_pool(context: ReducerContext, pool: concurrent.futures.ThreadPoolExecutor) -> object:
    """Reduce a pool of threads that was shut down, and whose threads have ended."""
    held = vars(pool)
    if not held["_shutdown"] or any(thread.is_alive() for thread in held["_threads"]):
        raise CannotTravel("The workers of an executor belong to its process.")
    state = {name: value for name, value in held.items() if name not in _OF_THE_POOL}
    return shut_pool, (type(pool),), state, None, None, fill_pool


@loader("files:shut_pool")
def shut_pool(cls: type[concurrent.futures.ThreadPoolExecutor]) -> object:
    """Return a pool of threads that was shut down (called by payloads)."""
    pool = cls.__new__(cls)
    ThreadPoolExecutor.__init__(pool, 1, "shut")
    ThreadPoolExecutor.shutdown(pool)
    return pool


@loader("files:fill_pool")
def fill_pool(pool: concurrent.futures.ThreadPoolExecutor, state: dict[str, Any]) -> None:
    """Give a pool what it says of itself (called by payloads)."""
    vars(pool).update(state)


def reduce_over_closed(context: ReducerContext, file: object) -> object:
    """Reduce what asks a closed file for all that it does not know itself (`codecs.open`, `os.popen`)."""
    held = vars(file)
    if not (held["stream"] if "stream" in held else held["_stream"]).closed:
        raise CannotTravel("Only files that `open` returned can be opened again elsewhere.")
    return over_closed, (type(file),), dict(held), None, None, fill_pool


@loader("files:over_closed")
def over_closed(cls: Any) -> object:
    """Return what is to have a file below it, without that: to be asked nothing yet (called by payloads)."""
    return cls.__new__(cls)


def reduce_temporary_file(context: ReducerContext, held: tempfile._TemporaryFileWrapper[Any]) -> object:
    """Reduce a temporary file that was closed: it is gone, or stays where it is."""
    attributes = vars(held)
    if not attributes["file"].closed:
        raise CannotTravel("A temporary file is on this host only.")
    return closed_temporary_file, (attributes["file"], attributes["name"], attributes["delete"])


@loader("files:closed_temporary_file")
def closed_temporary_file(file: Any, name: str, delete: bool) -> object:
    """Return a temporary file that is closed, and deletes nothing any more (called by payloads)."""
    made: Any = tempfile._TemporaryFileWrapper(file, name, False)
    made._closer.close_called = True
    made.delete = made._closer.delete = delete
    return made


def reduce_temporary_directory(context: ReducerContext, held: tempfile.TemporaryDirectory[Any]) -> object:
    """Reduce a temporary directory that was removed."""
    if vars(held)["_finalizer"].alive:
        raise CannotTravel("A temporary directory is removed with the object that made it.")
    state = {name: value for name, value in vars(held).items() if name != "_finalizer"}
    return removed_directory, (type(held),), state, None, None, fill_pool


@loader("files:removed_directory")
def removed_directory(cls: Any) -> object:
    """Return a temporary directory that was removed (called by payloads)."""
    made = cls.__new__(cls)
    made._finalizer = weakref.finalize(made, _nothing)
    made._finalizer.detach()
    return made


def _nothing() -> None:
    """Clean nothing up."""


FAMILIES = [
    (ThreadPoolExecutor, reduce_pool),
    (socket.socket, reduce_socket),
    *(
        (kind, reduce_over_closed)
        for kind in (codecs.StreamReaderWriter, codecs.StreamReader, codecs.StreamWriter)
    ),
    (os._wrap_close, reduce_over_closed),
    (tempfile._TemporaryFileWrapper, reduce_temporary_file),
    (tempfile.TemporaryDirectory, reduce_temporary_directory),
]
